//! The same packets through the kernel (BPF_PROG_TEST_RUN) and through the
//! native core must give the same events, one by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use dwell_capture::Reader;
use dwell_engine::{
    measure::Event,
    observe::Observation,
    rtt::{Config, Counter, Tracker},
};
use dwell_probes::{
    Error, Hook, TcHookKind,
    rtt::{Options, Probe},
};

/// Times and bytes.
type Packets = Vec<(u64, Vec<u8>)>;
/// Events, and all counters.
type Run = (Vec<Event>, Vec<u64>);

/// Packets of an Ethernet capture, filled up with zeros to their length on the
/// wire: the kernel takes whole packets only.
fn packets(path: &Path) -> Packets {
    let mut packets = Vec::new();
    let Ok(mut reader) = Reader::open(path) else {
        return packets;
    };
    while let Ok(Some(packet)) = reader.next_packet() {
        let mut data = packet.data.to_vec();
        data.resize(packet.wire_len.max(14) as usize, 0);
        if packet.link.0 == 1 && data.len() < 60_000 {
            packets.push((packet.time_ns, data));
        }
    }
    packets
}

fn natively(config: &Config, packets: &[(u64, Vec<u8>)]) -> Run {
    let mut tracker = Tracker::new(config);
    let mut events = Vec::new();
    for (time_ns, data) in packets {
        let packet = Observation {
            time_ns: *time_ns,
            interface: 1,
            link: 1,
            data,
            wire_len: data.len() as u32,
        };
        tracker.observe(&packet, |event| events.push(event));
    }
    let counters = tracker.counters();
    (
        events,
        Counter::ALL
            .iter()
            .map(|counter| counters.get(*counter))
            .collect(),
    )
}

/// Also gives back the packets, without those that the kernel would not build.
fn in_the_kernel(config: &Config, mut packets: Packets) -> (Run, Packets) {
    let mut probe = Probe::load(&Options {
        config: config.clone(),
        report: true,
        aggregate: None,
        ingress: Hook::TcIngress,
        tc: TcHookKind::Auto,
        replay: true,
    })
    .unwrap();
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
    let counters = Counter::ALL
        .iter()
        .map(|counter| counters.get(*counter))
        .collect();
    ((events, counters), packets)
}

fn captures() -> Vec<PathBuf> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = crate_folder.join("../../../shared/captures");
    if !shared.exists() {
        eprintln!("the folder of third-party captures is not here: only our own are compared");
    }
    let mut files = Vec::new();
    for folder in [
        crate_folder.join("../../tests/captures"),
        shared.clone(),
        shared.join("nasty"),
    ] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

#[test]
fn root_kernel_and_native_give_the_same_samples() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: loading BPF programs needs root");
        return;
    }
    let files = captures();
    let config = Config {
        include_handshake: true,
        flow_events: true,
        max_flows: 64,
        ..Config::default()
    };
    let mut compared = 0;
    for file in files {
        let packets = packets(&file);
        if packets.is_empty() {
            continue;
        }
        let ((kernel, kernel_counters), packets) = in_the_kernel(&config, packets);
        let (native, native_counters) = natively(&config, &packets);
        for (index, (native, kernel)) in native.iter().zip(&kernel).enumerate() {
            assert_eq!(native, kernel, "event {index} of {}", file.display());
        }
        assert_eq!(native.len(), kernel.len(), "{}", file.display());
        assert_eq!(
            native_counters,
            kernel_counters,
            "counters of {}",
            file.display()
        );
        compared += native.len();
    }
    assert!(compared > 300, "{compared} events compared");
}
