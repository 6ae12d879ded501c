//! What somebody who forges latencies can make of weights, through all of the policy.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    steer::{
        BackendState, Intervals, IntervalsConfig, LatencyConfig, LatencySteering, Pending, Policy, Responses, Share,
    },
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;
const BACKENDS: u32 = 4;

fn client(network: u32, host: u32) -> IpAddr {
    Ipv4Addr::from(198 << 24 | 18 << 16 | network << 8 | host).into()
}

/// Adds a connection to a backend with two responses.
fn answer(intervals: &mut Intervals, real: u32, client: IpAddr, port: u16, mean_ns: u64) {
    let client = Endpoint { address: client, port };
    let vip = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 80 };
    let responses = Responses { count: 2, mean_ns, singles: Vec::new() };
    intervals.record(real, (client, vip, Protocol(6)), 2, Some(responses));
}

/// What an attacker does with each backend: the latency that his connections there pretend to have, in milliseconds.
type Attack = [Option<u64>; BACKENDS as usize];

/// Returns the greatest part by which a weight leaves what is configured within 20 s. The clients of each backend are of
/// 100 networks, and wait for 10 ms on average; the attacker has 1,000 addresses in `networks` others, and asks at each
/// backend from all of them, each second.
fn deviation(attack: Attack, networks: u32, seed: u64) -> f64 {
    let mut random = StdRng::seed_from_u64(seed);
    let mut intervals = Intervals::new(IntervalsConfig::default(), SECOND).unwrap();
    let mut policy = LatencySteering::new(LatencyConfig::default(), SECOND).unwrap();
    let mut shares = vec![Share::initial(1.0); BACKENDS as usize];
    let mut most = 0.0_f64;
    for _ in 0..20 {
        for (real, forged_ms) in (1..).zip(attack) {
            for (network, host) in (0..100).flat_map(|network| [(network, 1), (network, 2)]) {
                let waits_ns = -(1.0 - random.random::<f64>()).ln() * 10.0 * MS as f64;
                answer(&mut intervals, real, client(network, host), 1000, waits_ns as u64);
            }
            for at in (0..1000).filter(|_| forged_ms.is_some()) {
                let client = client(200 + at % networks, at / networks % 250);
                answer(&mut intervals, real, client, 2000 + at as u16, forged_ms.unwrap_or(0) * MS);
            }
        }
        let state =
            |real| BackendState { real, configured: 1.0, active: 10, pending: Pending::default(), is_usable: true };
        let seen = intervals.end(&(1..=BACKENDS).map(state).collect::<Vec<_>>());
        shares = policy.step(&seen, &shares);
        most = shares.iter().fold(most, |most, share| most.max((share.weight - 1.0).abs()));
    }
    most
}

#[test]
fn an_attacker_with_a_thousand_addresses_moves_no_weight_by_a_tenth() {
    let attacks: [(&str, Attack); 4] = [
        ("one seems slow", [Some(60_000), None, None, None]),
        ("one seems fast", [Some(0), None, None, None]),
        ("one seems slow, and another one fast", [Some(60_000), Some(0), None, None]),
        ("one seems slow, and all others fast", [Some(60_000), Some(0), Some(0), Some(0)]),
    ];
    let mut failed = Vec::new();
    for (name, attack) in attacks {
        for networks in [1, 10] {
            let deviations = [1, 2].map(|seed| deviation(attack, networks, seed));
            eprintln!("{name}, {networks} networks: {deviations:.3?}");
            if deviations.iter().any(|deviation| *deviation > 0.1) {
                failed.push((name, networks, deviations));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:.3?}");
}
