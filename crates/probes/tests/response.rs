//! The same packets through the kernel (BPF_PROG_TEST_RUN) and through the
//! native core must leave the same epochs, mode by mode.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use dwell_engine::{
    observe::Observation,
    response::{Config, Estimator, Record, Tracker, Watch},
    rtt::Counter,
};
use dwell_probes::{
    Error,
    response::{Options, Probe},
};
use dwell_testbed::skip::lacks_root;
use etherparse::PacketBuilder;
use zerocopy::IntoBytes;

/// Epochs as text, and all counters.
type Run = (Vec<String>, Vec<u64>);

fn line(record: &Record) -> String {
    format!(
        "{} {} {} {:?} {:?} {:x?}",
        record.src,
        record.dst,
        record.protocol,
        record.key,
        record.id,
        record.epoch.as_bytes()
    )
}

fn watch(estimator: Estimator) -> Watch {
    Watch {
        config: Config { estimator, epoch_ns: 100_000_000, ..Config::default() },
        max_flows: 256,
        ..Watch::default()
    }
}

fn natively(watch: &Watch, packets: &[(u64, Vec<u8>)]) -> Run {
    let mut tracker = Tracker::new(watch);
    let mut lines = Vec::new();
    for (time_ns, data) in packets {
        let packet = Observation { time_ns: *time_ns, interface: 1, link: 1, data, wire_len: data.len() as u32 };
        tracker.observe(&packet, |record| lines.push(line(&record)));
    }
    let end_ns = packets.last().map_or(0, |(time_ns, _)| *time_ns);
    tracker.finish(end_ns, |record| lines.push(line(&record)));
    let counters = tracker.counters();
    (lines, Counter::ALL.map(|counter| counters.get(counter)).to_vec())
}

/// Also removes the packets that the kernel refuses.
fn in_the_kernel(watch: &Watch, packets: &mut Vec<(u64, Vec<u8>)>) -> Run {
    let mut probe = Probe::load(&Options { replay: true, ..Options::new(watch.clone()) }).unwrap();
    let mut lines = Vec::new();
    packets.retain(|(time_ns, data)| {
        let built = match probe.replay_packet(data, *time_ns) {
            Err(Error::Run(io)) if io.kind() == std::io::ErrorKind::InvalidInput => false,
            result => result.map(|()| true).unwrap(),
        };
        probe.drain(|record| lines.push(line(&record))).unwrap();
        built
    });
    probe.finish().unwrap();
    probe.drain(|record| lines.push(line(&record))).unwrap();
    let counters = probe.counters().unwrap();
    (lines, Counter::ALL.map(|counter| counters.get(counter)).to_vec())
}

/// A QUIC connection whose client takes another connection ID, then another port.
fn migrating() -> Vec<(u64, Vec<u8>)> {
    let frame = |port: u16, payload: &[u8]| {
        let mut bytes = [&[2; 12][..], &[8, 0]].concat();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(port, 443).write(&mut bytes, payload).unwrap();
        bytes
    };
    let begin = [&[0xc0, 0, 0, 0, 1, 8][..], &[1; 1194]].concat();
    let short = |port, cid| frame(port, &[&[0x40], &[cid; 8][..], &[3; 90]].concat());
    let mut packets = vec![(0, frame(5000, &begin))];
    packets.extend((1..=20).map(|at| (at, short(5000, 1 + (at > 10) as u8))));
    packets.extend((121..140).map(|at| (at, short(5001, 2))));
    let start_ns = 2_000_000_000_000_000_000;
    for (time_ns, _) in &mut packets {
        *time_ns = start_ns + *time_ns * 1_000_000;
    }
    packets
}

#[test]
fn root_kernel_and_native_leave_the_same_epochs() {
    if lacks_root() {
        return;
    }
    // They run one after another, because the clock is set between captures.
    let mut packets: Vec<_> =
        support::captures().iter().flat_map(|file| support::packets(file)).chain(migrating()).collect();
    for estimator in [Estimator::Auto, Estimator::Pirate, Estimator::Gap(300_000), Estimator::SynAck] {
        let watch = watch(estimator);
        let kernel = in_the_kernel(&watch, &mut packets);
        let native = natively(&watch, &packets);
        for (index, (native, kernel)) in native.0.iter().zip(&kernel.0).enumerate() {
            assert_eq!(native, kernel, "epoch {index}, {estimator:?}");
        }
        assert_eq!(native.0.len(), kernel.0.len(), "{estimator:?}");
        assert_eq!(native.1, kernel.1, "counters, {estimator:?}");
        let moved = "10.0.0.1:5001 10.0.0.2:443 UDP QuicCid";
        assert!(native.0.iter().any(|line| line.starts_with(moved)));
        assert!(native.0.len() > 20, "{} epochs compared", native.0.len());
    }
}
