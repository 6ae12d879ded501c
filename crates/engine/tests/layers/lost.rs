//! Bytes that are lost, retransmitted, or not stamped.

use dwell_engine::layers::{ByteRange, Config, Counter, Layer, Segment};

use crate::support::{GRID, Host};

#[test]
fn a_byte_that_is_sent_again_after_it_left_counts_once() {
    let mut host = Host::new();
    host.send(GRID, 100, 1_000);
    host.leave_ip(GRID, 100, 200_000_000, 200_000_000);
    host.pass(GRID, 100, Layer::TxDriver, 200_001_000);
    assert_eq!(host.count(Segment::TxTotal), 1);
    assert_eq!(host.sum_ns(Segment::TxTotal), 4_000);
}

/// The queueing discipline dropped the first copy: the delay of the second copy is not a queueing delay.
#[test]
fn a_byte_that_was_dropped_before_the_driver_is_counted_apart() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::TxSocket, 1_000);
    host.leave_ip(GRID, 100, 2_000, 3_000);
    host.pass(GRID, 100, Layer::TxQueue, 4_000);
    for tcp_ns in [200_000_000, 300_000_000] {
        host.leave_ip(GRID, 100, tcp_ns, tcp_ns);
        host.pass_packet(GRID, 100, Layer::TxDriver, tcp_ns, tcp_ns + 1_000);
    }
    assert_eq!(host.count(Segment::TxTotal), 0);
    assert_eq!(host.path.counters().get(Counter::TxAgain), 1, "once a byte");
}

/// A pacing queueing discipline: the time in the first copy is its departure time, which says nothing about the second
/// copy.
#[test]
fn a_second_copy_gives_a_paced_packet_no_time() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::TxSocket, 1_000);
    host.leave_ip(GRID, 100, 50_000, 3_000);
    host.leave_ip(GRID, 100, 200_000_000, 200_001_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 200_000_000, 200_002_000);
    assert_eq!(host.count(Segment::TxTotal), 0);
    assert_eq!(host.path.counters().get(Counter::TxAgain), 1);
}

/// TCP retransmitted the byte while it was in a long queue.
#[test]
fn a_byte_that_is_sent_again_while_it_is_queued_is_measured_by_its_first_copy() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::TxSocket, 1_000);
    host.leave_ip(GRID, 100, 2_000, 3_000);
    host.pass_packet(GRID, 100, Layer::TxQueue, 2_000, 4_000);
    host.leave_ip(GRID, 100, 50_000, 51_000);
    host.pass_packet(GRID, 100, Layer::TxQueue, 50_000, 52_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 2_000, 60_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 50_000, 61_000);
    assert_eq!(host.count(Segment::TxTotal), 1);
    assert_eq!(host.sum_ns(Segment::Queueing), 56_000);
    assert_eq!(host.path.counters().get(Counter::TxAgain), 0);
}

/// A program that paces by EDT writes its own time into packets.
#[test]
fn a_packet_whose_time_was_changed_is_no_second_copy() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::TxSocket, 1_000);
    host.leave_ip(GRID, 100, 2_000, 3_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 70_000, 60_000);
    assert_eq!(host.sum_ns(Segment::TxTotal), 59_000);
}

/// The byte was lost in the network: its receive path starts when it arrives.
#[test]
fn on_the_receive_path_the_first_arrival_counts() {
    let mut host = Host::new();
    host.arrive(2 * GRID, GRID, 1_000_000);
    host.arrive(GRID, GRID, 300_000_000);
    host.arrive(2 * GRID, GRID, 300_100_000);
    host.reach(3 * GRID, Layer::RxReady, 300_200_000);
    host.reach(3 * GRID, Layer::RxSocket, 300_200_000);
    assert_eq!(host.sum_ns(Segment::RxTotal), (300_200_000 - 1_000_000) + 200_000);
}

