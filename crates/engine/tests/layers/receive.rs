//! The receive path.

use dwell_engine::layers::{Layer, Segment};

use crate::support::{GRID, Host};

#[test]
fn the_two_parts_of_waiting_in_the_socket_are_distinguished() {
    let mut host = Host::new();
    // The second packet overtakes the first.
    host.arrive(2 * GRID, GRID, 1_000_000);
    host.arrive(GRID, GRID, 5_000_000);
    host.reach(3 * GRID, Layer::RxReady, 5_003_000);
    host.reach(3 * GRID, Layer::RxSocket, 5_103_000);
    assert_eq!(host.count(Segment::TcpSocket), 2);
    assert_eq!(host.sum_ns(Segment::Reordering), 1_000 + (5_003_000 - 1_002_000));
    assert_eq!(host.sum_ns(Segment::Application), 2 * 100_000);
    assert_eq!(host.sum_ns(Segment::TcpSocket), host.sum_ns(Segment::Reordering) + host.sum_ns(Segment::Application));
    assert_eq!(
        host.sum_ns(Segment::RxTotal),
        host.sum_ns(Segment::DriverIp) + host.sum_ns(Segment::IpTcp) + host.sum_ns(Segment::TcpSocket)
    );
    assert_eq!(host.count(Segment::RxUnexplained), 0);
}

/// GRO merges packets between the driver and IP.
#[test]
fn packets_that_are_merged_on_the_path_are_matched_byte_by_byte() {
    let mut host = Host::new();
    for (slot, now_ns) in [(1, 1_000), (2, 2_000), (3, 3_000)] {
        host.pass(slot * GRID, GRID, Layer::RxDriver, now_ns);
    }
    host.pass(GRID, 3 * GRID, Layer::RxIp, 10_000);
    host.pass(GRID, 3 * GRID, Layer::RxTcp, 10_000);
    host.reach(4 * GRID, Layer::RxReady, 10_000);
    host.reach(4 * GRID, Layer::RxSocket, 10_000);
    assert_eq!(host.count(Segment::DriverIp), 3);
    assert_eq!(host.sum_ns(Segment::DriverIp), 9_000 + 8_000 + 7_000);
}

#[test]
fn a_read_of_a_part_counts_what_was_read() {
    let mut host = Host::new();
    host.arrive(GRID, 3 * GRID, 1_000);
    host.reach(4 * GRID, Layer::RxReady, 4_000);
    host.reach(2 * GRID, Layer::RxSocket, 5_000);
    assert_eq!(host.count(Segment::RxTotal), 1);
    host.reach(2 * GRID, Layer::RxSocket, 6_000);
    assert_eq!(host.count(Segment::RxTotal), 1, "nothing new was read");
    host.reach(4 * GRID, Layer::RxSocket, 7_000);
    assert_eq!(host.count(Segment::RxTotal), 3);
    assert_eq!(host.sum_ns(Segment::RxTotal), 4_000 + 2 * 6_000);
}

/// Filling a hole releases many bytes at once.
#[test]
fn all_that_comes_into_order_at_once_is_stamped() {
    let mut host = Host::new();
    for slot in 2..200 {
        host.arrive(slot * GRID, GRID, u64::from(slot));
    }
    host.arrive(GRID, GRID, 1_000_000);
    host.reach(200 * GRID, Layer::RxReady, 2_000_000);
    host.reach(200 * GRID, Layer::RxSocket, 2_000_000);
    assert_eq!(host.count(Segment::Reordering), 199);
    assert!(host.path.segment(Segment::Reordering).min_ns().unwrap() > 900_000);
}

/// The kernel may miss an event: other bytes are not affected.
#[test]
fn rows_that_are_missing_do_not_end_a_walk_at_once() {
    let mut host = Host::new();
    host.arrive(GRID, GRID, 1_000);
    host.arrive(4 * GRID, GRID, 2_000);
    host.reach(5 * GRID, Layer::RxReady, 5_000);
    host.reach(5 * GRID, Layer::RxSocket, 6_000);
    assert_eq!(host.count(Segment::RxTotal), 2);
}
