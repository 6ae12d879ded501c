//! The send path.

use dwell_engine::layers::{Config, Counter, Isns, Layer, Segment};

use crate::support::{GRID, Host};

#[test]
fn each_segment_is_the_time_between_its_layers_and_they_add_up() {
    let mut host = Host::new();
    host.send(GRID, 100, 1_000_000);
    for (segment, ns) in [
        (Segment::SocketTcp, 1_000),
        (Segment::TcpIp, 1_000),
        (Segment::IpDriver, 2_000),
        (Segment::Queueing, 1_000),
        (Segment::TxTotal, 4_000),
    ] {
        assert_eq!(host.count(segment), 1, "{segment:?}");
        assert_eq!(host.sum_ns(segment), ns, "{segment:?}");
    }
    assert_eq!(host.count(Segment::TxUnexplained), 0);
}

#[test]
fn a_packet_between_two_sampled_bytes_costs_and_counts_nothing() {
    let mut host = Host::new();
    host.send(GRID + 1, GRID - 1, 1_000);
    host.send(GRID, 0, 1_000);
    assert_eq!(host.count(Segment::TxTotal), 0);
    // The last byte of the packet is the sampled byte.
    host.send(GRID + 1, GRID, 1_000);
    assert_eq!(host.count(Segment::TxTotal), 1);
}

/// Four sampled bytes in one packet of TCP, which the device receives in smaller packets: each byte passes with the
/// packet that carries it.
#[test]
fn a_segment_that_is_split_on_the_path_is_matched_byte_by_byte() {
    let mut host = Host::new();
    let mss = 1448;
    host.pass(0, 4 * GRID, Layer::TxSocket, 1_000);
    host.leave_ip(0, 4 * GRID, 2_000, 3_000);
    host.pass(0, 4 * GRID, Layer::TxQueue, 3_000);
    for (index, seq) in (0..4 * GRID).step_by(mss as usize).enumerate() {
        let bytes = mss.min(4 * GRID - seq);
        host.pass(seq, bytes, Layer::TxDriver, 10_000 + index as u64);
    }
    assert_eq!(host.count(Segment::IpDriver), 4);
    // Bytes 0, 16384, 32768 and 49152 are in packets 0, 11, 22 and 33.
    assert_eq!(host.sum_ns(Segment::IpDriver), 4 * 7_000 + 11 + 22 + 33);
}

/// Two writes that leave as one packet.
#[test]
fn writes_that_are_joined_keep_their_own_times() {
    let mut host = Host::new();
    host.pass(GRID, 10, Layer::TxSocket, 1_000);
    host.pass(GRID + 10, GRID, Layer::TxSocket, 5_000);
    host.leave_ip(GRID, GRID + 10, 6_000, 6_000);
    host.pass(GRID, GRID + 10, Layer::TxDriver, 6_000);
    assert_eq!(host.sum_ns(Segment::SocketTcp), 5_000 + 1_000);
}

/// A write that had to wait for memory is stamped again.
#[test]
fn a_byte_is_written_when_it_was_copied_at_last() {
    let mut host = Host::new();
    host.pass(GRID, 2 * GRID, Layer::TxSocket, 1_000);
    host.pass(GRID, 2 * GRID, Layer::TxSocket, 9_000);
    host.leave_ip(GRID, 2 * GRID, 10_000, 10_000);
    host.pass(GRID, 2 * GRID, Layer::TxDriver, 10_000);
    assert_eq!(host.sum_ns(Segment::SocketTcp), 2 * 1_000);
}

#[test]
fn sequence_numbers_wrap_in_a_packet_and_in_a_flow() {
    let mut host = Host::new();
    host.send(u32::MAX - 99, 200, 1_000);
    assert_eq!(host.count(Segment::TxTotal), 1, "byte 0 is in it");
    // All bytes of a cycle, and then the same sequence numbers again: 4 GiB later they are other bytes.
    for cycle in 0..2u64 {
        for slot in 0..1u32 << 18 {
            host.send(slot << 14, 1, 10_000 + cycle);
        }
    }
    assert_eq!(host.count(Segment::TxTotal), 1 + 2 * (1 << 18));
}

/// Also if the table has more rows than there are sampled bytes in the sequence space.
#[test]
fn bytes_of_the_last_cycle_are_not_taken_for_retransmissions() {
    for sample_bytes in [1 << 14, 1 << 20, 1 << 24] {
        let mut host = Host::with(&Config { sample_bytes, ..Config::default() });
        let slots = (1u64 << 32) / u64::from(sample_bytes);
        for slot in 0..2 * slots {
            let seq = (slot * u64::from(sample_bytes)) as u32;
            host.arrive(seq, 1, slot * 10_000 + 1);
            host.reach(seq.wrapping_add(1), Layer::RxReady, slot * 10_000 + 3_001);
            host.reach(seq.wrapping_add(1), Layer::RxSocket, slot * 10_000 + 4_001);
        }
        assert_eq!(host.count(Segment::RxTotal), 2 * slots);
        assert_eq!(host.sum_ns(Segment::RxTotal), 2 * slots * 4_000);
    }
}

