//! Statistics of a backend in an interval.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    abi,
    measure::{Endpoint, Protocol},
    response::{Estimate, Method, Reason, Record, Truth},
    steer::{BackendState, BackendStats, Intervals, IntervalsConfig, Latency, Pending, Responses},
};
use zerocopy::IntoBytes;

/// An interval.
const SECOND: Duration = Duration::from_secs(1);

fn estimate(response_ns: u64, batches: u64) -> Estimate {
    Estimate {
        method: Method::AckRuns,
        truth: Truth::All,
        response_ns: Some(response_ns),
        ibg_ns: None,
        batches,
        confidence: 0.9,
        reason: None,
    }
}

/// Returns a record of this number of requests on a connection of its own.
fn record(connection: u32, requests: u32) -> Record {
    let event = abi::dwell_response_event {
        event: abi::DWELL_EVENT_RESPONSE as u8,
        key_kind: abi::DWELL_KEY_5TUPLE as u8,
        src: abi::dwell_address { high: 0, low: connection.into() },
        epoch: abi::dwell_epoch { requests, ..Default::default() },
        ..Default::default()
    };
    Record::from_kernel(event.as_bytes()).unwrap()
}

fn backend(real: u32) -> BackendState {
    BackendState { real, configured: 1.0, active: 4, pending: Pending::default(), is_usable: true }
}

fn intervals(min_connections: u32) -> Intervals {
    let config = IntervalsConfig { min_connections, look_back: 3 * SECOND, ..IntervalsConfig::default() };
    Intervals::new(config, SECOND).unwrap()
}

fn client(network: u32, host: u32) -> IpAddr {
    Ipv4Addr::from(198 << 24 | 18 << 16 | network << 8 | host).into()
}

const MS: u64 = 1_000_000;

/// Adds a connection of a client with two responses.
fn answer(intervals: &mut Intervals, client: IpAddr, port: u16, mean_ns: u64) {
    let client = Endpoint { address: client, port };
    let vip = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 80 };
    intervals.record(1, (client, vip, Protocol(6)), 2, Some(Responses { count: 2, mean_ns, singles: Vec::new() }));
}

/// Returns the latency that two connections of each of `networks` make, which take 10 ms, and what others add.
fn with_others(networks: u32, add: impl Fn(&mut Intervals, &mut BackendState)) -> f64 {
    let (mut intervals, mut state) = (intervals(5), backend(1));
    for network in 0..networks {
        for host in 1..3 {
            answer(&mut intervals, client(network, host), 1000, 10 * MS);
        }
    }
    add(&mut intervals, &mut state);
    let seen = intervals.end(&[state]);
    seen[0].latency.map_or(f64::NAN, |latency| latency.mean_ns as f64 / MS as f64)
}

/// What somebody with 1000 addresses in each of `networks` can make of a backend's latency.
#[test]
fn a_few_networks_cannot_make_a_backend_slow_or_fast() {
    for (networks, answers_ms, bounds) in
        [(1, 60_000, 10.0..10.4), (1, 0, 9.9..10.0), (10, 60_000, 10.0..12.8), (10, 0, 9.0..10.0)]
    {
        let forged = with_others(100, |intervals, _| {
            for (network, host) in (0..networks).flat_map(|network| (0..1000).map(move |host| (network, host))) {
                answer(intervals, client(200 + network, host % 250), 2000 + host as u16, answers_ms * MS);
            }
        });
        assert!(bounds.contains(&forged), "{networks} networks, {answers_ms} ms: {forged}");
        let silent = with_others(100, |_, state| {
            for (network, host) in (0..networks).flat_map(|network| (0..1000).map(move |host| (network, host))) {
                state.pending.add(client(200 + network, host % 250), 60_000 * MS);
            }
        });
        assert_eq!(silent, 10.0, "{networks} networks that wait in vain");
    }
}

#[test]
fn a_backend_that_is_slow_for_all_is_slow() {
    let slow = with_others(0, |intervals, _| {
        (0..100).for_each(|network| answer(intervals, client(network, 1), 1000, 10 * MS + u64::from(network) * MS));
    });
    assert_eq!(slow, 59.5);
    // It has answered some, and now answers nobody.
    let stalled = with_others(100, |_, state| {
        (0..100).for_each(|network| state.pending.add(client(network, 9), 1000 * MS));
    });
    assert!(stalled > 100.0, "{stalled}");
}

