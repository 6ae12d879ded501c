//! tcp-seq: data, and the first ACK that covers its last byte.

use dwell_engine::{
    measure::Method,
    rtt::{Config, Counter, RateLimit},
};

use crate::wire::{Frame, Segment, client, run, server, small};

/// Measures a scene in which the client's data up to byte 100 was acknowledged before, because the first data of a flow
/// is never measured.
fn measured(scene: impl IntoIterator<Item = Segment>) -> Vec<String> {
    run(&small(), opened().into_iter().chain(scene)).lines()
}

fn opened() -> [Segment; 2] {
    [client(0.0).syn(99), server(1.0).syn(499).ack(100)]
}

#[test]
fn an_ack_gives_the_time_since_the_data_it_covers() {
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(500), server(30.0).ack(150)]),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn both_directions() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            server(30.0).data(500, 70).ack(150),
            client(31.0).seq(150).ack(570),
        ]),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to client: 1 ms at 31",]
    );
}

#[test]
fn a_delayed_ack_of_two_segments_answers_the_one_it_ends_with() {
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(500), client(14.0).data(150, 50).ack(500), server(30.0).ack(200),]),
        ["tcp-seq to server: 16 ms at 30"]
    );
}

#[test]
fn an_ack_in_the_middle_of_a_segment_answers_those_before_it() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            client(14.0).data(150, 50).ack(500),
            server(30.0).ack(170),
            server(36.0).ack(200),
        ]),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 22 ms at 36",]
    );
}

#[test]
fn an_ack_beyond_what_was_seen_answers_the_oldest_that_waits() {
    assert_eq!(
        measured([client(10.0).data(100, 50).ack(500), client(14.0).data(150, 50).ack(500), server(30.0).ack(900),]),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn data_that_was_acknowledged_before_it_passed_is_not_measured() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            // of data that took another way
            server(30.0).ack(300),
            client(31.0).data(150, 50).ack(500),
            server(40.0).ack(350),
        ]),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn an_ack_of_nothing_new_answers_nothing() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            server(20.0).data(500, 10).ack(100),
            server(30.0).ack(150),
            server(40.0).data(510, 10).ack(150),
        ]),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn an_ack_that_arrives_late_answers_nothing() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            client(14.0).data(150, 50).ack(500),
            server(30.0).ack(200),
            server(31.0).ack(150),
        ]),
        ["tcp-seq to server: 16 ms at 30"]
    );
}

#[test]
fn karn_a_retransmitted_range_gives_nothing_until_new_data_is_acked() {
    let scene = [
        client(10.0).data(100, 50).ack(500),
        client(210.0).data(100, 50).ack(500),
        server(230.0).ack(150),
        client(231.0).data(150, 50).ack(500),
        server(251.0).ack(200),
    ];
    let run = run(&small(), opened().into_iter().chain(scene));
    assert_eq!(run.lines(), ["tcp-seq to server: 20 ms at 251"]);
    assert_eq!(run.count(Counter::Ambiguous), 1);
}

#[test]
fn karn_holds_for_an_ack_that_covers_more_than_what_was_sent_again() {
    // 150 to 200 is sent after the retransmission, and its ACK arrives in the middle of it: the oldest pending stamp is
    // of the retransmitted range.
    for ack in [170, 900] {
        assert_eq!(
            measured([
                client(10.0).data(100, 50).ack(500),
                client(210.0).data(100, 50).ack(500),
                client(212.0).data(150, 50).ack(500),
                server(230.0).ack(ack),
            ]),
            if ack == 170 { vec![] } else { vec!["tcp-seq to server: 18 ms at 230"] }
        );
    }
}

#[test]
fn karn_a_range_that_overlaps_what_was_sent_gives_nothing() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            client(20.0).data(120, 100).ack(500),
            server(40.0).ack(220),
            client(41.0).data(220, 50).ack(500),
            server(61.0).ack(270),
        ]),
        ["tcp-seq to server: 20 ms at 61"]
    );
}

