//! Estimates of offset and drift from exchanges between simulated clocks.

use std::time::Duration;

use dwell_engine::clock::{Assumptions, Clock, Exchange, Fit, best, pause};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const UPTIME_NS: u64 = 40 * 86_400 * SECOND;

/// A host with a clock that is ahead and fast.
#[derive(Debug, Clone, Copy)]
struct Host {
    offset_ns: i64,
    drift_ppb: i64,
}

impl Host {
    /// Returns the host's clock at a local time.
    fn at(self, own_ns: u64) -> u64 {
        let elapsed = i128::from(own_ns) - i128::from(UPTIME_NS);
        let drifted = elapsed * i128::from(self.drift_ppb) / i128::from(SECOND);
        (i128::from(own_ns) + i128::from(self.offset_ns) + drifted) as u64
    }

    fn exchange(self, t1_ns: u64, there_ns: u64, back_ns: u64) -> Exchange {
        const TURN_NS: u64 = 200;
        Exchange {
            t1_ns,
            t2_ns: self.at(t1_ns + there_ns),
            t3_ns: self.at(t1_ns + there_ns + TURN_NS),
            t4_ns: t1_ns + there_ns + TURN_NS + back_ns,
        }
    }

    /// Returns a round of exchanges with symmetric paths.
    fn round(self, at_ns: u64) -> Vec<Exchange> {
        vec![self.exchange(at_ns, 1_000, 1_000)]
    }
}

fn at(seconds: u64) -> u64 {
    UPTIME_NS + seconds * SECOND
}

/// Returns the error of a conversion, and its error bound.
fn error(clock: &Clock, host: Host, own_ns: u64) -> (u64, u64) {
    let converted = clock.convert(host.at(own_ns)).unwrap();
    (converted.ns.abs_diff(own_ns), converted.bound_ns)
}

#[test]
fn the_exchange_with_the_shortest_round_trip_is_selected() {
    let host = Host { offset_ns: 5_000, drift_ppb: 0 };
    let slow = host.exchange(at(0), 9_000, 500);
    let fast = host.exchange(at(0), 700, 600);
    let contradictory = Exchange { t4_ns: fast.t1_ns, ..fast };
    let round = [slow, contradictory, fast, slow];
    assert_eq!(best(&round), Some(&fast));
    let mut clock = Clock::default();
    assert_eq!(clock.add(&round), Fit::First);
    assert_eq!(error(&clock, host, at(0)), (50, 653));
    assert_eq!(Clock::default().add(&[contradictory]), Fit::Useless);
}

#[test]
fn offset_and_drift_come_out_of_rounds() {
    for drift_ppb in [-100_000, 0, 37, 100_000] {
        let host = Host { offset_ns: -(3 * SECOND as i64), drift_ppb };
        let mut clock = Clock::default();
        assert_eq!(clock.add(&host.round(at(0))), Fit::First);
        for second in [1, 2, 4, 64, 128] {
            assert_eq!(clock.add(&host.round(at(second))), Fit::Agrees, "{second}");
        }
        let drift = clock.drift().unwrap();
        assert!((drift.ppb - drift_ppb as f64).abs() < 1.0, "{drift:?}");
        assert!(drift.bound_ppb < 150.0, "{drift:?}");
        for second in [100, 128, 160, 191] {
            let (error, bound) = error(&clock, host, at(second));
            assert!(error <= 5, "{error} at {second} s");
            // Half the round trip, plus the possible drift since then.
            assert!(bound < 8_000, "{bound} at {second} s");
            let there = clock.to_host(at(second)).unwrap();
            assert!(there.ns.abs_diff(host.at(at(second))) <= 5);
        }
    }
}

#[test]
fn the_bound_grows_with_the_time_since_the_last_round() {
    let host = Host { offset_ns: 1, drift_ppb: 10 };
    let mut clock = Clock::default();
    clock.add(&host.round(at(0)));
    // The drift is unknown: the greatest possible drift is assumed.
    let (_, bound) = error(&clock, host, at(1));
    assert!((500_000..502_500).contains(&bound), "{bound}");
    clock.add(&host.round(at(64)));
    let bounds = [64, 80, 128, 640].map(|second| error(&clock, host, at(second)).1);
    assert!(bounds.is_sorted(), "{bounds:?}");
    assert!(bounds[0] < 1_100 && bounds[2] > 3_000, "{bounds:?}");
}

#[test]
fn a_clock_that_is_stepped_begins_anew() {
    let before = Host { offset_ns: 1_000_000, drift_ppb: 20_000 };
    let after = Host { offset_ns: 251_000_000, drift_ppb: 20_000 };
    let mut clock = Clock::default();
    for second in [0, 1, 2, 4] {
        clock.add(&before.round(at(second)));
    }
    let Fit::Stepped { by_ns } = clock.add(&after.round(at(8))) else {
        panic!("a step was not seen");
    };
    assert!((249_900_000..=250_000_000).contains(&by_ns), "{by_ns}");
    assert_eq!(clock.steps(), 1);
    // Times before the step are still converted, and times during it are not.
    assert!(error(&clock, before, at(3)).0 < 100);
    assert_eq!(clock.convert(before.at(at(6))), None);
    assert!(error(&clock, after, at(8) + 5_000).0 < 100);
    assert_eq!(clock.add(&after.round(at(9))), Fit::Agrees);
    assert_eq!(clock.add(&after.round(at(9))), Fit::Useless, "not later");
}

