//! Packets of the same flows on two CPUs at once, while the table is too small for them: each packet is in an epoch, or
//! counted as left out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{
    response::{Config, Estimator, Key, Watch},
    rtt::Counter,
};
use dwell_probes::{
    Interface,
    response::{Options, Probe},
};
use dwell_testbed::skip::lacks_root;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};

/// Sends on one CPU for a while, to ports of its own and to shared ports.
fn send(cpu: usize, sockets: &[UdpSocket]) -> u64 {
    let mut cpus = CpuSet::new();
    // With a single CPU, both senders share it.
    if cpus.set(cpu).is_ok() {
        let _ = sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus);
    }
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_millis(700) {
        for (socket, port) in sockets.iter().zip(7000..) {
            sent += u64::from(socket.send_to(&[0; 300], ("127.0.0.1", port)).is_ok());
        }
    }
    sent
}

/// The packets that were sent, those that epochs report, and those that were left out, by reason.
fn run(max_flows: u32) -> (u64, u64, BTreeMap<&'static str, u64>) {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let mut probe = Probe::load(&Options::new(Watch {
        config: Config { estimator: Estimator::Pirate, epoch_ns: 10_000_000, ..Config::default() },
        key: Key::FiveTuple,
        max_flows,
        idle_timeout_ns: 1_000_000,
        ..Watch::default()
    }))
    .unwrap();
    probe.attach(&Interface::find("lo").unwrap()).unwrap();
    // Nobody receives the datagrams: loopback returns ICMP errors, which have no 5-tuple.
    let sockets: Vec<_> = (0..12).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut reported = 0;
    let sent = thread::scope(|scope| {
        let senders = [0, 1].map(|cpu| {
            let sockets = &sockets;
            scope.spawn(move || send(cpu, sockets))
        });
        while senders.iter().any(|sender| !sender.is_finished()) {
            probe.sweep().unwrap();
            probe.drain(|record| reported += u64::from(record.epoch.packets)).unwrap();
        }
        senders.map(|sender| sender.join().unwrap()).iter().sum()
    });
    probe.detach();
    probe.finish().unwrap();
    probe.drain(|record| reported += u64::from(record.epoch.packets)).unwrap();
    let counters = probe.counters().unwrap();
    assert_eq!(counters.get(Counter::EventsLost), 0);
    let left_out = [Counter::OtherProtocol, Counter::Server, Counter::Untracked, Counter::Contended];
    let left_out = left_out.map(|counter| (counter.name(), counters.get(counter)));
    // The first epoch of a flow is not reported if it has only one or two packets.
    let known = reported + left_out.iter().map(|(_, count)| count).sum::<u64>();
    let all = counters.get(Counter::Packets);
    let brief = 2 * counters.get(Counter::FlowsOpened);
    assert!((all.saturating_sub(brief)..=all).contains(&known), "{known} of {all}, {brief}: {left_out:?}");
    (sent, reported, left_out.into())
}

#[test]
fn root_no_packet_is_lost_between_cpus() {
    if lacks_root() {
        return;
    }
    // A thread of its own has a network namespace of its own.
    let runs = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        [run(4), run(1000)]
    });
    for (sent, reported, left_out) in runs.join().unwrap() {
        assert!(sent > 0 && reported > 0, "{sent} {reported} {left_out:?}");
        eprintln!("{sent} sent, {reported} reported, {left_out:?}");
    }
}