#[test]
fn karn_a_sack_makes_everything_in_flight_ambiguous() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            client(11.0).data(150, 50).ack(500),
            client(12.0).data(200, 50).ack(500),
            // 150 to 200 is missing.
            server(31.0).ack(150).sack(200, 250),
            client(32.0).data(150, 50).ack(500),
            server(52.0).ack(250),
            client(53.0).data(250, 50).ack(500),
            server(73.0).ack(300),
        ]),
        ["tcp-seq to server: 21 ms at 31", "tcp-seq to server: 20 ms at 73",]
    );
}

#[test]
fn karn_a_duplicate_ack_makes_everything_in_flight_ambiguous() {
    let scene = [
        client(10.0).data(100, 50).ack(500),
        // lost before the vantage point: 150 to 200
        client(12.0).data(200, 50).ack(500),
        server(30.0).ack(150),
        server(32.0).ack(150),
        client(33.0).data(150, 50).ack(500),
        server(53.0).ack(250),
    ];
    assert_eq!(measured(scene), ["tcp-seq to server: 20 ms at 30"]);
}

#[test]
fn karn_a_hole_that_is_filled_late_gives_nothing() {
    assert_eq!(
        measured([
            client(10.0).data(150, 50).ack(500),
            client(11.0).data(100, 50).ack(500),
            server(31.0).ack(200),
            client(32.0).data(200, 50).ack(500),
            server(52.0).ack(250),
        ]),
        ["tcp-seq to server: 20 ms at 52"]
    );
}

#[test]
fn a_window_update_is_no_duplicate() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            server(30.0).ack(150),
            client(31.0).data(150, 50).ack(500),
            server(40.0).ack(150).window(2000),
            server(51.0).ack(200).window(2000),
        ]),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 51",]
    );
}

#[test]
fn data_that_crosses_data_is_no_duplicate() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            server(12.0).data(500, 10).ack(100),
            server(13.0).data(510, 10).ack(100),
            server(30.0).ack(150),
            client(33.0).seq(150).ack(520),
        ]),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to client: 20 ms at 33",]
    );
}

#[test]
fn sequence_numbers_wrap() {
    let isn = u32::MAX - 60;
    assert_eq!(
        run(
            &small(),
            [
                client(0.0).syn(isn),
                server(1.0).syn(499).ack(isn.wrapping_add(1)),
                client(10.0).data(u32::MAX - 59, 50).ack(500),
                client(11.0).data(u32::MAX - 9, 50).ack(500),
                client(12.0).data(40, 50).ack(500),
                server(30.0).ack(u32::MAX - 9),
                server(31.0).ack(40),
                server(32.0).ack(90),
            ]
        )
        .lines(),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 31", "tcp-seq to server: 20 ms at 32",]
    );
}

