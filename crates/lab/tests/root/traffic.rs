//! Workloads know the true answer, and the demonstration shows it.

use std::{sync::atomic::AtomicBool, time::Duration};

use dwell_lab::{
    BitsPerSecond, Bytes, Emulation, Error, Lab, LabOptions, Nanos, Result, Side, Topology,
    demo::{DemoOptions, Scope, demo},
    workload::{Bulk, Dns, Ends, PingPong, Quic, RoundTrips},
};

use crate::support::{Script, skipped};

/// Programs that are not there are no failure; anything else is.
fn unless_missing<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Err(error @ Error::Host { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        other => Some(other.unwrap()),
    }
}

#[test]
fn root_no_workload_is_faster_than_the_network() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::from_millis(8), Nanos::from_millis(4));
    let rtt = topology.end_to_end_rtt();
    let lab = Lab::start(&LabOptions { name: "traffic".to_owned(), topology, emulation: Emulation::Thread }).unwrap();
    let stop = AtomicBool::new(false);
    let check = |name: &str, trips: RoundTrips, at_least: usize| {
        assert!(trips.0.len() >= at_least, "{name}: {} round trips", trips.0.len());
        assert!(trips.quantile(0.0).unwrap() >= rtt, "{name}: {:?}", trips.quantile(0.0));
        assert!(trips.quantile(0.5).unwrap() < Nanos(rtt.0 * 10), "{name}: {:?}", trips.quantile(0.5));
    };
    for ends in [Ends::v4(&lab), Ends::v6(&lab)] {
        let ping_pong = PingPong { duration: Duration::from_millis(500), longest: Bytes(3_000), seed: 3 };
        check("TCP", ping_pong.run(ends, &stop).unwrap(), 5);
        let quic = Quic { connections: 3, duration: Duration::from_millis(500), longest: Bytes(3_000), seed: 3 };
        let quic = quic.run(ends, &stop).unwrap();
        check("QUIC handshakes", quic.handshakes, 3);
        check("QUIC", quic.round_trips, 15);
        if let Some(trips) = unless_missing(Dns { queries: 10, seed: 3 }.run(ends, &stop)) {
            check("DNS", trips, 10);
        }
        let bulk = Bulk { seconds: 1, rate: BitsPerSecond::new(5_000_000), download: true, congestion: None };
        if let Some(bulk) = unless_missing(bulk.run(ends, &stop)) {
            assert!((100_000..2_000_000).contains(&bulk.received.0), "{bulk:?}");
        }
    }
}

#[test]
fn root_a_workload_ends_when_it_is_told_to() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::ZERO, Nanos::ZERO);
    let lab = Lab::start(&LabOptions { name: "told".to_owned(), topology, emulation: Emulation::None }).unwrap();
    let stop = AtomicBool::new(true);
    let duration = Duration::from_secs(60);
    let tcp = PingPong { duration, longest: Bytes(10), seed: 1 }.run(Ends::v4(&lab), &stop);
    assert!(matches!(tcp, Err(Error::Interrupted)), "{tcp:?}");
    let quic = Quic { connections: 1, duration, longest: Bytes(10), seed: 1 }.run(Ends::v4(&lab), &stop);
    assert!(matches!(quic, Err(Error::Interrupted)), "{quic:?}");
    let bulk = Bulk { seconds: 60, rate: None, download: false, congestion: None }.run(Ends::v4(&lab), &stop);
    assert!(matches!(bulk, Err(Error::Interrupted | Error::Host { .. })), "{bulk:?}");
}

#[test]
fn root_the_demonstration_puts_answers_beside_the_truth() {
    if skipped() {
        return;
    }
    let sample = |dst: &str, method: &str, ms: u32| {
        let json = format!(r#"{{"type":"rtt","dst":"{dst}","method":"{method}","rtt_ns":{ms}000000}}"#);
        format!("echo '{json}'\n")
    };
    let server = sample("10.77.4.2", "tcp-seq", 6);
    let client = sample("fd00:77:1::1", "icmpv6", 21);
    let both = sample("10.77.4.2", "quic-spin-loop", 25);
    let wait = "[ \"$*\" = 'rtt -i server0 --format jsonl' ] || exit 2\nexec sleep 1000";
    let watcher = Script::new("demo", &format!("{server}{client}{both}echo rubbish\n{wait}"));
    let (mut results, mut progress) = (Vec::new(), Vec::new());
    let report = demo(&DemoOptions::new(watcher.path()), &mut results, &mut progress).unwrap();
    let text = String::from_utf8(results).unwrap();

    let scopes: Vec<_> = report.rows.iter().map(|row| (row.method.as_str(), row.scope)).collect();
    let expected = [
        ("icmpv6", Scope::Side(Side::Client)),
        ("quic-spin-loop", Scope::EndToEnd),
        ("tcp-seq", Scope::Side(Side::Server)),
    ];
    assert_eq!(scopes, expected);
    assert_eq!(report.unreadable, 1);
    assert!(report.rows[0].truth >= Nanos::from_millis(20) && report.rows[0].truth < Nanos::from_millis(21));
    assert!(report.rows[1].truth >= Nanos::from_millis(25), "the truth of the whole way is both sides'");
    assert!(report.emulator.directions.iter().all(|direction| direction.delivered > 300), "{}", report.emulator);
    for line in ["quic-spin-loop   both", "emulator error p50", "unreadable lines: 1"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn root_a_watcher_that_fails_ends_the_demonstration_with_its_words() {
    if skipped() {
        return;
    }
    let watcher = Script::new("failing", "echo this kernel has no such hook >&2; exit 3");
    let error = demo(&DemoOptions::new(watcher.path()), &mut std::io::sink(), &mut std::io::sink()).unwrap_err();
    assert!(error.to_string().contains("no such hook"), "{error}");
}
