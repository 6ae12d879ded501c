//! tcp-timestamp: a TSval and its first echo.

use dwell_engine::rtt::{Config, Counter};

use crate::wire::{Segment, Side, client, run, segment, server, small};

fn measured(scene: impl IntoIterator<Item = Segment>) -> Vec<String> {
    run(&small(), scene).lines()
}

#[test]
fn an_echo_gives_the_time_since_its_tsval() {
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(1).ts(5, 1), server(30.0).ack(150).ts(9, 5),]),
        ["tcp-timestamp to server: 20 ms at 30"]
    );
}

#[test]
fn only_the_first_packet_of_a_tsval_counts() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            client(12.0).data(150, 50).ack(1).ts(5, 1),
            server(30.0).ack(200).ts(9, 5),
        ]),
        ["tcp-timestamp to server: 20 ms at 30"]
    );
}

#[test]
fn only_the_first_echo_of_a_tsval_counts() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            server(30.0).ack(150).ts(9, 5),
            server(45.0).data(1, 70).ack(150).ts(10, 5),
        ]),
        ["tcp-timestamp to server: 20 ms at 30"]
    );
}

#[test]
fn each_tsval_gives_its_own_sample_even_with_many_in_flight() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            client(11.0).data(150, 50).ack(1).ts(6, 1),
            client(13.0).data(200, 50).ack(1).ts(8, 1),
            server(30.0).ack(150).ts(9, 5),
            server(32.0).ack(200).ts(10, 6),
            server(34.0).ack(250).ts(11, 8),
        ]),
        [
            "tcp-timestamp to server: 20 ms at 30",
            "tcp-timestamp to server: 21 ms at 32",
            "tcp-timestamp to server: 21 ms at 34",
        ]
    );
}

#[test]
fn both_directions_are_measured_by_packets_that_do_both() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            server(30.0).data(1, 70).ack(150).ts(9, 5),
            client(31.0).data(150, 50).ack(71).ts(26, 9),
            server(51.0).ack(200).ts(30, 26),
        ]),
        [
            "tcp-timestamp to server: 20 ms at 30",
            "tcp-timestamp to client: 1 ms at 31",
            "tcp-timestamp to server: 20 ms at 51",
        ]
    );
}

#[test]
fn pure_acks_are_stamped_on_request_only() {
    let scene = || [client(10.0).seq(100).ack(1).ts(5, 1), server(30.0).data(1, 70).ack(100).ts(9, 5)];
    assert!(measured(scene()).is_empty());
    let config = Config { stamp_acks: true, ..small() };
    assert_eq!(run(&config, scene()).lines(), ["tcp-timestamp to server: 20 ms at 30"]);
}

fn handshake() -> [Segment; 4] {
    [
        client(0.0).syn(99).ts(5, 0),
        server(20.0).syn(499).ack(100).ts(900, 5),
        client(21.0).seq(100).ack(500).ts(26, 900),
        client(22.0).data(100, 50).ack(500).ts(27, 900),
    ]
}

#[test]
fn the_handshake_gives_samples_of_its_own_kind_on_request_only() {
    assert!(measured(handshake()).is_empty());
    let config = Config { include_handshake: true, ..small() };
    let answer = server(43.0).ack(150).ts(943, 27);
    assert_eq!(
        run(&config, handshake().into_iter().chain([answer])).lines(),
        [
            "tcp-timestamp handshake to server: 20 ms at 20",
            "tcp-timestamp handshake to client: 1 ms at 21",
            "tcp-timestamp to server: 21 ms at 43",
        ]
    );
}

#[test]
fn a_syn_sent_again_is_a_new_tsval() {
    let config = Config { include_handshake: true, ..small() };
    let scene = [
        client(0.0).syn(99).ts(5, 0),
        client(1000.0).syn(99).ts(1005, 0),
        server(1020.0).syn(499).ack(100).ts(900, 1005),
    ];
    assert_eq!(run(&config, scene).lines(), ["tcp-timestamp handshake to server: 20 ms at 1020"]);
}