#[test]
fn what_no_stamp_explains_is_unexplained_and_the_layer_is_named() {
    let mut host = Host::new();
    host.arrive(GRID, 100, 1_000);
    host.pass(2 * GRID, 100, Layer::RxDriver, 1_000);
    host.pass(2 * GRID, 100, Layer::RxTcp, 60_000);
    host.reach(2 * GRID + 100, Layer::RxReady, 70_000);
    host.reach(2 * GRID + 100, Layer::RxSocket, 80_000);
    assert_eq!(host.count(Segment::DriverIp), 1);
    assert_eq!(host.sum_ns(Segment::TcpSocket), 77_000 + 20_000);
    assert_eq!(host.sum_ns(Segment::RxUnexplained), 59_000);
    assert_eq!(host.sum_ns(Segment::RxTotal), 79_000 + 79_000);
    assert_eq!(host.path.counters().missed(Layer::RxIp), 1);
    assert_eq!(host.path.counters().missed(Layer::RxDriver), 0);
}

/// The byte was written, or arrived, before the run started.
#[test]
fn without_its_first_stamp_a_byte_is_of_no_segment() {
    let mut host = Host::new();
    host.leave_ip(GRID, 100, 2_000, 3_000);
    host.pass(GRID, 100, Layer::TxDriver, 5_000);
    host.pass(GRID, 100, Layer::RxTcp, 6_000);
    host.reach(GRID + 100, Layer::RxSocket, 9_000);
    for segment in Segment::ALL {
        assert_eq!(host.count(segment), 0, "{segment:?}");
    }
    assert_eq!(host.path.counters().get(Counter::TxUnbegun), 1);
    assert_eq!(host.path.counters().get(Counter::RxUnbegun), 1);
}

/// On a router, no socket of the host sent the byte.
#[test]
fn what_is_forwarded_is_not_missed() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::RxDriver, 1_000);
    host.pass(GRID, 100, Layer::RxIp, 2_000);
    host.pass(GRID, 100, Layer::TxQueue, 3_000);
    host.pass(GRID, 100, Layer::TxDriver, 4_000);
    assert_eq!(host.path.counters().get(Counter::TxUnbegun), 0);
    assert_eq!(host.count(Segment::TxTotal), 0);
}

/// On a kernel without a hook at the socket's entry, the figures start at the next layer.
#[test]
fn a_total_begins_at_the_first_layer_that_there_is_a_hook_for() {
    let layers = Layer::ALL[1..].to_vec();
    let mut host = Host::with(&Config { layers, ..Config::default() });
    host.leave_ip(GRID, 100, 2_000, 3_000);
    host.pass(GRID, 100, Layer::TxQueue, 4_000);
    host.pass(GRID, 100, Layer::TxDriver, 5_000);
    assert_eq!(host.count(Segment::SocketTcp), 0);
    assert_eq!(host.sum_ns(Segment::TcpIp), 1_000);
    assert_eq!(host.sum_ns(Segment::TxTotal), 3_000);
    assert_eq!(host.count(Segment::TxUnexplained), 0);
    assert_eq!(host.path.counters().missed(Layer::TxSocket), 0);
}

/// A firewall or a full backlog dropped the first copy: the wait for the second copy does not count for any layer.
#[test]
fn what_this_host_dropped_and_got_again_is_counted_apart() {
    let mut host = Host::with(&Config { again: true, ..Config::default() });
    for (device, now_ns) in [(2, 1_000), (2, 200_001_000)] {
        host.path.arrive(host.flow, grid_byte(), device, now_ns);
        host.pass(GRID, 100, Layer::RxIp, now_ns + 1_000);
    }
    host.pass(GRID, 100, Layer::RxTcp, 200_003_000);
    host.reach(GRID + 100, Layer::RxReady, 200_004_000);
    host.reach(GRID + 100, Layer::RxSocket, 200_005_000);
    assert_eq!(host.count(Segment::RxTotal), 0);
    assert_eq!(host.path.counters().get(Counter::RxAgain), 1);
    let apart = host.path.segment_again(Segment::RxTotal);
    assert_eq!((apart.count(), apart.sum_ns()), (1, 200_004_000));
}