#[test]
fn a_rate_that_changes_at_once_is_a_step() {
    let host = Host { offset_ns: 0, drift_ppb: 0 };
    let mut clock = Clock::default();
    for second in [0, 1, 2, 64, 128] {
        clock.add(&host.round(at(second)));
    }
    // A drift of 50 ppm more from 128 s on.
    let faster = Host { offset_ns: -128 * 50_000, drift_ppb: 50_000 };
    assert!(matches!(clock.add(&faster.round(at(192))), Fit::Stepped { .. }));
}

#[test]
fn rounds_come_quickly_at_first() {
    let longest = Duration::from_secs(50);
    let pauses: Vec<_> = (0..9).map(|rounds| pause(rounds, longest).as_secs()).collect();
    assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 32, 50, 50]);
    assert_eq!(pause(u64::MAX, longest), longest);
    assert_eq!(pause(1, Duration::from_millis(10)).as_millis(), 10);
}

#[test]
fn nothing_is_known_before_the_first_round() {
    assert_eq!(Clock::default().convert(1), None);
    assert_eq!(Clock::default().to_host(1), None);
    assert_eq!(Clock::default().drift(), None);
}

#[test]
fn nonsense_of_an_agent_does_no_harm() {
    let mut clock = Clock::default();
    for (t2_ns, t3_ns) in [(u64::MAX, u64::MAX), (0, 0), (u64::MAX, 0), (1 << 63, 1 << 63)] {
        for t1_ns in [1, at(0), u64::MAX - 10] {
            clock.add(&[Exchange { t1_ns, t2_ns, t3_ns, t4_ns: t1_ns + 5 }]);
            for ns in [0, 1, at(0), u64::MAX] {
                clock.convert(ns);
                clock.to_host(ns);
            }
        }
    }
}

/// Generates the path delays of some exchanges, with as much asymmetry as possible.
fn ways() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let way = prop_oneof![500..3_000u64, 500..200_000u64];
    prop::collection::vec((way.clone(), way), 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The bounds hold whatever the network does, as long as the drift stays within the assumption.
    #[test]
    fn the_bound_holds(
        offset_ns in -(10 * SECOND as i64)..10 * SECOND as i64,
        drift_ppb in -100_000..100_000i64,
        rounds in prop::collection::vec((ways(), 1..128u64), 1..40),
        later in 0..64u64,
    ) {
        let host = Host { offset_ns, drift_ppb };
        let mut clock = Clock::default();
        let mut own_ns = UPTIME_NS;
        for (ways, pause) in rounds {
            own_ns += pause * SECOND;
            let mut t1_ns = own_ns;
            let exchanges: Vec<_> = ways
                .into_iter()
                .map(|(there, back)| {
                    t1_ns += 500_000;
                    host.exchange(t1_ns, there, back)
                })
                .collect();
            let fit = clock.add(&exchanges);
            prop_assert!(matches!(fit, Fit::First | Fit::Agrees), "{:?}", fit);
            for own_ns in [own_ns, own_ns + later * SECOND] {
                let (error, bound) = error(&clock, host, own_ns);
                prop_assert!(error <= bound, "{} of {}", error, bound);
                let there = clock.to_host(own_ns).unwrap();
                prop_assert!(there.ns.abs_diff(host.at(own_ns)) <= there.bound_ns);
            }
        }
    }

    /// The drift changes continuously, as fast as is assumed.
    #[test]
    fn the_bound_holds_while_the_drift_wanders(
        bends in prop::collection::vec((-1.0..1.0f64, ways()), 2..30),
    ) {
        let assumptions = Assumptions::default();
        let mut clock = Clock::new(assumptions);
        // The true offset consists of parabolas of 64 s.
        let (mut offset, mut drift) = (0.0, 1e-5);
        let mut own_ns = UPTIME_NS;
        for (bend, ways) in bends {
            let truth = |since_ns: f64| {
                let seconds = since_ns / 1e9;
                let bent = bend * assumptions.wander_ppb_per_s * seconds * seconds / 2.0;
                offset + drift * since_ns + bent
            };
            let host = |ns: u64| (ns as i64 + truth((ns - own_ns) as f64).round() as i64) as u64;
            let exchanges: Vec<_> = ways
                .into_iter()
                .map(|(there, back)| Exchange {
                    t1_ns: own_ns,
                    t2_ns: host(own_ns + there),
                    t3_ns: host(own_ns + there),
                    t4_ns: own_ns + there + back,
                })
                .collect();
            let fit = clock.add(&exchanges);
            prop_assert!(matches!(fit, Fit::First | Fit::Agrees), "{:?}", fit);
            for second in [0, 10, 63] {
                let then = own_ns + second * SECOND;
                let converted = clock.convert(host(then)).unwrap();
                prop_assert!(converted.ns.abs_diff(then) <= converted.bound_ns + 1);
            }
            offset = truth(64e9);
            drift += bend * assumptions.wander_ppb_per_s * 64.0 / 1e9;
            own_ns += 64 * SECOND;
        }
    }
}