#[test]
fn flows_share_the_rows_and_keep_apart() {
    let mut host = Host::new();
    let one = host.flow;
    let other = host.path.flow("192.0.2.1:5201".parse().unwrap(), "192.0.2.2:40001".parse().unwrap());
    for (flow, now_ns) in [(one, 1_000), (other, 2_000)] {
        host.flow = flow;
        host.pass(GRID, 1, Layer::TxSocket, now_ns);
    }
    for (flow, now_ns) in [(one, 11_000), (other, 12_000)] {
        host.flow = flow;
        host.leave_ip(GRID, 1, now_ns, now_ns);
        host.pass(GRID, 1, Layer::TxDriver, now_ns);
    }
    assert_eq!(host.count(Segment::TxTotal), 2);
    assert_eq!(host.sum_ns(Segment::TxTotal), 2 * 10_000);
}

/// More bytes are in flight than there are rows: the later ones own them.
#[test]
fn a_row_that_went_to_another_flow_gives_no_figure() {
    let mut host = Host::with(&Config { rows: 64, ..Config::default() });
    let flows: Vec<_> = (1..=1000)
        .map(|port| host.path.flow("192.0.2.1:5201".parse().unwrap(), ([192, 0, 2, 2], port).into()))
        .collect();
    for (flow, now_ns) in flows.iter().zip((0..).step_by(100)) {
        host.flow = *flow;
        host.pass(GRID, 1, Layer::TxSocket, 1_000 + now_ns);
    }
    // The last bytes still own their rows.
    for (index, flow) in flows.iter().enumerate().rev() {
        let now_ns = 100 * index as u64;
        host.flow = *flow;
        host.leave_ip(GRID, 1, 1_000_500 + now_ns, 1_000_600 + now_ns);
        host.pass(GRID, 1, Layer::TxDriver, 1_001_000 + now_ns);
    }
    let total = host.path.segment(Segment::TxTotal);
    assert!((1..=64).contains(&total.count()));
    let took = Some(1_000_000);
    assert_eq!((total.min_ns(), total.max_ns()), (took, took));
    assert_eq!(host.path.counters().get(Counter::TxUnbegun), 1000 - total.count());
}

#[test]
fn all_sampled_bytes_of_a_large_packet_are_stamped_up_to_the_last_1024() {
    let config = Config { sample_bytes: 64, ..Config::default() };
    let mut host = Host::with(&config);
    host.send(0, 1 << 16, 1_000);
    assert_eq!(host.count(Segment::TxTotal), 1024);
    let mut host = Host::with(&config);
    host.pass(0, 1 << 17, Layer::TxSocket, 1_000);
    host.leave_ip(0, 1 << 17, 2_000, 2_000);
    host.pass(2047 * 64, 1, Layer::TxDriver, 3_000);
    host.pass(1024 * 64, 1, Layer::TxDriver, 3_000);
    assert_eq!(host.count(Segment::TxTotal), 2);
    host.leave_ip(1023 * 64, 1, 2_500, 2_500);
    host.pass(1023 * 64, 1, Layer::TxDriver, 3_000);
    assert_eq!(host.count(Segment::TxTotal), 2);
    assert_eq!(host.path.counters().get(Counter::TxUnbegun), 1);
}

/// The same bytes remain in both directions, and on both hosts.
#[test]
fn a_thinner_sampling_grid_has_every_second_byte_of_the_previous_one() {
    let mut host = Host::new();
    host.path.thin(1);
    host.send(0, 4 * GRID, 1_000);
    host.arrive(0, 4 * GRID, 1_000);
    host.reach(4 * GRID, Layer::RxSocket, 5_000);
    assert_eq!(host.count(Segment::TxTotal), 2);
    assert_eq!(host.count(Segment::RxTotal), 2);
    host.path.thin(0);
    host.arrive(GRID, 1, 9_000_000);
    host.reach(2 * GRID, Layer::RxSocket, 9_005_000);
    assert_eq!(host.count(Segment::RxTotal), 3);
}

/// As if programs were detached for a while: the rest of the byte's path is not observed.
#[test]
fn what_was_started_before_the_sampling_grid_changed_is_not_finished_after() {
    let mut host = Host::new();
    host.pass(0, 100, Layer::TxSocket, 1_000);
    host.arrive(GRID, 100, 1_000);
    host.path.thin(0);
    host.leave_ip(0, 100, 3_000_000_000, 3_000_000_000);
    host.pass_packet(0, 100, Layer::TxDriver, 3_000_000_000, 3_000_001_000);
    host.reach(2 * GRID, Layer::RxSocket, 3_000_000_000);
    assert_eq!(host.count(Segment::TxTotal), 0);
    assert_eq!(host.count(Segment::RxTotal), 0);
}

