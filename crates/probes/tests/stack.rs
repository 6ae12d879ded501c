//! Profiles that lack hooks, on real traffic over loopback.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
};

use dwell_engine::layers::{Config, Counters, Layer, Segment, SegmentFigures};
use dwell_probes::stack::{Family, Hook, Options, PROFILES, Probe, Profile, missing, own_namespace};
use dwell_testbed::skip::lacks_root;
use nix::sched::{CloneFlags, unshare};

/// Measures 100 messages with ten sampled bytes each, in a network namespace of their own.
fn stamp_loopback(profile: &'static Profile) -> (Vec<SegmentFigures>, Counters, Vec<&'static Hook>) {
    stamp(profile, 64, &["up"], |client, server| {
        for _ in 0..100 {
            client.write_all(&[1; 640]).unwrap();
            server.read_exact(&mut [0; 640]).unwrap();
        }
    })
}

/// Measures a connection over IPv6 in a network namespace of its own, with these settings of loopback.
fn stamp(
    profile: &'static Profile,
    sample_bytes: u32,
    loopback: &[&str],
    traffic: impl FnOnce(&mut TcpStream, &mut TcpStream) + Send,
) -> (Vec<SegmentFigures>, Counters, Vec<&'static Hook>) {
    let body = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let set = Command::new("ip").args(["link", "set", "lo"]).args(loopback).status();
        assert!(set.unwrap().success());
        let config = Config { sample_bytes, namespace: Some(own_namespace().unwrap()), ..Config::default() };
        let mut probe = Probe::load(&Options::new(config, profile)).unwrap();
        probe.attach().unwrap();
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        traffic(&mut client, &mut server);
        probe.detach();
        let taken = probe.take().unwrap();
        (taken, probe.counters().unwrap(), probe.hooks().to_vec())
    };
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn count(taken: &[SegmentFigures], segment: Segment) -> u64 {
    taken[segment as usize].histogram.count()
}

fn sum_ns(taken: &[SegmentFigures], segment: Segment) -> u128 {
    taken[segment as usize].histogram.sum_ns()
}

/// This is the case on kernels that have no hook where applications write.
#[test]
fn root_without_the_sockets_hook_the_total_starts_at_tcp() {
    if lacks_root() {
        return;
    }
    static LATER: &Profile = &Profile {
        name: "later",
        families: &[Family { name: "tracepoint", hooks: PROFILES[1].families[0].hooks.split_at(1).1 }],
    };
    let (taken, counters, hooks) = stamp_loopback(LATER);
    assert_eq!(missing(&hooks), [(Segment::SocketTcp, Layer::TxSocket)]);
    assert_eq!(count(&taken, Segment::SocketTcp), 0);
    // A kernel may miss an event now and then.
    assert!((900..=1000).contains(&count(&taken, Segment::TxTotal)));
    assert_eq!(
        sum_ns(&taken, Segment::TxTotal),
        sum_ns(&taken, Segment::TcpIp) + sum_ns(&taken, Segment::IpDriver) + sum_ns(&taken, Segment::TxUnexplained)
    );
    assert_eq!(counters.missed(Layer::TxSocket), 0);
}

/// On loopback both directions share one row. The time between driver and IP is known, and that between IP and the
/// application is unexplained.
#[test]
fn root_without_the_hook_of_tcp_its_time_is_unexplained() {
    if lacks_root() {
        return;
    }
    static WITHOUT: &Profile = &Profile {
        name: "without",
        families: &[Family {
            name: "tracepoint",
            hooks: &[
                PROFILES[1].families[0].hooks[6],
                PROFILES[1].families[0].hooks[9],
                PROFILES[1].families[0].hooks[12],
            ],
        }],
    };
    let (taken, _, hooks) = stamp_loopback(WITHOUT);
    let layers: Vec<_> = hooks.iter().map(|hook| hook.layer).collect();
    assert_eq!(layers, [Layer::RxDriver, Layer::RxIp, Layer::RxSocket]);
    assert!((900..=1000).contains(&count(&taken, Segment::RxTotal)));
    assert_eq!(count(&taken, Segment::TcpSocket), 0);
    assert!(sum_ns(&taken, Segment::RxUnexplained) > 0);
    assert_eq!(
        sum_ns(&taken, Segment::RxTotal),
        sum_ns(&taken, Segment::DriverIp) + sum_ns(&taken, Segment::RxUnexplained)
    );
}

/// IPv6 writes the length of large packets into an option, which is present as long as the driver can segment them.
#[test]
fn root_packets_beyond_64_kib_are_stamped_at_ip() {
    if lacks_root() {
        return;
    }
    const BYTES: usize = 4 << 20;
    let loopback = ["up", "gso_max_size", "200000"];
    let (taken, counters, _) = stamp(&PROFILES[0], 4096, &loopback, |client, server| {
        thread::scope(|scope| {
            scope.spawn(|| server.read_exact(&mut vec![0; BYTES]).unwrap());
            client.write_all(&vec![1; BYTES]).unwrap();
        });
    });
    assert!((900..=1024).contains(&count(&taken, Segment::TxTotal)));
    for layer in [Layer::TxIp, Layer::TxQueue, Layer::RxDriver] {
        assert!(counters.missed(layer) < 100, "{counters:?}");
    }
}

/// On kernels that have no hook of IP for all namespaces but those of devices.
#[test]
fn root_in_all_namespaces_ip_is_stamped_at_the_device_where_functions_cannot_be_watched() {
    if lacks_root() {
        return;
    }
    let body = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let port = Some(listener.local_addr().unwrap().port());
        let config = Config { sample_bytes: 64, port, ..Config::default() };
        let mut probe = Probe::load(&Options::new(config, &PROFILES[1])).unwrap();
        probe.attach().unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..100 {
            client.write_all(&[1; 640]).unwrap();
            server.read_exact(&mut [0; 640]).unwrap();
        }
        probe.detach();
        (probe.take().unwrap(), probe.hooks().to_vec())
    };
    let run = || thread::scope(|scope| scope.spawn(body).join());
    let (taken, hooks) = run().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(missing(&hooks), []);
    assert!(hooks.iter().any(|hook| hook.layer == Layer::TxIp && hook.name == "tp_btf/net_dev_queue"));
    for segment in [Segment::SocketTcp, Segment::TcpIp, Segment::IpDriver, Segment::DriverIp, Segment::IpTcp] {
        assert!((900..=1000).contains(&count(&taken, segment)), "{segment:?}: {}", count(&taken, segment));
    }
    // The stamps of IP and of the queue are of one program.
    assert!(sum_ns(&taken, Segment::Queueing) <= sum_ns(&taken, Segment::IpDriver));
}
