//! Cost of simulations: time and memory. `cargo run --release -p dwell-sim --example sim_cost`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it prints its measurements and has nothing to clean up")]

use std::{fs, sync::atomic::AtomicBool, time::Duration};

use dwell_sim::{Job, Policy, Scenario, TraceConfig, simulate, trace::Trace};

fn main() {
    println!("policy            servers  connections    packets   run s  ns/packet  peak MB");
    for policy in Policy::ALL {
        run(&Scenario::default(), policy, 64);
    }
    let large = Scenario {
        trace: TraceConfig::Synthetic {
            clients: 1_000_000,
            connections: 10_000_000,
            packet_gap: Duration::from_nanos(12_800),
            connection_gap: Duration::from_millis(10),
            length_skew: 1.2,
            longest: 100,
            client_skew: 0.0,
            short_part: None,
            same_length: false,
        },
        ..Scenario::default()
    };
    if std::env::args().nth(1).as_deref() == Some("large") {
        run(&large, Policy::ZeroRtt, 1000);
        run(&large, Policy::LeastLoaded, 1000);
    }
}

fn run(scenario: &Scenario, policy: Policy, servers: usize) {
    let trace = Trace::load(scenario).unwrap();
    let job = Job { policy, servers, seed: 1, speedup: 1.0 };
    let outcome = simulate(scenario, &trace, &job, &AtomicBool::new(false));
    let outcome = outcome.unwrap().unwrap();
    let elapsed = outcome.elapsed.as_secs_f64();
    println!(
        "{policy:16}  {servers:7}  {:11}  {:9}  {elapsed:6.2}  {:9.0}  {:7}",
        outcome.all().connections,
        outcome.packets,
        elapsed * 1e9 / outcome.packets as f64,
        peak_mb()
    );
}

fn peak_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb: u64 = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    kb / 1000
}
