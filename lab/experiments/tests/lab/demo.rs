//! The demonstration, and the QUIC workload that only it has.

use std::{sync::atomic::AtomicBool, time::Duration};

use dwell_experiments::{
    demo::{DemoOptions, Scope, demo},
    loads::quic::Quic,
};
use dwell_testbed::{
    Bytes, Emulation, Error, Lab, LabOptions, Nanos, Side, Topology, harness::skipped, workload::Ends,
};

use crate::scripts::Script;

#[test]
fn root_the_demonstration_puts_answers_beside_the_truth() {
    if skipped() {
        return;
    }
    let sample = |dst: &str, method: &str, ms: u32| {
        let json =
            format!(r#"{{"type":"rtt.sample","flow":{{"dst":"{dst}"}},"method":"{method}","rtt_ns":{ms}000000}}"#);
        format!("echo '{json}'\n")
    };
    let server = sample("10.77.4.2", "quic-spin", 6);
    let client = sample("fd00:77:1::1", "icmpv6", 21);
    let both = sample("10.77.4.2", "quic-spin-loop", 25);
    let wait = "case \"$*\" in 'rtt -i server0 --format jsonl --methods '*) exec sleep 1000;; esac\nexit 2";
    let watcher = Script::new("demo", &format!("{server}{client}{both}echo rubbish\n{wait}"));
    let (mut results, mut progress) = (Vec::new(), Vec::new());
    let report = demo(&DemoOptions::new(watcher.path()), &mut results, &mut progress).unwrap();
    let text = String::from_utf8(results).unwrap();

    let scopes: Vec<_> = report.rows.iter().map(|row| (row.method.as_str(), row.scope)).collect();
    let expected = [
        ("icmpv6", Scope::Side(Side::Client)),
        ("quic-spin", Scope::Side(Side::Server)),
        ("quic-spin-loop", Scope::EndToEnd),
    ];
    assert_eq!(scopes, expected);
    assert_eq!(report.unreadable, 1);
    assert!(report.missing.contains(&"TCP requests and responses"), "{:?}", report.missing);
    assert!(!report.missing.contains(&"QUIC requests and responses"), "{:?}", report.missing);
    assert!(report.rows[0].truth >= Nanos::from_millis(20) && report.rows[0].truth < Nanos::from_millis(21));
    assert!(report.rows[2].truth >= Nanos::from_millis(25), "the truth of the whole way is both sides'");
    assert!(report.emulator.directions.iter().all(|direction| direction.delivered > 300), "{}", report.emulator);
    for line in [
        "quic-spin-loop   both",
        "emulator error p50",
        "unreadable lines: 1",
        "no samples of TCP requests and responses",
    ] {
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

#[test]
fn root_no_quic_is_faster_than_the_network() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::from_millis(8), Nanos::from_millis(4));
    let rtt = topology.end_to_end_rtt();
    let lab = Lab::start(&LabOptions { name: "quic".to_owned(), topology, emulation: Emulation::Thread }).unwrap();
    for ends in [Ends::v4(&lab), Ends::v6(&lab)] {
        let quic = Quic { connections: 3, duration: Duration::from_millis(500), longest: Bytes(3_000), seed: 3 };
        let quic = quic.run(ends, &AtomicBool::new(false)).unwrap();
        for (round_trips, at_least) in [(quic.handshakes, 3), (quic.round_trips, 15)] {
            assert!(round_trips.0.len() >= at_least, "{round_trips:?}");
            assert!(round_trips.quantile(0.0).unwrap() >= rtt, "{round_trips:?}");
            assert!(round_trips.quantile(0.5).unwrap() < Nanos(rtt.0 * 10), "{round_trips:?}");
        }
    }
}

#[test]
fn root_quic_ends_when_it_is_asked_to() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::ZERO, Nanos::ZERO);
    let lab = Lab::start(&LabOptions { name: "asked".to_owned(), topology, emulation: Emulation::None }).unwrap();
    let quic = Quic { connections: 1, duration: Duration::from_secs(60), longest: Bytes(10), seed: 1 };
    let outcome = quic.run(Ends::v4(&lab), &AtomicBool::new(true));
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
}
