//! Steps of latency steering, computed by hand.

use std::time::Duration;

use dwell_engine::steer::{
    BackendStats, IntervalsConfig, Latency, LatencyConfig, LatencySteering, Maglev, Manual, Policy, Share, ShareReason,
};
use proptest::prelude::*;

/// An interval.
const SECOND: Duration = Duration::from_secs(1);

/// Only the rules of the paper.
fn paper() -> LatencyConfig {
    LatencyConfig {
        doubt: 0.0,
        forget: Duration::ZERO,
        steady: 3 * SECOND,
        rate: 0.1,
        cap: 1.0,
        unchanged: 0.1,
        regress: 0.1,
        ..LatencyConfig::default()
    }
}

/// Backends of weight 1 with these latencies in milliseconds, all equally fresh.
fn seen(ms: &[Option<f64>]) -> Vec<BackendStats> {
    let seen = ms.iter().enumerate().map(|(n, ms)| BackendStats {
        real: n as u32 + 1,
        configured: 1.0,
        latency: ms.map(latency),
        requests: 100,
        active: 10,
        strays: 0,
        is_usable: true,
    });
    seen.collect()
}

fn latency(ms: f64) -> Latency {
    let ns = (ms * 1e6) as u64;
    Latency { ns, error_ns: 0.0, mean_ns: ns, percentiles_ns: None, connections: 10, samples: 10, intervals: 1 }
}

fn shares(weights: &[f64]) -> Vec<Share> {
    weights.iter().map(|weight| Share::initial(*weight)).collect()
}

fn weights(shares: &[Share]) -> Vec<f64> {
    let round = |share: &Share| (share.weight * 1e9).round() / 1e9;
    shares.iter().map(round).collect()
}

fn names(shares: &[Share]) -> Vec<&'static str> {
    shares.iter().map(|share| share.reason.name()).collect()
}

fn step(config: LatencyConfig, seen: &[BackendStats], before: &[f64]) -> Vec<Share> {
    LatencySteering::new(config, SECOND).unwrap().step(seen, &shares(before))
}

#[test]
fn a_slow_backend_gives_in_proportion_to_its_latency_and_fast_ones_share_alike() {
    // 10 ms is the least. 40 ms gives 0.1 · 4 of its weight, 20 ms 0.1 · 2: 0.6 in
    // all, half for each of 10 and 11 ms. 13 ms is neither.
    let seen = seen(&[Some(10.0), Some(40.0), Some(11.0), Some(13.0), Some(20.0)]);
    let next = step(paper(), &seen, &[1.0; 5]);
    assert_eq!(weights(&next), [1.3, 0.6, 1.3, 1.0, 0.8]);
    assert_eq!(names(&next), ["fast", "slow", "fast", "kept", "slow"]);
    assert_eq!(next[1].reason, ShareReason::Slow { times: 4.0 });
    assert_eq!(next[1].reason.to_string(), "slow (4.00 times the least), gave weight");
}

#[test]
fn the_bounds_are_as_configured() {
    let ms = [Some(10.0), Some(12.0), Some(15.0)];
    // 12 is not below 1.2 times, 15 not above 1.5 times 10
    assert_eq!(weights(&step(paper(), &seen(&ms), &[1.0; 3])), [1.0; 3]);
    let config = LatencyConfig { alpha_high: 1.4, alpha_low: 1.3, rate: 0.2, ..paper() };
    let next = step(config, &seen(&ms), &[1.0; 3]);
    assert_eq!(weights(&next), [1.15, 1.15, 0.7]);
}

#[test]
fn nobody_takes_more_than_the_cap_and_what_is_left_stays() {
    // 0.4 and 0.2 to give; each of two takes at most 0.1 of the mean weight of 1. Of the 0.2 that move, 2/3 come from
    // the first.
    let config = LatencyConfig { cap: 0.1, ..paper() };
    let seen = seen(&[Some(10.0), Some(40.0), Some(10.0), Some(20.0)]);
    let next = step(config, &seen, &[1.0; 4]);
    assert_eq!(weights(&next), [1.1, 0.866666667, 1.1, 0.933333333]);
    assert_eq!(names(&next), ["capped", "slow", "capped", "slow"]);
}