#[test]
fn a_connection_counts_by_its_responses_up_to_a_limit() {
    let mut intervals = intervals(2);
    // Two epochs of one connection: 2 of 1000 ns and 2 of 3000 ns; and 1000 of 10000 ns on another, which count as 16.
    intervals.add(1, &record(1, 2), &estimate(1_000, 2));
    intervals.add(1, &record(1, 2), &estimate(3_000, 2));
    intervals.add(1, &record(2, 1_000), &estimate(10_000, 1_000));
    let seen = intervals.end(&[backend(1)]);
    // (4 · 2000 + 16 · 10000) / 20 = 8400; errors 4 · 6400 and 16 · 1600, both
    // 25600: sqrt(2 · 25600² · 2/1) / 20
    let latency = Latency {
        ns: 8_400,
        error_ns: 2_560.0,
        mean_ns: 8_400,
        percentiles_ns: None,
        connections: 2,
        samples: 3,
        intervals: 1,
    };
    let expected = BackendStats {
        real: 1,
        configured: 1.0,
        latency: Some(latency),
        requests: 1_004,
        active: 4,
        strays: 0,
        is_usable: true,
    };
    assert_eq!(seen, [expected]);
    assert_eq!(seen[0].freshness(), 251.0);
}

/// Two backends with the same mean, of which one answers one request in ten 60 ms late.
#[test]
fn of_two_backends_with_the_same_mean_a_quantile_tells_the_one_with_a_tail() {
    for (quantile, times) in [(0.0, 0.95..1.05), (0.95, 5.0..8.0)] {
        let mut intervals = Intervals::new(IntervalsConfig { quantile, ..IntervalsConfig::default() }, SECOND).unwrap();
        let vip = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 80 };
        for port in 0..200 {
            let client = Endpoint { address: client(u32::from(port / 5), 1), port };
            let even = Responses { count: 2, mean_ns: 10 * MS, singles: vec![(10 * MS, 2)] };
            let tail = match port % 5 {
                0 => Responses { count: 2, mean_ns: 34 * MS, singles: vec![(4 * MS, 1), (64 * MS, 1)] },
                _ => Responses { count: 2, mean_ns: 4 * MS, singles: vec![(4 * MS, 2)] },
            };
            intervals.record(1, (client, vip, Protocol(6)), 2, Some(even));
            intervals.record(2, (client, vip, Protocol(6)), 2, Some(tail));
        }
        let seen = intervals.end(&[backend(1), backend(2)]);
        let [even, tail] = [0, 1].map(|at| seen[at].latency.unwrap());
        assert!((even.mean_ns, tail.mean_ns) == (10 * MS, 10 * MS), "{even:?}, {tail:?}");
        assert!(times.contains(&(tail.ns as f64 / even.ns as f64)), "{quantile}: {even:?}, {tail:?}");
        assert_eq!(even.percentiles_ns, Some([10 * MS; 3]));
        assert_eq!(tail.percentiles_ns, Some([4 * MS, 4 * MS, 64 * MS]));
    }
}

#[test]
fn requests_that_wait_for_far_longer_than_usual_count_although_nothing_has_answered() {
    let mut intervals = intervals(2);
    let waiting = |age_ns: u64, count: usize| {
        let mut pending = Pending::default();
        (0..count).for_each(|_| pending.add(client(0, 1), age_ns));
        BackendState { pending, ..backend(1) }
    };
    let mut end = |answers: u32, state: BackendState| {
        (0..answers).for_each(|number| intervals.add(1, &record(number, 2), &estimate(10 * MS, 2)));
        (0..2).for_each(|number| intervals.add(2, &record(number, 2), &estimate(10 * MS, 2)));
        intervals.end(&[state, backend(2)])[0].latency.map(|l| (l.mean_ns, l.connections, l.intervals))
    };
    assert_eq!(end(2, waiting(30 * MS, 9)), Some((10 * MS, 2, 1)), "nothing unusual");
    // From here on it answers nobody. With too few who wait, earlier answers count beside them.
    assert_eq!(end(0, waiting(1_000 * MS, 1)).map(|it| (it.1, it.2)), Some((3, 2)));
    // Ages are known within an octave: these are at least 2^29 and 2^31 ns.
    assert_eq!(end(0, waiting(1_000 * MS, 3)), Some((1 << 29, 3, 1)));
    assert_eq!(end(0, waiting(3_000 * MS, 3)), Some((1 << 31, 3, 1)));
}

