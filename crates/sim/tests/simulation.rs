//! Whole runs: all requests are served, queues agree with theory, and policies differ as they should.

#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{
    collections::HashSet,
    num::NonZero,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::available_parallelism,
    time::Duration,
};

use dwell_sim::{
    Job, Outcome, Policy, Scenario, TraceConfig, run_all, simulate,
    study::{self, jobs},
    trace::Trace,
};

static NO_STOP: AtomicBool = AtomicBool::new(false);

/// A synthetic scenario of uniformly drawn clients.
fn scenario(clients: u32, connections: u64, longest: u32, packet_gap_ms: f64) -> Scenario {
    Scenario {
        trace: TraceConfig::Synthetic {
            clients,
            connections,
            packet_gap: Duration::from_secs_f64(packet_gap_ms / 1e3),
            connection_gap: Duration::from_millis(10),
            length_skew: 1.2,
            longest,
            client_skew: 0.0,
            short_part: None,
            same_length: false,
        },
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario, policy: Policy, servers: usize, seed: u64) -> Outcome {
    scenario.check().unwrap();
    let trace = Trace::load(scenario).unwrap();
    let job = Job { policy, servers, seed, speedup: 1.0 };
    simulate(scenario, &trace, &job, &NO_STOP).unwrap().unwrap()
}

/// An outcome without the time that the simulation took.
fn figures(outcome: &Outcome) -> String {
    let mut same = outcome.clone();
    same.elapsed = Duration::ZERO;
    format!("{same:?}")
}

#[test]
fn outcomes_depend_on_the_seed_and_not_on_threads() {
    let scenario =
        Scenario { policies: Policy::ALL.to_vec(), servers: vec![3, 8], runs: 2, ..scenario(300, 2000, 50, 1.0) };
    let trace = Trace::load(&scenario).unwrap();
    let jobs = jobs(&scenario);
    assert_eq!(jobs.len(), 2 * 8 * 2);
    let together = run_all(&scenario, &trace, &jobs, &NO_STOP, &()).unwrap();
    for (job, outcome) in jobs.iter().zip(&together) {
        let alone = simulate(&scenario, &trace, job, &NO_STOP).unwrap().unwrap();
        assert_eq!(figures(&alone), figures(outcome.as_ref().unwrap()), "{job:?}");
    }
    let [first, second] = [0, 2 * 8].map(|run| figures(together[run].as_ref().unwrap()));
    assert_ne!(first, second);
}

#[test]
fn all_requests_of_the_trace_are_served() {
    let scenario = scenario(500, 5000, 80, 0.5);
    let trace = Trace::load(&scenario).unwrap();
    let packets: u64 = trace.flows(9, 1.0).map(|flow| u64::from(flow.packets)).sum();
    let short = trace.flows(9, 1.0).filter(|flow| flow.packets <= scenario.short).count() as u64;
    for policy in Policy::ALL {
        let outcome = run(&scenario, policy, 8, 9);
        assert_eq!(outcome.packets, packets, "{policy}");
        assert_eq!(outcome.short.connections, short);
        assert_eq!(outcome.all().connections, 5000);
        assert_eq!((outcome.first_byte.count(), outcome.completion.count()), (5000, 5000));
        for counts in [outcome.short, outcome.long] {
            assert!(counts.used <= counts.tried && counts.tried <= counts.connections);
            assert!(counts.possible <= counts.connections);
        }
        // No connection is faster than the ideal one.
        assert!(outcome.first_byte.mean().unwrap() >= 1.0);
        // 2.5 ms per packet, over 8 servers.
        let seconds = outcome.time.as_secs_f64();
        let expected = packets as f64 * 0.0025 / 8.0 / seconds;
        let load = outcome.busy().unwrap();
        assert!((load / expected - 1.0).abs() < 0.1, "{policy}: {load} {expected}");
        assert!(outcome.present >= 0.95 * expected, "{}", outcome.present);
    }
}

/// Connections of one packet of 1 ms to one server: M/D/1. The ratio is (wait + service) / service, on average
/// 1 + ρ / (2 (1 - ρ)). With few clients nearly all connections use 0-RTT.
#[test]
fn waits_agree_with_theory() {
    for load in [0.3, 0.6, 0.8] {
        let mut scenario = scenario(3, 300_000, 1, 1.0 / load);
        scenario.network.one_way = [Duration::ZERO; 2];
        scenario.server.service = [Duration::from_millis(1); 2];
        scenario.interval = Duration::from_millis(10);
        let outcome = run(&scenario, Policy::SessionAffinity, 1, 1);
        assert!(outcome.all().used > 299_900, "{:?}", outcome.all());
        let mean = outcome.first_byte.mean().unwrap();
        let expected = 1.0 + load / (2.0 * (1.0 - load));
        assert!((mean / expected - 1.0).abs() < 0.03, "{mean} {expected}");
        assert!((outcome.busy().unwrap() - load).abs() < 0.01);
        // A request waits for the work that it meets, and so the mean work is the mean wait, in units of 1 ms.
        let work_ms = outcome.load_ms().unwrap();
        assert!((work_ms / (expected - 1.0) - 1.0).abs() < 0.03, "{work_ms} {expected}");
        assert_eq!(outcome.imbalance(), Some(1.0));
        assert!((outcome.present / (load * expected) - 1.0).abs() < 0.03);
    }
}

#[test]
fn without_waiting_a_handshake_costs_its_round_trips() {
    let mut scenario = scenario(10_000, 1000, 1, 1000.0);
    scenario.network.one_way = [Duration::from_millis(10); 2];
    scenario.server.service = [Duration::from_millis(5); 2];
    for (policy, round_trips) in [(Policy::ZeroRttOff, 2.0), (Policy::LeastLoaded, 2.0), (Policy::Maglev, 3.0)] {
        let median = run(&scenario, policy, 16, 1).first_byte.quantile(0.5).unwrap();
        let expected = (20.0 * round_trips + 5.0) / 25.0;
        assert!((median / expected - 1.0).abs() < 0.002, "{policy}: {median}");
    }
}

#[test]
fn one_server_gives_all_possible_0_rtt_and_random_selection_does_not() {
    let scenario = scenario(200, 5000, 5, 20.0);
    let of = |policy, servers| run(&scenario, policy, servers, 4).all();
    for (policy, servers) in [
        (Policy::ZeroRtt, 1),
        (Policy::LeastLoaded, 1),
        (Policy::PowerOfTwo, 1),
        (Policy::SessionAffinity, 16),
        (Policy::ZeroRtt, 16),
    ] {
        let counts = of(policy, servers);
        assert_eq!((counts.used, counts.connections - counts.possible), (counts.tried, 200), "{policy}");
        // A few second connections start before the first one has given their client a ticket.
        assert!((0.998..1.0).contains(&counts.used_share().unwrap()), "{policy}: {counts:?}");
    }
    assert_eq!(of(Policy::ZeroRttOff, 16).used, 0);
    let random = of(Policy::PowerOfTwo, 16).used_share().unwrap();
    assert!((random - 1.0 / 16.0).abs() < 0.02, "{random}");
}

/// With k tickets, k / (k + 1) of connections use 0-RTT if clients do not wait for new ones.
#[test]
fn clients_that_close_early_run_out_of_tickets() {
    for tickets in [1, 2, 4] {
        let mut scenario = scenario(50, 20_000, 1, 20.0);
        scenario.network.closes_early = true;
        scenario.server.tickets = tickets;
        let part = run(&scenario, Policy::SessionAffinity, 4, 1).all().used_share().unwrap();
        let expected = f64::from(tickets) / f64::from(tickets + 1);
        assert!((part - expected).abs() < 0.01, "{tickets}: {part}");
    }
}

/// Half of all packets are from one client, more than its server can serve.
#[test]
fn a_heavy_client_is_diverted_while_its_server_is_overloaded() {
    let mut scenario = scenario(1000, 20_000, 20, 0.5);
    if let TraceConfig::Synthetic { client_skew, .. } = &mut scenario.trace {
        *client_skew = 1.5;
    }
    let zero = run(&scenario, Policy::ZeroRtt, 16, 2);
    let sticky = run(&scenario, Policy::SessionAffinity, 16, 2);
    assert_eq!(sticky.diverted, 0);
    assert!(zero.diverted > 1000, "{}", zero.diverted);
    assert!(zero.present < 0.1 * sticky.present, "{} {}", zero.present, sticky.present);
    assert!(zero.imbalance() < sticky.imbalance());
    assert!(zero.all().used_share() < sticky.all().used_share());
    let p90 = |outcome: &Outcome| outcome.first_byte.quantile(0.9).unwrap();
    assert!(p90(&zero) < 0.2 * p90(&sticky), "{} {}", p90(&zero), p90(&sticky));
}

#[test]
fn least_loaded_has_the_least_imbalance() {
    let scenario = scenario(2000, 20_000, 50, 0.4);
    let imbalance = |policy| run(&scenario, policy, 16, 3).imbalance().unwrap();
    let least = imbalance(Policy::LeastLoaded);
    assert!(least < imbalance(Policy::PowerOfTwo));
    assert!(imbalance(Policy::PowerOfTwo) < imbalance(Policy::SessionAffinity));
    assert!(least < imbalance(Policy::Maglev));
}

#[test]
fn least_loaded_accounts_for_handshakes() {
    let scenario = Scenario {
        server: dwell_sim::Server {
            handshake: Duration::from_millis(30),
            service: [0, 2].map(Duration::from_millis),
            ..dwell_sim::Server::default()
        },
        ..scenario(2000, 20_000, 3, 2.0)
    };
    let present = |policy| run(&scenario, policy, 16, 3).present;
    let (least, two) = (present(Policy::LeastLoaded), present(Policy::PowerOfTwo));
    assert!(least < 0.8 * two, "{least} {two}");
}

#[test]
fn a_smaller_heavy_share_means_fewer_detours() {
    let with_share = |heavy_share| Scenario {
        zero_rtt: dwell_sim::ZeroRtt { heavy_share, alpha: 0.1, ..dwell_sim::ZeroRtt::default() },
        ..scenario(2000, 20_000, 100, 0.4)
    };
    let diverted = |heavy_share| run(&with_share(heavy_share), Policy::ZeroRtt, 16, 3).diverted;
    let (all, most, few) = (diverted(0.0), diverted(1.0), diverted(0.2));
    assert_eq!(all, most, "a share of 1 counts all heavy connections");
    assert!(few > 0 && few < all / 2, "{few} {all}");
}

#[test]
fn the_papers_trace_has_mostly_short_connections_and_no_longest() {
    let scenario = Scenario::default();
    let trace = Trace::load(&scenario).unwrap();
    let lengths: Vec<u32> = trace.flows(1, 1.0).map(|flow| flow.packets).collect();
    let share = |least: u32, most: u32| {
        lengths.iter().filter(|length| (least..=most).contains(length)).count() as f64 / lengths.len() as f64
    };
    // 1 to n to the power of -2.2, over zeta(2.2), which is 1.4905.
    assert!((share(1, scenario.short) - 0.928).abs() < 0.005, "{}", share(1, scenario.short));
    assert!((share(1, 1) - 0.671).abs() < 0.005, "{}", share(1, 1));
    assert!(share(1001, u32::MAX) > 0.0);
}

#[test]
fn connections_of_a_client_may_have_one_length() {
    let mut scenario = scenario(50, 2000, 100, 1.0);
    let lengths = |scenario: &Scenario| {
        let trace = Trace::load(scenario).unwrap();
        trace.flows(3, 1.0).map(|flow| (flow.client, flow.packets)).collect::<HashSet<_>>()
    };
    assert!(lengths(&scenario).len() > 500);
    if let TraceConfig::Synthetic { same_length, .. } = &mut scenario.trace {
        *same_length = true;
    }
    assert_eq!(lengths(&scenario).len(), 50);
}

/// In the paper's Figure 9b, the load of a server stays the same because all packets come closer together.
#[test]
fn a_faster_trace_has_all_packets_closer_together() {
    let trace = Trace::load(&scenario(50, 100, 10, 1.0)).unwrap();
    for (slow, fast) in trace.flows(1, 1.0).zip(trace.flows(1, 4.0)) {
        assert_eq!((slow.packets, slow.start_ns / 4, slow.gap_ns / 4.0), (fast.packets, fast.start_ns, fast.gap_ns));
    }
}

#[test]
fn proportional_load_does_not_depend_on_the_number_of_servers() {
    let scenario = Scenario {
        policies: vec![Policy::LeastLoaded],
        servers: vec![4, 8, 16],
        load_of_servers: Some(8),
        ..scenario(2000, 40_000, 20, 1.0)
    };
    let trace = Trace::load(&scenario).unwrap();
    let summaries = study::run(&scenario, &trace, &NO_STOP, &()).unwrap();
    let loads: Vec<f64> = summaries.iter().map(|summary| summary.busy.unwrap().mean).collect();
    for load in &loads {
        assert!((load / 0.3125 - 1.0).abs() < 0.1, "{loads:?}");
    }
}

#[test]
fn a_stop_leaves_results_of_all_policies() {
    let scenario =
        Scenario { policies: Policy::ALL.to_vec(), servers: vec![2, 3], runs: 3, ..scenario(100, 500, 5, 1.0) };
    let trace = Trace::load(&scenario).unwrap();
    let (stop, completed) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |runs: u64| {
        if completed.fetch_add(runs, Ordering::Relaxed) + runs == 2 * 8 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let summaries = study::run(&scenario, &trace, &stop, &progress).unwrap();
    let runs: Vec<usize> = summaries.iter().map(|summary| summary.runs).collect();
    // Each thread may be in the midst of one more.
    assert!(
        runs.iter().filter(|runs| **runs == 0).count() <= NonZero::get(available_parallelism().unwrap()),
        "{runs:?}"
    );
    assert_eq!(runs.len(), 2 * 8);
    assert!(summaries.iter().all(|summary| summary.requested == 3));
}

#[test]
fn a_stop_ends_runs_without_an_outcome() {
    let scenario = scenario(100, 1_000_000_000, 5, 0.1);
    let trace = Trace::load(&scenario).unwrap();
    let stop = AtomicBool::new(true);
    let summaries = study::run(&scenario, &trace, &stop, &()).unwrap();
    assert!(summaries.iter().all(|summary| summary.runs == 0 && summary.requested == 1));
    let job = jobs(&scenario)[0];
    assert!(simulate(&scenario, &trace, &job, &stop).unwrap().is_none());
}