#[test]
fn with_a_pace_the_first_layer_selects_and_the_others_follow() {
    let mut host = Host::with(&Config { pace_ns: 1_000_000, ..Config::default() });
    for (byte, now_ns) in [(0, 1_000), (1, 500_000), (2, 1_100_000)] {
        host.send(byte * GRID, 100, now_ns);
    }
    assert_eq!(host.count(Segment::TxTotal), 2);
    assert_eq!(host.path.counters().get(Counter::TxUnbegun), 0, "not chosen is not missed");
}

/// A sequence number comes again, and no other byte used its row.
#[test]
fn with_a_pace_a_byte_is_not_taken_for_the_one_4_gib_before() {
    let mut host = Host::with(&Config { pace_ns: 1_000_000, ..Config::default() });
    let long_after = 30_000_000_000;
    host.send(GRID, 100, 1_000);
    host.arrive(GRID, 100, 2_000_000);
    host.reach(GRID + 100, Layer::RxSocket, 2_005_000);
    host.send(GRID, 100, long_after);
    host.arrive(GRID, 100, long_after + 2_000_000);
    host.reach(GRID + 100, Layer::RxSocket, long_after + 2_005_000);
    assert_eq!(host.count(Segment::RxTotal), 2);
    assert_eq!(host.sum_ns(Segment::RxTotal), 10_000);
    assert_eq!(host.count(Segment::TxTotal), 2);
    // The second byte is due because on loopback the receive path follows the send path; then it is not.
    for (after_ns, count) in [(2_100_000, 3), (2_200_000, 3)] {
        host.arrive(GRID, 100, long_after + after_ns);
        host.reach(GRID + 100, Layer::RxSocket, long_after + after_ns + 5_000);
        assert_eq!(host.count(Segment::RxTotal), count);
    }
}

/// Where IP has no hook, its stamp is that of the first device, as of a bridge before its port.
#[test]
fn a_packet_that_several_devices_queue_has_left_ip_once_each_time_that_tcp_sends_it() {
    let mut host = Host::with(&Config { ip_at_queue: true, traces: true, ..Config::default() });
    host.pass(GRID, 10, Layer::TxSocket, 1_000);
    for now_ns in [3_000, 3_500] {
        host.leave_ip(GRID, 10, 2_000, now_ns);
        host.pass_packet(GRID, 10, Layer::TxQueue, 2_000, now_ns);
    }
    host.pass_packet(GRID, 10, Layer::TxDriver, 2_000, 4_000);
    assert_eq!((host.count(Segment::TxTotal), host.sum_ns(Segment::IpDriver)), (1, 1_000));
    for (tcp_ns, sent) in [(8_000, 2), (12_000, 3)] {
        host.leave_ip(GRID, 10, tcp_ns, tcp_ns + 1_000);
        host.leave_ip(GRID, 10, tcp_ns, tcp_ns + 1_500);
        host.pass_packet(GRID, 10, Layer::TxDriver, tcp_ns, tcp_ns + 2_000);
        let copies: Vec<_> = host.path.traces().map(|trace| trace.sent).collect();
        assert_eq!(copies, [sent]);
    }
}

/// A connection is known by them whatever addresses others see.
#[test]
fn traces_have_the_numbers_that_the_socket_had_when_the_byte_was_written_and_when_it_was_read() {
    let mut host = Host::with(&Config { traces: true, ..Config::default() });
    let (own, other) = (Isns { src: 7, dst: 9 }, Isns { src: 1, dst: 2 });
    let numbers = |host: &Host| host.path.traces().map(|trace| trace.isns).collect::<Vec<_>>();
    host.path.set_isns(own);
    host.pass(GRID, 10, Layer::TxSocket, 1_000);
    // Packets have none.
    host.path.set_isns(other);
    host.leave_ip(GRID, 10, 2_000, 3_000);
    host.pass_packet(GRID, 10, Layer::TxDriver, 2_000, 4_000);
    assert_eq!(numbers(&host), [Some(own)]);
    host.leave_ip(GRID, 10, 8_000, 9_000);
    host.pass_packet(GRID, 10, Layer::TxDriver, 8_000, 10_000);
    assert_eq!(numbers(&host), [Some(own)], "those of a copy too");
    host.arrive(5 * GRID, 10, 1_000);
    host.path.set_isns(own);
    host.reach(5 * GRID + 10, Layer::RxSocket, 5_000);
    assert_eq!(numbers(&host), [Some(own)]);
}