/// As if their server had reset them, or their packets went by way of another balancer.
#[test]
fn few_requests_that_wait_while_later_ones_are_answered_count_for_nothing() {
    let (mut intervals, mut connections) = (intervals(6), 0..);
    let mut end = |answers: [usize; 2], age_ns: u64, count: usize| {
        for (real, answers) in [1, 2].into_iter().zip(answers) {
            let connections = connections.by_ref().take(answers);
            connections.for_each(|number| intervals.add(real, &record(number, 2), &estimate(10 * MS, 2)));
        }
        let mut state = backend(1);
        (0..count).for_each(|_| state.pending.add(client(0, 1), age_ns));
        let seen = intervals.end(&[state, backend(2)])[0];
        (seen.latency.map(|latency| latency.mean_ns), seen.strays)
    };
    for _ in 0..9 {
        assert_eq!(end([10, 10], 0, 0), (Some(10 * MS), 0));
    }
    // It has answered 20 connections in the two intervals since they have begun, as far as the octave of their age shows.
    assert_eq!(end([10, 10], 3_000 * MS, 7), (Some(10 * MS), 7));
    assert!(end([10, 10], 300 * MS, 9).0 > Some(50 * MS), "many have begun to wait");
    // It is avoided, and answers what it gets. Others answer more.
    for _ in 0..9 {
        end([0, 10], 10_000 * MS, 1);
    }
    assert_eq!(end([1, 10], 17_000 * MS, 1).1, 1);
}

/// As if a server had reset more connections than it has answered since. A worker of several that hangs keeps later ones waiting too.
#[test]
fn however_many_wait_they_count_for_nothing_once_nearly_all_later_ones_are_answered() {
    let mut intervals = intervals(6);
    let mut end = |answers: u32, waiting: &[(u64, usize)]| {
        for real in [1, 2] {
            (0..answers).for_each(|number| intervals.add(real, &record(number, 1), &estimate(10 * MS, 1)));
        }
        let mut state = backend(1);
        for (age_ms, count) in waiting {
            (0..*count).for_each(|_| state.pending.add(client(0, 1), age_ms * MS));
        }
        let seen = intervals.end(&[state, backend(2)])[0];
        (seen.latency.map(|latency| latency.mean_ns > 20 * MS), seen.strays)
    };
    (0..9).for_each(|_| assert_eq!(end(12, &[]), (Some(false), 0)));
    assert_eq!(end(12, &[(1_500, 99)]), (Some(false), 99));
    assert_eq!(end(12, &[(1_500, 99), (10, 1)]), (Some(false), 99), "one is under way");
    assert_eq!(end(12, &[(1_500, 99), (600, 9)]), (Some(true), 0), "one in four hangs");
    for _ in 0..2 {
        end(0, &[]);
    }
    assert_eq!(end(0, &[(1_500, 99)]).1, 0, "all hang");
}

/// Of four workers one hangs, and keeps a quarter of connections waiting. Clients of the others ask ten times per interval, each on one
/// connection: that is no reason to count the rest for less.
#[test]
fn a_worker_that_hangs_shows_however_often_clients_of_the_others_ask() {
    let mut intervals = intervals(6);
    let mut end = |own: u32, waiting: &[(u64, usize)]| {
        for (real, connections) in [(1, own), (2, 40)] {
            for number in 0..connections {
                intervals.add(real, &record(number, 10), &estimate(10 * MS, 10));
            }
        }
        let mut state = backend(1);
        for (age_ms, count) in waiting {
            (0..*count).for_each(|_| state.pending.add(client(0, 1), age_ms * MS));
        }
        let seen = intervals.end(&[state, backend(2)])[0];
        (seen.latency.map(|latency| latency.mean_ns > 20 * MS), seen.strays)
    };
    (0..9).for_each(|_| assert_eq!(end(40, &[]), (Some(false), 0)));
    assert_eq!(end(30, &[(1_500, 10), (600, 4)]), (Some(true), 0), "new connections wait too");
    assert_eq!(end(30, &[(3_000, 10), (1_500, 7), (600, 4)]), (Some(true), 0));
    assert_eq!(end(30, &[(6_000, 10)]), (Some(false), 10), "whatever came later was answered");
}

