//! quic-handshake and quic-spin, packet by packet.

use Side::{Client, Server};
use dwell_engine::{
    measure::{Method, PathCounts, Sample},
    rtt::{Config, Counter},
};

use crate::{
    quic_path::{V1, V2, datagram, long, short},
    wire::{ETHERNET, Frame, Side, ethernet, frame, run, small, udp},
};

const INITIAL: u8 = 0;
const ZERO_RTT: u8 = 1;
const HANDSHAKE: u8 = 2;
const RETRY: u8 = 3;

fn measured(scene: impl IntoIterator<Item = Frame>) -> Vec<String> {
    run(&small(), scene).lines()
}

#[test]
fn the_first_initial_is_answered_by_the_first_long_header_back() {
    assert_eq!(
        measured([
            long(0.0, Client, V1, INITIAL),
            long(20.0, Server, V1, INITIAL),
            long(20.1, Server, V1, HANDSHAKE),
            long(21.0, Client, V1, HANDSHAKE),
        ]),
        ["quic-handshake handshake to server: 20 ms at 20"]
    );
}

#[test]
fn an_initial_sent_again_is_answered_from_the_first() {
    assert_eq!(
        measured([
            long(0.0, Client, V1, INITIAL),
            long(1000.0, Client, V1, INITIAL),
            long(1020.0, Server, V1, INITIAL),
        ]),
        ["quic-handshake handshake to server: 1020 ms at 1020"]
    );
}

#[test]
fn the_next_connection_of_the_same_ports_has_a_handshake_of_its_own() {
    for methods in [&[Method::QuicHandshake][..], &Method::ALL] {
        let config = Config { methods: methods.to_vec(), ..small() };
        let scene = [
            long(0.0, Client, V1, INITIAL),
            long(20.0, Server, V1, INITIAL),
            short(21.0, Client, false),
            long(5000.0, Client, V1, INITIAL),
            long(5030.0, Server, V1, INITIAL),
        ];
        assert_eq!(
            run(&config, scene).lines(),
            ["quic-handshake handshake to server: 20 ms at 20", "quic-handshake handshake to server: 30 ms at 5030"]
        );
    }
}

#[test]
fn version_2_numbers_its_packet_types_anew() {
    // RFC 9369 section 3.2: Retry 0, Initial 1, 0-RTT 2, Handshake 3
    assert_eq!(
        measured([long(0.0, Client, V2, 1), long(20.0, Server, V2, 1),]),
        ["quic-handshake handshake to server: 20 ms at 20"]
    );
    for kind in [0, 2, 3] {
        assert!(measured([long(0.0, Client, V2, kind), long(20.0, Server, V2, 3)]).is_empty());
    }
    for kind in [ZERO_RTT, HANDSHAKE, RETRY] {
        assert!(measured([long(0.0, Client, V1, kind), long(20.0, Server, V1, 2)]).is_empty());
    }
}

#[test]
fn version_negotiation_and_retry_are_answers() {
    for (version, kind) in [(0, 0), (0, 3), (V1, RETRY)] {
        assert_eq!(
            measured([
                long(0.0, Client, V1, INITIAL),
                long(20.0, Server, version, kind),
                long(21.0, Client, V1, INITIAL),
                long(45.0, Server, V1, INITIAL),
            ]),
            ["quic-handshake handshake to server: 20 ms at 20"],
            "version {version:x}, type {kind}"
        );
    }
}

#[test]
fn drafts_with_a_spin_bit_are_known_and_greased_versions_are_not() {
    for (version, known) in [
        (0xff00_0010, false),
        (0xff00_0012, true),
        (0xff00_001d, true),
        (0xff00_0022, true),
        (0xff00_0023, false),
        (0xbaba_baba, false),
    ] {
        let scene = [long(0.0, Client, version, INITIAL), long(20.0, Server, version, INITIAL)];
        let run = run(&small(), scene);
        assert_eq!(run.samples.len(), usize::from(known), "{version:x}");
        let passed_over = if known { 0 } else { 2 };
        assert_eq!(run.count(Counter::OtherProtocol), passed_over);
    }
}