#[test]
fn tsvals_wrap() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(u32::MAX, 1),
            server(30.0).ack(150).ts(9, u32::MAX),
            client(31.0).data(150, 50).ack(1).ts(0, 9),
            client(32.0).data(200, 50).ack(1).ts(1, 9),
            server(51.0).ack(200).ts(10, 0),
            server(53.0).ack(250).ts(11, 1),
        ]),
        [
            "tcp-timestamp to server: 20 ms at 30",
            "tcp-timestamp to server: 20 ms at 51",
            "tcp-timestamp to server: 21 ms at 53",
        ]
    );
}

#[test]
fn a_tsval_of_zero_is_a_value_like_others() {
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(1).ts(0, 7), server(30.0).ack(150).ts(8, 0),]),
        ["tcp-timestamp to server: 20 ms at 30"]
    );
}

#[test]
fn a_capture_that_starts_in_the_middle_measures_from_its_first_own_tsval() {
    assert_eq!(
        measured([
            // an echo of something before the capture
            server(5.0).ack(60).ts(8, 3),
            // It shares its TSval with data before the capture: the ACK of that data echoes it too, and says nothing
            // about this packet.
            client(6.0).data(100, 50).ack(1).ts(5, 8),
            server(7.0).ack(100).ts(9, 5),
            server(26.0).ack(150).ts(10, 5),
            client(27.0).data(150, 50).ack(1).ts(30, 10),
            server(47.0).ack(200).ts(11, 30),
        ]),
        ["tcp-timestamp to server: 20 ms at 26", "tcp-timestamp to server: 20 ms at 47",]
    );
}

#[test]
fn a_side_that_comes_into_view_late_answers_nothing_old() {
    for (late, samples) in [(900.0, 1), (1100.0, 0)] {
        let scene = [
            client(0.0).syn(99).ts(4, 0),
            client(10.0).data(100, 50).ack(1).ts(5, 8),
            server(10.0 + late).ack(150).ts(9, 5),
        ];
        assert_eq!(run(&small(), scene).samples.len(), samples, "{late}");
    }
}

#[test]
fn an_echo_that_acknowledges_nothing_of_the_stamped_data_is_refused() {
    assert_eq!(
        measured([
            // The pure ACK is not stamped, but data of the same tick is.
            client(10.0).seq(100).ack(1).ts(5, 1),
            client(15.0).data(100, 50).ack(1).ts(5, 1),
            // answers the pure ACK
            server(17.0).data(1, 10).ack(100).ts(9, 5),
            server(35.0).ack(150).ts(10, 5),
        ]),
        ["tcp-timestamp to server: 20 ms at 35"]
    );
}

#[test]
fn an_echo_that_came_before_the_data_does_not_hide_the_answer() {
    // SYN, ACK and request in one tick of the client; SYN-ACK, answer and FIN in one tick of the server.
    let scene = [
        client(0.0).syn(99).ts(5, 0),
        server(0.2).syn(499).ack(100).ts(900, 5),
        client(0.25).seq(100).ack(500).ts(5, 900),
        client(0.3).data(100, 50).ack(500).ts(5, 900),
        server(0.5).data(500, 70).ack(150).ts(900, 5),
        client(0.75).fin(150).ack(570).ts(5, 900),
    ];
    assert_eq!(measured(scene), ["tcp-timestamp to server: 0.2 ms at 0.5", "tcp-timestamp to client: 0.25 ms at 0.75"]);
}

/// Generates a request every `gap_ms`, answered after 20 ms, with clocks of `hz`.
fn requests(hz: f64, gap_ms: f64, count: u32) -> Vec<Segment> {
    let tick = |at_ms: f64| (at_ms * hz / 1000.0) as u32 + 1000;
    let mut echo = 1;
    let mut scene = Vec::new();
    for n in 0..count {
        let at_ms = f64::from(n) * gap_ms;
        let (sent, answered) = (tick(at_ms), tick(at_ms + 20.0));
        let seq = 100 + n * 50;
        scene.push(client(at_ms).data(seq, 50).ack(1).ts(sent, echo));
        scene.push(server(at_ms + 20.0).ack(seq + 50).ts(answered, sent));
        echo = answered;
    }
    scene
}

#[test]
fn a_clock_of_2_hz_gives_a_sample_a_tick_and_each_is_right() {
    let lines = measured(requests(2.0, 100.0, 25));
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line.starts_with("tcp-timestamp to server: 20 ms")), "{lines:?}");
}