/// Half of the clients move to another balancer and back every two seconds. What is under way then is acknowledged there, and waits here
/// for as long as requests may, and counts until an interval has shown that others have passed.
#[test]
fn clients_that_move_to_another_balancer_and_back_make_no_backend_slow_for_longer_than_an_interval() {
    let (mut intervals, mut connections) = (intervals(5), 0..);
    for second in 0..120u64 {
        let is_here = second % 4 < 2;
        let mut waiting = [backend(1), backend(2)];
        for (state, under_way) in waiting.iter_mut().zip([1, 2]) {
            let answered = connections.by_ref().take(if is_here { 12 } else { 6 });
            answered.for_each(|number| intervals.add(state.real, &record(number, 1), &estimate(30 * MS, 1)));
            // They have moved at the end of the seconds 1, 5, 9 and so on.
            let moved = (1..=second).step_by(4).map(|moved| second - moved).filter(|ago| *ago < 68);
            moved.for_each(|ago| {
                (0..under_way).for_each(|host| state.pending.add(client(host, 1), ago * 1_000 * MS + 30 * MS));
            });
        }
        for (seen, state) in intervals.end(&waiting).iter().zip(&waiting) {
            let (mean_ns, waits) = (seen.latency.map_or(0, |latency| latency.mean_ns), state.pending.count());
            assert!(
                mean_ns == 30 * MS || second % 4 == 2,
                "after {second} s {}, strays {} of {waits}",
                mean_ns / MS,
                seen.strays
            );
        }
    }
}

/// Of three backends that have lost as many connections at once, the one that answered slowest for a moment gets nothing more.
#[test]
fn what_waits_at_all_alike_and_has_passed_at_the_others_is_not_of_one_backend() {
    let mut intervals = intervals(6);
    let mut end = |waiting: [usize; 3]| {
        let waiting = [1, 2, 3].into_iter().zip(waiting).map(|(real, count)| {
            if real != 1 {
                (0..12).for_each(|number| intervals.add(real, &record(number, 1), &estimate(10 * MS, 1)));
            }
            let mut state = backend(real);
            (0..count).for_each(|_| state.pending.add(client(0, 1), 1_500 * MS));
            state
        });
        let states: Vec<_> = waiting.collect();
        intervals.end(&states).iter().map(|seen| seen.strays).collect::<Vec<_>>()
    };
    assert_eq!(end([60, 50, 0]), [60, 50, 0]);
    assert_eq!(end([90, 10, 0]), [0, 10, 0], "it stands still");
}

/// At a low load all others are idle, so that what waits at one keeps everything else away from it.
#[test]
fn a_backend_that_gets_nothing_for_few_requests_that_wait_is_tried_by_one_at_a_time() {
    let mut intervals = intervals(2);
    let mut end = |answers: u32, ages_ms: &[u64]| {
        (0..answers).for_each(|number| intervals.add(2, &record(number, 2), &estimate(10 * MS, 2)));
        let mut state = backend(1);
        ages_ms.iter().for_each(|age_ms| state.pending.add(client(0, 1), age_ms * MS));
        intervals.end(&[state, backend(2)])[0].strays
    };
    (0..9).for_each(|_| assert_eq!(end(9, &[]), 0));
    assert_eq!(end(9, &[700]), 0, "it may still come");
    assert_eq!(end(9, &[1_500]), 1);
    assert_eq!(end(9, &[3_500, 900]), 0, "the one that has tried waits too");
    assert_eq!(end(9, &[4_000, 2_500]), 2);
    assert_eq!(end(9, &[40_000; 99]), 0, "many wait");
    for _ in 0..40 {
        end(0, &[]);
    }
    assert_eq!(end(0, &[1_500]), 0, "nobody answers");
}

#[test]
fn what_is_usual_elsewhere_counts_for_a_backend_that_has_never_answered() {
    let mut intervals = intervals(2);
    (0..2).for_each(|number| intervals.add(2, &record(number, 2), &estimate(10_000_000, 2)));
    let mut silent = backend(1);
    (0..5).for_each(|_| silent.pending.add(client(0, 1), 1 << 30));
    let seen = intervals.end(&[silent, backend(2)]);
    assert_eq!(seen[0].latency.map(|latency| latency.mean_ns), Some(1 << 30));
    assert_eq!(seen[1].latency.map(|latency| latency.mean_ns), Some(10_000_000));
}