#[test]
fn what_is_no_quic_is_counted_and_passed_over() {
    for payload in [&[0x00; 40][..], &[0x3f; 40], &[0x40; 4]] {
        let run = run(&small(), [datagram(0.0, Client, payload)]);
        let passed_over = run.count(Counter::OtherProtocol) + run.count(Counter::Stray);
        assert_eq!(passed_over, 1);
    }
}

/// Generates loops of 40 ms to the server and back, and 10 ms to the client and back, with the spin value of loop `n`.
/// There are three packets of each side between its edges.
fn spinning(loops: u32, value: impl Fn(Side, u32) -> bool) -> Vec<Frame> {
    let mut scene = Vec::new();
    for n in 0..loops {
        let at_ms = f64::from(n) * 50.0;
        for after_ms in [0.0, 15.0, 30.0] {
            scene.push(short(at_ms + after_ms, Client, value(Client, n)));
        }
        for after_ms in [40.0, 43.0, 46.0] {
            scene.push(short(at_ms + after_ms, Server, value(Server, n)));
        }
    }
    scene
}

fn genuine(_: Side, n: u32) -> bool {
    n.is_multiple_of(2)
}

/// A connection with a handshake 100 ms before the first loop.
fn connection(loops: u32, value: impl Fn(Side, u32) -> bool) -> Vec<Frame> {
    let mut scene =
        vec![long(0.0, Client, V1, INITIAL), long(40.0, Server, V1, INITIAL), long(50.0, Client, V1, HANDSHAKE)];
    for mut packet in spinning(loops, value) {
        packet.time_ns += 100_000_000;
        scene.push(packet);
    }
    scene
}

#[test]
fn edges_give_both_halves_and_the_loop() {
    let lines = measured(connection(10, genuine));
    assert_eq!(lines[0], "quic-handshake handshake to server: 40 ms at 40");
    let mut expected = Vec::new();
    // It takes three loops until both sides have kept still six times out of turn.
    for n in 4..10 {
        let at_ms = 100 + 50 * n;
        expected.extend([
            format!("quic-spin to client: 10 ms at {at_ms}"),
            format!("quic-spin-loop to client: 50 ms at {at_ms}"),
            format!("quic-spin to server: 40 ms at {}", at_ms + 40),
            format!("quic-spin-loop to server: 50 ms at {}", at_ms + 40),
        ]);
    }
    assert_eq!(lines[1..], expected);
}

#[test]
fn halves_and_loops_can_be_had_apart_and_are_the_same() {
    for method in [Method::QuicSpin, Method::QuicSpinLoop] {
        let config = Config { methods: vec![method], ..small() };
        let whole = run(&small(), connection(10, genuine));
        // what passed between samples depends on which samples there were
        let bare = |sample: Sample| Sample { path: PathCounts::default(), ..sample };
        let of_it: Vec<_> = whole.samples.into_iter().filter(|s| s.method == method).map(bare).collect();
        let alone = run(&config, connection(10, genuine)).samples;
        assert_eq!(alone.into_iter().map(bare).collect::<Vec<_>>(), of_it);
    }
}

#[test]
fn a_fixed_bit_that_is_greased_hides_no_packet() {
    // RFC 9287: a random value for each packet, as in quinn and others.
    let mut dice = crate::quic_path::Dice(5);
    let scene = connection(10, genuine).into_iter().map(|mut packet| {
        if packet.data[42] & 0x80 == 0 && dice.flip() {
            packet.data[42] &= !0x40;
        }
        packet
    });
    assert_eq!(measured(scene), measured(connection(10, genuine)));
}

#[test]
fn a_connection_in_the_middle_is_followed_on_port_443_only() {
    let scene = spinning(10, genuine);
    assert_eq!(measured(scene.clone()).len(), 24);
    let elsewhere = scene.into_iter().map(|mut packet| {
        for at in [34, 36] {
            let port = &mut packet.data[at..at + 2];
            if *port == [0x01, 0xbb] {
                port.copy_from_slice(&[0x01, 0xbc]);
            }
        }
        packet
    });
    let run = run(&small(), elsewhere);
    assert!(run.samples.is_empty());
    assert_eq!(run.count(Counter::FlowsOpened), 0);
}