#[test]
fn a_segment_that_ends_at_the_wrap_is_measured() {
    let isn = 0u32.wrapping_sub(51);
    assert_eq!(
        run(
            &small(),
            [
                client(0.0).syn(isn),
                server(1.0).syn(499).ack(isn.wrapping_add(1)),
                client(10.0).data(isn.wrapping_add(1), 50).ack(500),
                server(30.0).ack(0),
            ]
        )
        .lines(),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn what_comes_first_in_a_capture_that_starts_in_the_middle_is_not_measured() {
    assert_eq!(
        run(
            &small(),
            [
                // it may be a retransmission
                client(10.0).data(100, 50).ack(500),
                server(12.0).ack(150),
                client(13.0).data(150, 50).ack(500),
                server(33.0).ack(200),
            ]
        )
        .lines(),
        ["tcp-seq to server: 20 ms at 33"]
    );
}

#[test]
fn a_side_that_comes_into_view_late_answers_nothing_old() {
    for (late, samples) in [(900.0, 1), (1100.0, 0)] {
        for ack in [150, 200] {
            let scene = [
                client(0.0).syn(99),
                client(10.0).data(100, 50).ack(500),
                client(10.0).data(150, 20).ack(500),
                server(10.0 + late).ack(ack),
            ];
            assert_eq!(run(&small(), scene).samples.len(), samples, "{late} {ack}");
        }
    }
}

#[test]
fn the_ack_of_a_reset_answers_nothing() {
    assert_eq!(measured([client(10.0).data(100, 50).ack(500), server(3000.0).rst().ack(150),]), [] as [&str; 0]);
}

/// Returns a segment that offload made longer than its header can express.
fn giant(segment: Segment, bytes: u32) -> Frame {
    let mut frame = Frame::from(segment);
    frame.data[16..18].fill(0);
    frame.wire_len = 14 + 20 + 20 + bytes;
    frame
}

#[test]
fn a_number_that_comes_round_after_four_gigabytes_is_not_taken_for_the_old_one() {
    assert_eq!(around_the_numbers(100_000_000).last(), Some(&"tcp-seq to server: 20 ms at 1870".to_owned()));
    // The limit prevents a second stamp.
    assert_eq!(around_the_numbers(100_000_000_000), ["tcp-seq to server: 20 ms at 30"]);
}

/// Returns what is measured while one direction sends slightly more than 4 GiB.
fn around_the_numbers(rate_limit_ns: u64) -> Vec<String> {
    const GIANT: u32 = 1 << 28;
    let config = Config { rate_limit: RateLimit::Interval(rate_limit_ns), ..small() };
    let mut scene: Vec<Frame> = [
        client(0.0).syn(99),
        server(1.0).syn(499).ack(100),
        client(10.0).data(100, 50).ack(500),
        // Not stamped; the stamp of byte 150 stays in its slot.
        client(11.0).data(150, 50).ack(500),
        server(30.0).ack(200),
    ]
    .map(Frame::from)
    .into();
    let mut at_ms = 200.0;
    for turn in 0..16 {
        let seq = GIANT.wrapping_mul(turn).wrapping_add(200);
        let bytes = if turn == 15 { GIANT - 100 } else { GIANT };
        let end = seq.wrapping_add(bytes);
        scene.push(giant(client(at_ms).seq(seq).ack(500), bytes));
        if turn < 15 {
            scene.push(server(at_ms + 5.0).ack(end).into());
        }
        at_ms += 110.0;
    }
    scene.push(client(1851.0).data(100, 50).ack(500).into());
    scene.push(server(1870.0).ack(150).into());
    run(&config, scene).lines()
}

#[test]
fn a_keepalive_is_no_data() {
    for bytes in [0, 1] {
        let scene = [
            client(10.0).data(100, 50).ack(500),
            server(30.0).ack(150),
            client(7000.0).data(149, bytes).ack(500),
            server(7020.0).ack(150),
            client(8000.0).data(150, 50).ack(500),
            server(8020.0).ack(200),
        ];
        assert_eq!(
            measured(scene),
            ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 8020",],
            "keepalive of {bytes} bytes"
        );
    }
}

#[test]
fn a_probe_of_a_closed_window_is_not_taken_for_the_data() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            server(30.0).ack(150).window(0),
            // One byte, for which the receiver has no room.
            client(1000.0).data(150, 1).ack(500),
            server(1020.0).ack(150).window(0),
            server(5000.0).ack(150).window(1000),
            client(5001.0).data(150, 50).ack(500),
            server(5021.0).ack(200),
            client(5022.0).data(200, 50).ack(500),
            server(5042.0).ack(250),
        ]),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 5042",]
    );
}

#[test]
fn the_handshake_gives_samples_on_request_only() {
    let scene = || {
        [
            client(0.0).syn(99),
            server(20.0).syn(499).ack(100),
            client(21.0).seq(100).ack(500),
            client(22.0).data(100, 50).ack(500),
            server(42.0).ack(150),
        ]
    };
    assert_eq!(run(&small(), scene()).lines(), ["tcp-seq to server: 20 ms at 42"]);
    let config = Config { include_handshake: true, ..small() };
    assert_eq!(
        run(&config, scene()).lines(),
        [
            "tcp-seq handshake to server: 20 ms at 20",
            "tcp-seq handshake to client: 1 ms at 21",
            "tcp-seq to server: 20 ms at 42",
        ]
    );
}