#[test]
fn too_few_connections_make_no_latency_and_earlier_intervals_are_added() {
    let mut intervals = intervals(3);
    let mut end = |add: &[(u32, u64)]| {
        for (connection, ns) in add {
            intervals.add(1, &record(*connection, 2), &estimate(*ns, 2));
        }
        let seen = intervals.end(&[backend(1)]);
        seen[0].latency.map(|l| (l.mean_ns, l.connections, l.intervals))
    };
    assert_eq!(end(&[(1, 100), (2, 200)]), None);
    // The same connection again does not count as another.
    assert_eq!(end(&[(2, 400)]), None);
    // 100, (200 + 400) / 2 with twice as many responses, 900
    assert_eq!(end(&[(3, 900)]), Some((400, 3, 3)));
    // The first interval is no longer used.
    assert_eq!(end(&[]), None);
    // Enough by themselves: earlier intervals do not count.
    assert_eq!(end(&[(4, 10), (5, 20), (6, 30), (7, 40)]), Some((25, 4, 1)));
}

#[test]
fn what_is_not_to_be_believed_counts_as_requests_only() {
    let mut intervals = intervals(2);
    let doubted = Estimate { reason: Some(Reason::ThinkTime), ..estimate(5, 7) };
    for connection in 0..5 {
        intervals.add(1, &record(connection, 3), &doubted);
    }
    let seen = intervals.end(&[backend(1)]);
    assert_eq!((seen[0].latency, seen[0].requests), (None, 15));
    // Requests are those of one interval.
    assert_eq!(intervals.end(&[backend(1)])[0].requests, 0);
}

#[test]
fn a_single_response_counts_unless_the_client_waits() {
    let single = Estimate { reason: Some(Reason::TooFew), ..estimate(700, 1) };
    let mut intervals = intervals(2);
    let mut end = |change: fn(&mut dwell_engine::abi::dwell_epoch), estimate: &Estimate| {
        for connection in 0..3 {
            let mut record = record(connection, 1);
            change(&mut record.epoch);
            intervals.add(1, &record, estimate);
        }
        let seen = intervals.end(&[backend(1)]);
        // Nothing of this interval is used later.
        for _ in 0..3 {
            intervals.end(&[backend(1)]);
        }
        seen[0].latency.map(|latency| latency.mean_ns)
    };
    assert_eq!(end(|_| {}, &single), Some(700));
    assert_eq!(end(|epoch| epoch.slow = 1, &single), None);
    assert_eq!(end(|epoch| epoch.surplus = 1, &single), None);
    let causal = Estimate { truth: Truth::Causal, ..single };
    assert_eq!(end(|_| {}, &causal), None);
    let none = Estimate { batches: 0, response_ns: None, ..single };
    assert_eq!(end(|_| {}, &none), None);
}

#[test]
fn answers_as_short_as_a_tick_of_the_servers_clock_count() {
    let mut intervals = intervals(2);
    for reason in [Reason::CoarseClock, Reason::Unsure] {
        let made = Estimate { reason: Some(reason), ..estimate(700, 9) };
        (0..3).for_each(|connection| intervals.add(u32::from(reason == Reason::Unsure), &record(connection, 9), &made));
    }
    let seen = intervals.end(&[backend(0), backend(1)]);
    let means: Vec<_> = seen.iter().map(|stats| stats.latency.map(|latency| latency.mean_ns)).collect();
    assert_eq!(means, [Some(700), None]);
}

#[test]
fn backends_are_kept_apart_and_dropped() {
    let mut intervals = intervals(2);
    for connection in 0..2 {
        intervals.add(1, &record(connection, 2), &estimate(10, 2));
        intervals.add(2, &record(connection, 2), &estimate(20, 2));
    }
    let seen = intervals.end(&[backend(2), backend(3)]);
    let mean = |seen: &BackendStats| seen.latency.map(|latency| latency.mean_ns);
    assert_eq!((seen[0].real, mean(&seen[0])), (2, Some(20)));
    assert_eq!((seen[1].real, mean(&seen[1])), (3, None));
    // Backend 1 was not in the list.
    assert_eq!(mean(&intervals.end(&[backend(1)])[0]), None);
    let idle = BackendState { active: 0, ..backend(2) };
    assert_eq!(intervals.end(&[idle])[0].freshness(), 0.0);
}

#[test]
fn numbers_have_ranges() {
    let default = IntervalsConfig::default();
    let wrong = [
        ("min_connections", IntervalsConfig { min_connections: 1, ..default }),
        ("look_back", IntervalsConfig { look_back: Duration::ZERO, ..default }),
        ("most_responses", IntervalsConfig { most_responses: 0, ..default }),
    ];
    for (name, config) in wrong {
        assert_eq!(Intervals::new(config, SECOND).err().unwrap().name, name);
    }
    assert!(Intervals::new(default, SECOND).is_ok());
}