#[test]
fn a_clock_of_1_khz_gives_a_sample_a_request() {
    let lines = measured(requests(1000.0, 100.0, 25));
    assert_eq!(lines.len(), 25);
    assert!(lines.iter().all(|line| line.starts_with("tcp-timestamp to server: 20 ms")), "{lines:?}");
}

#[test]
fn one_direction_alone_gives_nothing() {
    for side in [Side::Client, Side::Server] {
        let scene = (0..50).map(|n| segment(side, f64::from(n)).data(100 + 50 * n, 50).ack(1 + n).ts(5 + n, 1 + n));
        let run = run(&small(), scene);
        assert!(run.samples.is_empty());
        assert_eq!(run.count(Counter::Stamps), 50);
    }
}

#[test]
fn a_retransmission_with_a_new_tsval_is_measured_from_itself() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            client(210.0).data(100, 50).ack(1).ts(205, 1),
            server(230.0).ack(150).ts(300, 205),
        ]),
        ["tcp-timestamp to server: 20 ms at 230"]
    );
}

#[test]
fn a_retransmission_that_was_not_needed_leaves_the_first_answer_true() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(1).ts(5, 1),
            client(210.0).data(100, 50).ack(1).ts(205, 1),
            server(215.0).ack(150).ts(300, 5),
            server(230.0).ack(150).ts(315, 205),
        ]),
        ["tcp-timestamp to server: 205 ms at 215", "tcp-timestamp to server: 20 ms at 230",]
    );
}

#[test]
fn an_old_tsval_that_arrives_late_is_not_stamped() {
    let scene = [
        client(10.0).data(150, 50).ack(1).ts(6, 1),
        client(11.0).data(100, 50).ack(1).ts(5, 1),
        server(31.0).ack(200).ts(9, 6),
    ];
    let run = run(&small(), scene);
    assert_eq!(run.lines(), ["tcp-timestamp to server: 21 ms at 31"]);
    assert_eq!(run.count(Counter::Stamps), 1);
}

#[test]
fn options_in_another_order_are_found() {
    let scene = [client(10.0).data(100, 50).ack(1).ts(5, 1).sack(7, 9), server(30.0).ack(150).ts(9, 5)];
    assert_eq!(measured(scene), ["tcp-timestamp to server: 20 ms at 30"]);
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(1).ts(5, 1).ipv6(), server(30.0).ack(150).ts(9, 5).ipv6(),]),
        ["tcp-timestamp to server: 20 ms at 30"]
    );
}

#[test]
fn a_connection_that_reuses_the_ports_starts_afresh() {
    let config = Config { include_handshake: true, ..small() };
    let first = handshake();
    let end = [client(100.0).fin(150).ack(500).ts(100, 900), server(110.0).fin(500).ack(151).ts(990, 100)];
    // TSvals and sequence numbers far below those of the first
    let second = [
        client(5000.0).syn(4_000_000_000).ts(3_000_000_000, 0),
        server(5020.0).syn(3_900_000_000).ack(4_000_000_001).ts(2_900_000_000, 3_000_000_000),
        client(5021.0).data(4_000_000_001, 10).ack(3_900_000_001).ts(3_000_000_021, 2_900_000_000),
        server(5041.0).ack(4_000_000_011).ts(2_900_000_021, 3_000_000_021),
    ];
    let lines = run(&config, first.into_iter().chain(end).chain(second)).lines();
    assert_eq!(
        lines[2..],
        [
            "tcp-timestamp handshake to server: 20 ms at 5020",
            "tcp-timestamp handshake to client: 1 ms at 5021",
            "tcp-timestamp to server: 20 ms at 5041",
        ]
    );
}

#[test]
fn a_peer_without_timestamps_leaves_the_flow_to_tcp_seq() {
    let config = Config { include_handshake: true, ..small() };
    let scene = [
        client(0.0).syn(99).ts(5, 0),
        server(20.0).syn(499).ack(100),
        client(21.0).data(100, 50).ack(500),
        server(43.0).ack(150),
    ];
    assert_eq!(
        run(&config, scene).lines(),
        [
            "tcp-seq handshake to server: 20 ms at 20",
            "tcp-seq handshake to client: 1 ms at 21",
            "tcp-seq to server: 22 ms at 43",
        ]
    );
}