#[test]
fn a_syn_that_was_sent_twice_gives_nothing() {
    let config = Config { include_handshake: true, ..small() };
    let scene = [
        client(0.0).syn(99),
        client(1000.0).syn(99),
        server(1020.0).syn(499).ack(100),
        client(1021.0).data(100, 50).ack(500),
        server(1041.0).ack(150),
    ];
    assert_eq!(
        run(&config, scene).lines(),
        ["tcp-seq handshake to client: 1 ms at 1021", "tcp-seq to server: 20 ms at 1041",]
    );
}

#[test]
fn a_fin_alone_is_not_stamped_but_its_ack_covers_the_data_before_it() {
    assert_eq!(
        measured([
            client(10.0).data(100, 50).ack(500),
            client(11.0).fin(150).ack(500),
            server(30.0).ack(151),
            server(31.0).fin(500).ack(151),
            client(32.0).seq(151).ack(501),
        ]),
        ["tcp-seq to server: 20 ms at 30"]
    );
}

#[test]
fn data_with_a_fin_is_measured_by_the_ack_of_both() {
    let fin = client(10.0).data(100, 50).ack(500).fin(100);
    assert_eq!(measured([fin, server(30.0).ack(151)]), ["tcp-seq to server: 20 ms at 30"]);
}

#[test]
fn flows_with_timestamps_can_be_measured_by_their_numbers_alone() {
    let config = Config { methods: vec![Method::TcpSeq], ..small() };
    let scene = [
        client(0.0).syn(99).ts(1, 0),
        server(1.0).syn(499).ack(100).ts(1, 1),
        client(10.0).data(100, 50).ack(500).ts(11, 1),
        client(11.0).data(150, 50).ack(500).ts(12, 1),
        server(30.0).ack(150).ts(30, 11),
        server(31.0).ack(200).ts(31, 12),
    ];
    assert_eq!(run(&config, scene).lines(), ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 31",]);
}

#[test]
fn one_direction_alone_gives_nothing() {
    // The acknowledgment numbers happen to equal the sender's own sequence numbers.
    let data = (0..50).map(|n| {
        let (at_ms, seq) = (f64::from(n), 100 + 50 * n);
        client(at_ms).data(seq, 50).ack(seq)
    });
    assert!(run(&small(), data).samples.is_empty());
    let acks = (0..50).map(|n| server(f64::from(n)).ack(100 + 50 * n));
    assert!(run(&small(), acks).samples.is_empty());
}

#[test]
fn a_connection_that_reuses_the_ports_starts_afresh() {
    let first = [client(10.0).data(100, 50).ack(500), server(30.0).ack(150), client(31.0).rst().seq(150)];
    let second = [
        client(5000.0).syn(4_000_000_000),
        server(5020.0).syn(3_900_000_000).ack(4_000_000_001),
        client(5021.0).data(4_000_000_001, 10).ack(3_900_000_001),
        server(5041.0).ack(4_000_000_011),
    ];
    assert_eq!(
        measured(first.into_iter().chain(second)),
        ["tcp-seq to server: 20 ms at 30", "tcp-seq to server: 20 ms at 5041",]
    );
}

#[test]
fn what_the_last_connection_left_waiting_is_forgotten() {
    let second = || {
        [
            client(5000.0).syn(4000),
            server(5020.0).syn(9000).ack(4001),
            client(5021.0).data(4001, 10).ack(9001),
            server(5041.0).ack(4011),
        ]
    };
    // data without an ACK, ended by a RST
    let cut = [client(10.0).data(100, 50).ack(500), client(31.0).rst().seq(150)];
    assert_eq!(measured(cut.into_iter().chain(second())), ["tcp-seq to server: 20 ms at 5041"]);
    // An ACK of a connection whose data was not captured.
    let stray = [server(0.0).seq(500).ack(9_999)];
    assert_eq!(run(&small(), stray.into_iter().chain(second())).lines(), ["tcp-seq to server: 20 ms at 5041"]);
}