#[test]
fn a_weight_stops_at_the_floor() {
    let seen = seen(&[Some(1.0), Some(100.0)]);
    let next = step(paper(), &seen, &[1.0, 1.0]);
    assert_eq!(weights(&next), [1.98, 0.02]);
    let next = step(paper(), &seen, &weights(&next));
    assert_eq!(weights(&next), [1.98, 0.02]);
    assert_eq!(names(&next), ["kept", "floor"]);
    // The floor is relative to the configured weight, and below it no weight is taken.
    let mut light = seen.clone();
    light[1].configured = 0.5;
    let next = step(paper(), &light, &[1.0, 0.005]);
    assert_eq!(weights(&next), [1.0, 0.005]);
}

#[test]
fn only_as_fresh_as_the_freshest_slow_one_receives() {
    let mut seen = seen(&[Some(10.0), Some(10.0), Some(30.0), Some(40.0)]);
    // 10, 5, 5.5 and 4 requests per connection.
    seen[1].requests = 50;
    seen[2].requests = 55;
    seen[3].requests = 40;
    let next = step(paper(), &seen, &[1.0; 4]);
    assert_eq!(weights(&next), [1.7, 1.0, 0.7, 0.6]);
    let why = ShareReason::NotFresh { freshness: 5.0, needed: 5.5 };
    assert_eq!(next[1].reason, why);
    // 5 is nine tenths of 5.5
    let config = LatencyConfig { freshness: 0.9, ..paper() };
    assert_eq!(weights(&step(config, &seen, &[1.0; 4])), [1.35, 1.35, 0.7, 0.6]);
    // A backend without active connections is not less fresh than one with one.
    seen[0].active = 0;
    let next = step(paper(), &seen, &[1.0; 4]);
    assert_eq!(weights(&next), [1.7, 1.0, 0.7, 0.6]);
    // No backend is fresh, so none gives weight away.
    seen[0].requests = 0;
    let next = step(paper(), &seen, &[1.0; 4]);
    assert_eq!(weights(&next), [1.0; 4]);
    let expected = ["not_fresh", "not_fresh", "no_taker", "no_taker"];
    assert_eq!(names(&next), expected);
}

#[test]
fn without_an_estimate_or_unusable_a_backend_keeps_its_weight() {
    let mut seen = seen(&[Some(10.0), None, Some(1.0), Some(40.0), Some(10.0)]);
    seen[2].is_usable = false; // its 1 ms is not the minimum either
    seen[4].configured = 0.0;
    let next = step(paper(), &seen, &[1.0, 0.7, 0.5, 1.0, 0.0]);
    assert_eq!(weights(&next), [1.4, 0.7, 0.5, 0.6, 0.0]);
    let expected = ["fast", "no_estimate", "unusable", "slow", "kept"];
    assert_eq!(names(&next), expected);
    assert!(step(paper(), &[], &[]).is_empty());
}

#[test]
fn weights_regress_after_some_time_without_change() {
    let mut policy = LatencySteering::new(paper(), SECOND).unwrap();
    let mut current = shares(&[1.6, 0.4, 1.0]);
    let ms = |third| seen(&[Some(10.0), Some(11.0), Some(third)]);
    // The first is a change from nothing; then there are three without.
    for third in [12.0, 12.5, 12.0] {
        current = policy.step(&ms(third), &current);
        assert_eq!(weights(&current), [1.6, 0.4, 1.0]);
    }
    current = policy.step(&ms(12.0), &current);
    // a tenth of the way to the mean
    assert_eq!(weights(&current), [1.54, 0.46, 1.0]);
    assert_eq!(names(&current), ["regressed", "regressed", "kept"]);
    current = policy.step(&ms(12.0), &current);
    assert_eq!(weights(&current), [1.486, 0.514, 1.0]);
    // A change by more than a tenth starts the count anew.
    for third in [13.4, 13.4, 13.4] {
        current = policy.step(&ms(third), &current);
        assert_eq!(weights(&current), [1.486, 0.514, 1.0]);
    }
    current = policy.step(&ms(13.4), &current);
    assert_eq!(weights(&current), [1.4374, 0.5626, 1.0]);
}

#[test]
fn weights_regress_to_what_is_configured_without_the_slow_and_the_unknown() {
    let mut policy = LatencySteering::new(paper(), SECOND).unwrap();
    let mut seen = seen(&[Some(10.0), Some(12.0), Some(90.0), None]);
    seen[0].configured = 3.0;
    let before = shares(&[2.0, 2.0, 0.02, 0.3]);
    for _ in 0..3 {
        assert_eq!(weights(&policy.step(&seen, &before)), weights(&before));
    }
    // 4 in all, 3 : 1
    let next = policy.step(&seen, &before);
    assert_eq!(weights(&next), [2.1, 1.9, 0.02, 0.3]);
    assert_eq!(names(&next), ["regressed", "regressed", "floor", "no_estimate"]);
}