/// A bridge and the device below it see the same packet.
#[test]
fn a_packet_that_passes_two_devices_came_once() {
    let mut host = Host::new();
    for (device, now_ns) in [(2, 1_000), (3, 2_000)] {
        host.path.arrive(host.flow, grid_byte(), device, now_ns);
    }
    host.pass(GRID, 100, Layer::RxIp, 3_000);
    host.pass(GRID, 100, Layer::RxTcp, 4_000);
    // Once more when TCP already has it: a copy that TCP discards.
    host.path.arrive(host.flow, grid_byte(), 2, 5_000);
    host.reach(GRID + 100, Layer::RxSocket, 6_000);
    assert_eq!(host.path.counters().get(Counter::RxAgain), 0);
    assert_eq!(host.sum_ns(Segment::RxTotal), 5_000);
}

#[test]
fn a_receive_path_without_a_hook_at_the_driver_starts_at_ip() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::RxIp, 2_000);
    host.pass(GRID, 100, Layer::RxTcp, 3_000);
    host.reach(GRID + 100, Layer::RxSocket, 5_000);
    assert_eq!(host.sum_ns(Segment::RxTotal), 3_000);
    assert_eq!(host.count(Segment::DriverIp), 0);
    assert_eq!(host.path.counters().missed(Layer::RxDriver), 1);
}

/// All bytes share one row: the byte of the second flow replaces that of the first.
#[test]
fn bytes_that_lose_their_place_are_counted() {
    let mut host = Host::with(&Config { rows: 1, sample_bytes: 1 << 24, ..Config::default() });
    let rows = Config { rows: 1, ..Config::default() }.rows();
    host.pass(0, 100, Layer::TxSocket, 1_000);
    host.arrive(0, 100, 2_000);
    for other in 1..=rows {
        host.pass(other << 24, 100, Layer::TxSocket, 3_000);
    }
    let counters = host.path.counters();
    assert_eq!((counters.get(Counter::TxDisplaced), counters.get(Counter::RxDisplaced)), (1, 1));
}

/// Each copy of a byte that leaves is reported; only the first one counts in a segment.
#[test]
fn each_copy_has_a_trace() {
    let mut host = Host::with(&Config { traces: true, again: true, ..Config::default() });
    host.send(GRID, 100, 1_000);
    let first: Vec<_> = host.path.traces().collect();
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].seq, first[0].sent, first[0].again), (GRID, 1, false));
    assert_eq!(first[0].segment_ns(Segment::TxTotal), Some(4_000));
    assert_eq!(first[0].stamp_ns(Layer::RxDriver), None);

    host.leave_ip(GRID, 100, 200_000_000, 200_001_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 200_000_000, 200_003_000);
    let second: Vec<_> = host.path.traces().collect();
    assert_eq!(second.len(), 1);
    assert_eq!((second[0].seq, second[0].sent, second[0].again), (GRID, 2, true));
    assert_eq!(second[0].segment_ns(Segment::SocketTcp), Some(199_999_000));
    assert_eq!(second[0].segment_ns(Segment::TcpIp), Some(1_000));
    assert_eq!(second[0].segment_ns(Segment::IpDriver), Some(2_000));

    assert_eq!(host.count(Segment::TxTotal), 1);
    assert_eq!(host.path.segment_again(Segment::TxTotal).count(), 1);
}

/// Behind `fq`, where the packet carries its departure time.
#[test]
fn without_tcps_time_the_sockets_segment_ends_at_ip() {
    let mut host = Host::new();
    host.pass(GRID, 100, Layer::TxSocket, 1_000);
    host.leave_ip(GRID, 100, 90_000, 51_000);
    host.pass_packet(GRID, 100, Layer::TxQueue, 90_000, 52_000);
    host.pass_packet(GRID, 100, Layer::TxDriver, 90_000, 90_000);
    assert_eq!(host.sum_ns(Segment::SocketTcp), 50_000);
    assert_eq!(host.count(Segment::TcpIp), 0);
    assert_eq!(host.count(Segment::TxUnexplained), 0);
    assert_eq!(host.path.counters().missed(Layer::TxTcp), 1);
}

fn grid_byte() -> ByteRange {
    ByteRange { seq: GRID, bytes: 100 }
}
