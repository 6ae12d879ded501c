//! quic-spin and quic-handshake, compared with edges listed by other programs.

use dwell_engine::measure::{Method, Sample};
use serde_json::Value;

use crate::support::{Capture, Stats, capture};

const SPIN: [Method; 2] = [Method::QuicSpin, Method::QuicSpinLoop];

fn of(samples: &[Sample], method: Method) -> Vec<&Sample> {
    let it = samples.iter().filter(|sample| sample.method == method);
    it.collect()
}

/// Intervals between edges of one side in milliseconds, artefacts included.
fn listed_loops(capture: &Capture) -> Vec<f64> {
    let connections = capture.reference["ref"]["quic"]["top"].as_array().unwrap();
    let mut loops = Vec::new();
    for side in connections.iter().flat_map(|connection| [&connection["spin_a2b"], &connection["spin_b2a"]]) {
        let times: Vec<f64> = side["edge_times"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        loops.extend(times.windows(2).map(|pair| (pair[1] - pair[0]) * 1000.0));
    }
    loops
}

#[track_caller]
fn assert_listed(capture: &Capture, samples: &[Sample]) {
    let listed = listed_loops(capture);
    for sample in of(samples, Method::QuicSpinLoop) {
        let ms = sample.rtt_ns as f64 / 1e6;
        assert!(listed.iter().any(|it| (it - ms).abs() < 0.002), "{ms} ms is no interval between edges");
    }
}

#[test]
fn a06_genuine_spin_is_measured_once_it_is_proven() {
    let Some(a06) = capture("A06") else { return };
    let samples = a06.samples(&SPIN);
    assert_listed(&a06, &samples);
    // The client sends two packets per loop: it takes six loops of sixteen until it is trusted.
    let loops = of(&samples, Method::QuicSpinLoop);
    assert_eq!((loops.len(), listed_loops(&a06).len()), (20, 31));
    let ours = Stats::of(loops);
    // The references are 23.2 to 43.2 ms, half of them below 31.0 ms. The client's own log says 32 to 47 ms, because it
    // includes the delay of ACKs at the hosts.
    assert!((ours.p50 - 30.9).abs() < 1.5, "{ours}");
    assert!(ours.min > 23.18 && ours.max < 43.18, "{ours}");
    let halves = of(&samples, Method::QuicSpin);
    let (to_server, to_client): (Vec<_>, Vec<_>) = halves.into_iter().partition(|sample| sample.dst.port == 4433);
    assert_eq!((to_server.len(), to_client.len()), (10, 10));
    // An emulated path of 10 ms in each direction between vantage point and server.
    let to_server = Stats::of(to_server);
    assert!(to_server.min > 20.0 && to_server.max < 25.0, "{to_server}");
    // The client is next to the vantage point and delays its ACKs.
    assert!(Stats::of(to_client).min < 1.0);
}

#[test]
fn a07_connections_of_two_edges_give_no_artefact() {
    let Some(a07) = capture("A07") else { return };
    // 15 packets cannot establish a rule; three have edges of 15 to 20 ms that come from a new connection ID, on a path
    // of 160 ms.
    let listed = listed_loops(&a07);
    assert!(listed.iter().any(|ms| (15.0..20.0).contains(ms)));
    assert!(a07.samples(&SPIN).is_empty());
}

#[test]
fn a08_a_random_client_and_a_constant_server_give_nothing() {
    let Some(a08) = capture("A08") else { return };
    assert!(listed_loops(&a08).len() > 35);
    assert!(a08.samples(&SPIN).is_empty());
}

#[test]
fn a11_a_change_of_connection_id_gives_no_artefact() {
    let Some(a11) = capture("A11") else { return };
    let samples = a11.samples(&SPIN);
    assert_listed(&a11, &samples);
    // The edge of 7 µs comes from the packet that uses the new ID first.
    assert!(listed_loops(&a11).iter().any(|ms| *ms < 0.01));
    let loops = Stats::of(of(&samples, Method::QuicSpinLoop));
    assert_eq!((loops.n, loops.min), (1, 79.033));
    let halves = Stats::of(of(&samples, Method::QuicSpin));
    assert_eq!((halves.n, halves.min), (1, 79.021));
}

#[test]
fn a14_a_draft_is_measured_at_its_end() {
    let Some(a14) = capture("A14") else { return };
    let samples = a14.samples(&SPIN);
    assert_listed(&a14, &samples);
    // There are five intervals, and the client's twelve packets establish the rule for the last one.
    let loops = Stats::of(of(&samples, Method::QuicSpinLoop));
    assert_eq!((loops.n, loops.min), (1, 22.208));
    let right = Stats::from_json(&a14.reference["ref"]["spindump"]["QUIC Right_rtt"]);
    let halves = Stats::of(of(&samples, Method::QuicSpin));
    assert_eq!(halves.n, 1);
    assert!((halves.p50 - right.p50).abs() < 0.001, "{halves}");
}

#[test]
fn each_connection_has_its_handshake() {
    // Read from the first two long headers of each; those of A07 that start with a greased version count from the
    // Initial that follows.
    for (id, ms) in [
        ("A06", &[49.641][..]),
        ("A07", &[175.216, 249.324, 159.232, 161.509, 236.946, 209.990]),
        ("A08", &[63.093]),
        ("A11", &[82.871]),
        ("A14", &[15.023]),
    ] {
        let Some(capture) = capture(id) else { return };
        let samples = capture.samples(&[Method::QuicHandshake]);
        let ours: Vec<f64> = samples.iter().map(|it| it.rtt_ns as f64 / 1e6).collect();
        assert_eq!(ours.len(), ms.len(), "{id}");
        let same = |(x, y): (&f64, &f64)| (x - y).abs() < 0.001;
        assert!(ours.iter().zip(ms).all(same), "{id}: {ours:?}");
    }
}
