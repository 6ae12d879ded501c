//! QUIC over links of known delay, by a client and a server that spin: what `dwell rtt` measures is the delay.

use std::{collections::BTreeMap, sync::atomic::AtomicBool, time::Duration};

use dwell_experiments::loads::quic::Quic;
use dwell_testbed::{
    Bytes, Emulation, Lab, LabOptions, Nanos, Role, Topology,
    harness::{eventually, links, skipped, spawn},
    workload::Ends,
};
use serde_json::Value;

use crate::support::programs;

const CLIENT_RTT: Nanos = Nanos(20_000_000);
const SERVER_RTT: Nanos = Nanos(5_000_000);
/// What hosts, the emulator and a busy machine may add to a delay; less than the two sides differ by.
const GENEROUS: Nanos = Nanos(12_000_000);

#[test]
fn root_quic_is_measured_by_its_handshake_and_spin_bit() {
    if skipped() {
        return;
    }
    let topology = Topology::line(CLIENT_RTT, SERVER_RTT);
    let lab = Lab::start(&LabOptions { name: "quic".to_owned(), topology, emulation: Emulation::Thread }).unwrap();
    let dwell = programs().dwell;
    let dwell = spawn(lab.vantage(), dwell.to_str().unwrap(), &["rtt", "-i", "server0", "--format", "jsonl"]);
    eventually("that dwell watches both directions", || links(dwell.id()) == 2);
    let quic = Quic { connections: 8, duration: Duration::from_millis(2_500), longest: Bytes(1_000), seed: 1 };
    quic.run(Ends::v4(&lab), &AtomicBool::new(false)).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");

    let mut round_trips: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for line in run.stdout.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        if object["type"] == "rtt.sample" {
            let [method, answerer] =
                ["/method", "/flow/dst"].map(|key| object.pointer(key).unwrap().as_str().unwrap().to_owned());
            round_trips.entry((method, answerer)).or_default().push(object["rtt_ns"].as_u64().unwrap());
        }
    }
    // The shortest one, as other work on this machine delays most of them.
    let shortest = |method: &str, role: Role, least: usize| {
        let key = (method.to_owned(), Lab::address_v4(role).to_string());
        let values = round_trips.get(&key).unwrap_or_else(|| panic!("no {key:?} in {round_trips:?}"));
        assert!(values.len() >= least, "{key:?}: {values:?}");
        Nanos(*values.iter().min().unwrap())
    };
    let near = |measured: Nanos, truth: Nanos| measured >= truth && measured < truth + GENEROUS;
    assert!(near(shortest("quic-handshake", Role::Server, 8), SERVER_RTT), "{round_trips:?}");
    // A share of connections does not spin, by chance; that none of eight does will not happen.
    assert!(near(shortest("quic-spin", Role::Client, 10), CLIENT_RTT), "{round_trips:?}");
    assert!(near(shortest("quic-spin", Role::Server, 10), SERVER_RTT), "{round_trips:?}");
    assert!(near(shortest("quic-spin-loop", Role::Server, 1), CLIENT_RTT + SERVER_RTT), "{round_trips:?}");
}