#[test]
fn what_is_long_unknown_regresses_if_so_configured() {
    let config = LatencyConfig { forget: 5 * SECOND, ..paper() };
    let mut policy = LatencySteering::new(config, SECOND).unwrap();
    let seen = seen(&[Some(10.0), Some(10.0), None]);
    let mut current = shares(&[1.4, 1.4, 0.2]);
    for _ in 0..4 {
        current = policy.step(&seen, &current);
        assert_eq!(weights(&current), [1.4, 1.4, 0.2]);
    }
    current = policy.step(&seen, &current);
    assert_eq!(weights(&current), [1.36, 1.36, 0.28]);
}

#[test]
fn regressing_is_no_faster_than_the_cap() {
    let config = LatencyConfig { regress: 0.5, cap: 0.1, ..paper() };
    let mut policy = LatencySteering::new(config, SECOND).unwrap();
    let mut current = shares(&[0.2, 1.6, 1.2]);
    for _ in 0..4 {
        current = policy.step(&seen(&[Some(10.0); 3]), &current);
    }
    // Half of the distance would be 0.4 up, and 0.3 and 0.1 down: this is a quarter of it.
    assert_eq!(weights(&current), [0.3, 1.525, 1.175]);
}

#[test]
fn a_difference_within_the_error_is_none() {
    let mut seen = seen(&[Some(10.0), Some(20.0)]);
    let config = LatencyConfig { doubt: 2.0, ..paper() };
    // 20 - 2 · 1 > 1.5 · (10 + 2 · 0.9), 20 - 2 · 1.2 is not
    for (error_ms, expected) in [(1.0, [1.2, 0.8]), (1.2, [1.0, 1.0])] {
        seen[0].latency.as_mut().unwrap().error_ns = 0.9e6;
        seen[1].latency.as_mut().unwrap().error_ns = error_ms * 1e6;
        assert_eq!(weights(&step(config, &seen, &[1.0; 2])), expected);
    }
    seen[1].latency.as_mut().unwrap().error_ns = f64::INFINITY;
    assert_eq!(weights(&step(config, &seen, &[1.0; 2])), [1.0; 2]);
    assert_eq!(weights(&step(paper(), &seen, &[1.0; 2])), [1.2, 0.8]);
}

#[test]
fn maglev_and_manual_leave_weights_alone() {
    let seen = seen(&[Some(10.0), Some(90.0)]);
    let before = shares(&[0.3, 0.7]);
    for (policy, name, why) in [
        (&mut Maglev as &mut dyn Policy, "maglev", ShareReason::Configured),
        (&mut Manual, "weights", ShareReason::Manual),
    ] {
        let next = policy.step(&seen, &before);
        assert_eq!((policy.name(), weights(&next)), (name, vec![0.3, 0.7]));
        assert!(next.iter().all(|share| share.reason == why));
    }
}

#[test]
fn constants_have_ranges() {
    type Set = fn(&mut LatencyConfig);
    let wrong: [(&str, Set); 11] = [
        ("alpha_high", |c| c.alpha_high = 0.9),
        ("alpha_high", |c| c.alpha_high = f64::NAN),
        ("alpha_low", |c| c.alpha_low = 1.6),
        ("rate", |c| c.rate = 0.0),
        ("cap", |c| c.cap = -0.1),
        ("floor", |c| c.floor = 0.0),
        ("steady", |c| c.steady = Duration::ZERO),
        ("unchanged", |c| c.unchanged = 10.5),
        ("regress", |c| c.regress = 2.0),
        ("freshness", |c| c.freshness = 1.1),
        ("doubt", |c| c.doubt = f64::INFINITY),
    ];
    for (name, set) in wrong {
        let mut config = LatencyConfig::default();
        set(&mut config);
        let error = LatencySteering::new(config, SECOND).err().unwrap();
        assert_eq!(error.name, name);
        assert!(error.to_string().starts_with(&format!("{name} is ")));
    }
    assert_eq!(LatencyConfig::default().check(), Ok(()));
}

/// Writes a number as the page does: 1,000,000.
fn with_commas(number: f64) -> String {
    let text = number.to_string();
    match text.len() {
        7 => format!("{},{},{}", &text[..1], &text[1..4], &text[4..]),
        _ => text,
    }
}

