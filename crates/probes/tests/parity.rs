//! The same packets through the kernel (BPF_PROG_TEST_RUN) and through the
//! native core must give the same events, one by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::ErrorKind;

use dwell_engine::{
    measure::Event,
    observe::Observation,
    rtt::{Config, Counter, Tracker},
};
use dwell_probes::{
    Error,
    rtt::{Options, Probe},
};
use dwell_testbed::skip::lacks_root;

/// Events, and all counters.
type Run = (Vec<Event>, Vec<u64>);

fn natively(config: &Config, packets: &[(u64, Vec<u8>)]) -> Run {
    let mut tracker = Tracker::new(config);
    let mut events = Vec::new();
    for (time_ns, data) in packets {
        let packet = Observation { time_ns: *time_ns, interface: 1, link: 1, data, wire_len: data.len() as u32 };
        tracker.observe(&packet, |event| events.push(event));
    }
    let counters = tracker.counters();
    (events, Counter::ALL.iter().map(|counter| counters.get(*counter)).collect())
}

/// Also returns the packets without those that the kernel refuses.
fn in_the_kernel(config: &Config, mut packets: support::Packets) -> (Run, support::Packets) {
    let mut probe = Probe::load(&Options { replay: true, ..Options::new(config.clone()) }).unwrap();
    let mut events = Vec::new();
    packets.retain(|(time_ns, data)| {
        let built = match probe.replay_packet(data, *time_ns) {
            Err(Error::Run(io)) if io.kind() == ErrorKind::InvalidInput => false,
            result => result.map(|()| true).unwrap(),
        };
        probe.drain(|event| events.push(event)).unwrap();
        built
    });
    let counters = probe.counters().unwrap();
    let counters = Counter::ALL.iter().map(|counter| counters.get(*counter)).collect();
    ((events, counters), packets)
}

/// Compares them over all captures, with the matchers of TCP that are given or those that each flow turns out to need.
fn compare(tcp_auto: bool) {
    if lacks_root() {
        return;
    }
    let config = &Config { include_handshake: true, flow_events: true, max_flows: 64, tcp_auto, ..Config::default() };
    let mut compared = 0;
    for file in support::captures() {
        let packets = support::packets(&file);
        if packets.is_empty() {
            continue;
        }
        let ((kernel, kernel_counters), packets) = in_the_kernel(config, packets);
        let (native, native_counters) = natively(config, &packets);
        for (index, (native, kernel)) in native.iter().zip(&kernel).enumerate() {
            assert_eq!(native, kernel, "event {index} of {}", file.display());
        }
        assert_eq!(native.len(), kernel.len(), "{}", file.display());
        assert_eq!(native_counters, kernel_counters, "counters of {}", file.display());
        compared += native.len();
    }
    assert!(compared > 150, "{compared} events compared");
}

#[test]
fn root_kernel_and_native_give_the_same_samples() {
    compare(false);
}

#[test]
fn root_kernel_and_native_give_the_same_samples_by_the_matchers_that_flows_need() {
    compare(true);
}