#[test]
fn who_is_client_is_learnt_when_its_initial_was_not_seen() {
    // The server's Initial looks like the first packet of a client.
    let scene = connection(20, genuine).into_iter().skip(1);
    let run = run(&small(), scene);
    let spin = run.samples.iter().filter(|sample| sample.method == Method::QuicSpin);
    assert!(spin.clone().count() > 20);
    for sample in spin {
        let want = if sample.dst.port == 443 { 40 } else { 10 };
        assert_eq!(sample.rtt_ns, want * 1_000_000);
    }
}

#[test]
fn a_constant_on_either_side_gives_nothing() {
    for constant in [false, true] {
        for side in [Client, Server] {
            let value = |of: Side, n| if of == side { constant } else { genuine(of, n) };
            let run = run(&small(), connection(50, value));
            assert_eq!(run.samples.len(), 1, "{side:?} {constant}");
            assert!(run.count(Counter::SpinOrder) > 40);
        }
    }
}

#[test]
fn a_late_packet_around_an_edge_is_rejected_and_counted() {
    let undisturbed = measured(connection(10, genuine));
    let mut scene = connection(10, genuine);
    // The last packet with the old value, 1 ms after the client's eighth edge.
    scene.push(short(100.0 + 7.0 * 50.0 + 1.0, Client, true));
    scene.sort_by_key(|packet| packet.time_ns);
    let run = run(&small(), scene);
    assert_eq!(run.count(Counter::SpinEarly), 1);
    assert_eq!(run.count(Counter::SpinOrder), 0);
    // Until it has kept still often enough again, the client is not trusted.
    let lines = run.lines();
    assert!(lines.len() > 10);
    assert!(lines.iter().all(|line| undisturbed.contains(line)));
}

#[test]
fn a_change_of_connection_id_makes_no_sample_of_its_reset() {
    // RFC 9000 section 17.4: the value starts again with 0; here the server does this while it had to keep 1, and
    // echoes correctly afterwards.
    let mut scene = Vec::new();
    for packet in connection(60, genuine) {
        let reset_ns = packet.time_ns - crate::wire::START_NS;
        let server = packet.data[37] == 0x50;
        if server && (1_141_000_000..1_150_000_000).contains(&reset_ns) {
            let mut reset = packet.clone();
            reset.data[42] &= !0x20;
            scene.push(reset);
        } else {
            scene.push(packet);
        }
    }
    let run = run(&small(), scene);
    assert!(run.count(Counter::SpinOrder) + run.count(Counter::SpinEarly) > 0);
    let spin: Vec<_> = run.samples.iter().skip(1).collect();
    assert!(spin.len() > 100, "{}", spin.len());
    for sample in spin {
        let ms = sample.rtt_ns / 1_000_000;
        assert!([10, 40, 50].contains(&ms), "{sample:?}");
    }
}

#[test]
fn one_direction_alone_gives_nothing() {
    for port in [[0xc3, 0x50], [0x01, 0xbb]] {
        let scene = connection(50, genuine);
        let alone = scene.into_iter().filter(|packet| packet.data[34..36] == port);
        assert!(measured(alone).is_empty());
    }
}

#[test]
fn the_bit_is_not_read_in_other_udp_traffic() {
    let scene = (0..100u8).map(|n| {
        let (from, ports) = if n % 2 == 0 { (Client, (5000, 5001)) } else { (Server, (5001, 5000)) };
        let payload = [0x40 | (n & 2) << 4; 50];
        let ip = udp(from, ports.0, ports.1, &payload);
        frame(f64::from(n), ETHERNET, ethernet(&ip))
    });
    let run = run(&small(), scene);
    assert_eq!(run.count(Counter::FlowsOpened), 0);
    assert!(run.samples.is_empty());
}