#[test]
fn the_method_page_has_the_range_of_each_constant() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/method/steering.md");
    let page = std::fs::read_to_string(page).unwrap();
    let of_latency = LatencyConfig::CONSTANTS.map(|constant| (constant.name, constant.least, constant.most));
    let of_intervals = IntervalsConfig::CONSTANTS.map(|constant| (constant.name, constant.least, constant.most));
    for (name, least, most) in of_latency.into_iter().chain(of_intervals) {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let range = row.and_then(|row| row.split('|').nth(3)).unwrap_or_else(|| panic!("the page lacks {name}"));
        let most = if name == "alpha_low" { "`alpha_high`".into() } else { with_commas(most) };
        assert!(range.trim().starts_with(&format!("{least} to {most}")), "{name}: {range}");
    }
}

fn any_seen() -> impl Strategy<Value = (BackendStats, f64)> {
    let latency = prop::option::weighted(0.8, (1u64..1_000_000_000, 0.0..1e8));
    let rest = (0.1..4.0, 0u64..1000, 0u64..100, prop::bool::weighted(0.9));
    (latency, rest, 0.1..4.0).prop_map(|(latency, rest, weight)| {
        let (configured, requests, active, is_usable) = rest;
        let latency = latency.map(|(ns, error_ns)| Latency { ns, error_ns, ..self::latency(1.0) });
        let seen = BackendStats { real: 0, configured, latency, requests, active, strays: 0, is_usable };
        (seen, weight)
    })
}

proptest! {
    #[test]
    fn the_total_stays_and_the_floor_and_cap_hold(
        intervals in prop::collection::vec(prop::collection::vec(any_seen(), 6), 1..12),
        doubt in 0.0..2.0,
    ) {
        let config = LatencyConfig { doubt, forget: 2 * SECOND, steady: SECOND, ..LatencyConfig::default() };
        let mut policy = LatencySteering::new(config, SECOND).unwrap();
        let mut current: Vec<Share> = intervals[0]
            .iter()
            .map(|(seen, _)| Share::initial(seen.configured))
            .collect();
        let configured: Vec<f64> = current.iter().map(|share| share.weight).collect();
        let total: f64 = configured.iter().sum();
        for interval in &intervals {
            let seen: Vec<BackendStats> = interval
                .iter()
                .enumerate()
                .map(|(n, (seen, _))| BackendStats {
                    real: n as u32 + 1,
                    configured: configured[n],
                    ..*seen
                })
                .collect();
            let next = policy.step(&seen, &current);
            let sum: f64 = next.iter().map(|share| share.weight).sum();
            prop_assert!((sum / total - 1.0).abs() < 1e-9);
            for ((new, old), seen) in next.iter().zip(&current).zip(&seen) {
                let floor = config.floor * seen.configured;
                prop_assert!(new.weight >= floor * 0.999, "{} < {}", new.weight, floor);
                let is_fixed = !seen.is_usable;
                prop_assert!(!is_fixed || new.weight == old.weight);
                // By steering, and by regressing.
                let most = 2.0 * config.cap * total / 6.0 + 1e-9;
                prop_assert!(new.weight - old.weight <= most);
                if matches!(new.reason, ShareReason::Kept | ShareReason::NoEstimate | ShareReason::NotFresh { .. }) {
                    prop_assert!(new.weight <= old.weight + config.regress * total);
                }
            }
            current = next;
        }
    }

    #[test]
    fn a_backend_without_fresh_data_never_gains_weight(interval in prop::collection::vec(any_seen(), 2..9)) {
        let seen: Vec<BackendStats> = interval
            .iter()
            .enumerate()
            .map(|(n, (seen, _))| BackendStats { real: n as u32 + 1, ..*seen })
            .collect();
        let before: Vec<f64> = interval.iter().map(|(_, weight)| *weight).collect();
        let next = step(paper(), &seen, &before);
        let slow = seen.iter().zip(&next).filter(|(_, share)| {
            matches!(share.reason, ShareReason::Slow { .. } | ShareReason::NoTaker { .. } | ShareReason::Floor { .. })
        });
        let needed = slow.map(|(seen, _)| seen.freshness()).fold(0.0, f64::max);
        for ((seen, new), old) in seen.iter().zip(&next).zip(&before) {
            prop_assert!(new.weight <= *old || seen.freshness() >= needed);
        }
    }
}
