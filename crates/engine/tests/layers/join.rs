//! Bytes that two hosts report. All times are those of a common clock, which starts at T.

use std::num::NonZeroU64;

use dwell_engine::{
    layers::{
        ByteTrace, Direction, Ends, Layer, PathSegment, Segment,
        join::{Checkpoint, Config, HostTrace, Joiner, PathKey, Window},
    },
    measure::Endpoint,
};

pub const T: u64 = 1_000_000_000_000;
pub const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
pub const A: u32 = 0;
pub const B: u32 = 1;

pub fn ends(sport: u16) -> Ends {
    let end = |address: [u8; 4], port| Endpoint { address: address.into(), port };
    Ends { src: end([192, 0, 2, 1], sport), dst: end([192, 0, 2, 2], 443) }
}

/// Returns the trace of the byte `seq`, with stamps in ns after T, on a clock with another origin.
fn byte_trace(seq: u32, stamps: &[(Layer, u64)]) -> ByteTrace {
    let mut byte_trace = ByteTrace {
        ends: ends(40_000),
        namespace: 0,
        seq,
        isns: None,
        direction: stamps[0].0.direction(),
        sent: 1,
        again: false,
        stamps: [None; Layer::ALL.len()],
    };
    for (layer, ns) in stamps {
        byte_trace.stamps[*layer as usize] = NonZeroU64::new(77 * S + ns);
    }
    byte_trace
}

/// Returns a trace of 1, 2 and 30 µs through the layers, 25 of them queued; the byte reaches the driver at `edge_ns`
/// after T.
pub fn sent(seq: u32, edge_ns: u64) -> HostTrace {
    let at = |layer, before_ns: u64| (layer, edge_ns + S - before_ns);
    let byte_trace = byte_trace(
        seq,
        &[
            at(Layer::TxSocket, 33_000),
            at(Layer::TxTcp, 32_000),
            at(Layer::TxIp, 30_000),
            at(Layer::TxQueue, 25_000),
            at(Layer::TxDriver, 0),
        ],
    );
    trace(A, byte_trace, edge_ns)
}

/// Returns a trace of 4, 5 and 600 µs through the layers, 100 of them out of order.
pub fn read(seq: u32, edge_ns: u64) -> HostTrace {
    let at = |layer, after_ns: u64| (layer, edge_ns + S + after_ns);
    let byte_trace = byte_trace(
        seq,
        &[
            at(Layer::RxDriver, 0),
            at(Layer::RxIp, 4_000),
            at(Layer::RxTcp, 9_000),
            at(Layer::RxReady, 109_000),
            at(Layer::RxSocket, 609_000),
        ],
    );
    trace(B, byte_trace, edge_ns)
}

fn trace(host: u32, byte_trace: ByteTrace, edge_ns: u64) -> HostTrace {
    HostTrace { host, trace: byte_trace, edge_ns: T + edge_ns, bound_ns: 500, arrived_ns: T + edge_ns + 10 * MS }
}

pub fn joiner() -> Joiner {
    Joiner::new(Config::default(), Checkpoint::default())
}

pub fn all(joiner: &mut Joiner) -> Vec<Window> {
    joiner.take_finished(T + 10 * S, T + 100 * S)
}

fn key(flow: Option<Ends>, resent: bool) -> PathKey {
    PathKey { tx_host: A, rx_host: B, flow, rx_flow: None, resent }
}

#[test]
fn the_segments_of_a_path_add_up_to_its_time_from_end_to_end() {
    for first_half in [A, B] {
        let mut joiner = joiner();
        let (down, up) = (sent(0, MS), read(0, 6 * MS));
        match first_half {
            A => [down, up].map(|trace| joiner.add(trace)),
            _ => {
                // The sender's agent reports late.
                let arrived_ns = up.arrived_ns + 1;
                [up, HostTrace { arrived_ns, ..down }].map(|trace| joiner.add(trace))
            }
        };
        let windows = all(&mut joiner);
        assert_eq!(windows.len(), 1);
        assert_eq!(windows[0].end_ns, T + S);
        let keys: Vec<_> = windows[0].paths.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [key(None, false), key(Some(ends(40_000)), false)]);
        for (_, path) in &windows[0].paths {
            let took = |segment| {
                let histogram = path.segment(segment);
                assert!(histogram.count() <= 1, "{segment:?}");
                histogram.max_ns()
            };
            for (segment, ns) in [
                (PathSegment::Host(Segment::SocketTcp), 1_000),
                (PathSegment::Host(Segment::TcpIp), 2_000),
                (PathSegment::Host(Segment::IpDriver), 30_000),
                (PathSegment::Host(Segment::Queueing), 25_000),
                (PathSegment::Host(Segment::TxTotal), 33_000),
                (PathSegment::Network, 5_000_000),
                (PathSegment::Host(Segment::DriverIp), 4_000),
                (PathSegment::Host(Segment::IpTcp), 5_000),
                (PathSegment::Host(Segment::TcpSocket), 600_000),
                (PathSegment::Host(Segment::Reordering), 100_000),
                (PathSegment::Host(Segment::Application), 500_000),
                (PathSegment::Host(Segment::RxTotal), 609_000),
                (PathSegment::EndToEnd, 5_642_000),
            ] {
                assert_eq!(took(segment), Some(ns), "{segment:?}");
            }
            assert_eq!(took(PathSegment::Host(Segment::TxUnexplained)), None);
            let sum: u64 = PathSegment::ALL.into_iter().filter(|segment| segment.is_addend()).filter_map(took).sum();
            assert_eq!(Some(sum), took(PathSegment::EndToEnd));
            assert_eq!((path.bound_ns, path.clamped), (1_000, 0));
        }
        assert_eq!(joiner.counters().matched, 1);
    }
}

#[test]
fn what_a_missing_stamp_leaves_open_is_unexplained_and_still_adds_up() {
    let mut joiner = joiner();
    let mut up = read(0, 6 * MS);
    up.trace.stamps[Layer::RxTcp as usize] = None;
    let mut down = sent(0, MS);
    down.trace.stamps[Layer::TxTcp as usize] = None;
    joiner.add(down);
    joiner.add(up);
    let windows = all(&mut joiner);
    let (_, path) = &windows[0].paths[0];
    let took = |segment| path.segment(segment).max_ns();
    assert_eq!(took(PathSegment::Host(Segment::SocketTcp)), Some(3_000), "up to IP");
    assert_eq!(took(PathSegment::Host(Segment::IpTcp)), None);
    assert_eq!(took(PathSegment::Host(Segment::RxUnexplained)), Some(605_000));
    assert_eq!(took(PathSegment::EndToEnd), Some(5_642_000));
    let addends = PathSegment::ALL.into_iter().filter(|segment| segment.is_addend());
    assert_eq!(addends.filter_map(took).sum::<u64>(), 5_642_000);
}

#[test]
fn a_byte_belongs_to_the_interval_in_which_it_was_read() {
    let mut joiner = joiner();
    // The byte was read 0.6 ms after it arrived, in the next interval.
    joiner.add(sent(0, 999 * MS));
    joiner.add(read(0, S - MS / 2));
    joiner.add(sent(1 << 14, 999 * MS));
    joiner.add(read(1 << 14, S - MS));
    let ends: Vec<_> = all(&mut joiner).iter().map(|window| window.end_ns).collect();
    assert_eq!(ends, [T + S, T + 2 * S]);
}

#[test]
fn an_interval_is_reported_once_and_late_traces_are_reported_after() {
    let mut joiner = joiner();
    joiner.add(sent(0, MS));
    joiner.add(read(0, 2 * MS));
    assert_eq!(joiner.take_finished(T + S, T + S), [], "it may be sent again still");
    assert_eq!(joiner.take_finished(T + 2 * S, T + S).len(), 1);
    assert_eq!(joiner.take_finished(T + 3 * S, T + 2 * S), []);
    let late = |trace: HostTrace| HostTrace { arrived_ns: T + 4 * S, ..trace };
    joiner.add(late(sent(1 << 14, MS)));
    joiner.add(late(read(1 << 14, 2 * MS)));
    let windows = joiner.take_finished(T + 6 * S, T + 5 * S);
    assert_eq!(windows[0].end_ns, T + S);
}

#[test]
fn below_zero_within_the_bound_is_zero_and_beyond_it_a_fault_of_a_clock() {
    let mut joiner = joiner();
    joiner.add(sent(0, 2 * MS));
    joiner.add(read(0, 2 * MS - 1_000));
    joiner.add(sent(1 << 14, 2 * MS));
    joiner.add(read(1 << 14, 2 * MS - 1_001));
    let windows = all(&mut joiner);
    let (_, path) = &windows[0].paths[0];
    assert_eq!(path.clamped, 1);
    assert_eq!(path.segment(PathSegment::Network).count(), 1);
    assert_eq!(path.segment(PathSegment::Network).max_ns(), Some(0));
    assert_eq!(path.segment(PathSegment::EndToEnd).max_ns(), Some(642_000));
    let counters = joiner.counters();
    assert_eq!((counters.matched, counters.clamped, counters.clock_faults), (1, 1, 1));
}

#[test]
fn a_byte_that_was_lost_and_sent_again_counts_by_its_first_copy_and_first_arrival() {
    let again = |trace: HostTrace| {
        let mut trace = trace;
        (trace.trace.again, trace.trace.sent) = (true, 2);
        trace
    };
    let mut joiner = joiner();
    // Byte 0 is reported in the order of events. For byte 1, the receiver's agent is faster than the sender's, which
    // reports the second copy last.
    for (seq, order) in [(0, [0, 1, 2]), (1 << 14, [0, 2, 1])] {
        let traces = [sent(seq, MS), again(sent(seq, 201 * MS)), read(seq, 206 * MS)];
        for index in order {
            let arrived_ns = T + 300 * MS;
            joiner.add(HostTrace { arrived_ns, ..traces[index] });
        }
    }
    // Byte 2: an unnecessary copy, which left after the first one had arrived.
    joiner.add(sent(2 << 14, 400 * MS));
    joiner.add(read(2 << 14, 405 * MS));
    joiner.add(again(sent(2 << 14, 420 * MS)));
    // Byte 3: the first copy never left the sender.
    joiner.add(again(sent(3 << 14, 500 * MS)));
    joiner.add(read(3 << 14, 505 * MS));
    let windows = all(&mut joiner);
    let network = |resent| {
        let mut paths = windows[0].paths.iter();
        let (_, path) = paths.find(|(it, _)| *it == key(None, resent)).unwrap();
        let network = path.segment(PathSegment::Network);
        (network.count(), network.min_ns(), network.max_ns())
    };
    assert_eq!(network(true), (3, Some(5 * MS), Some(205 * MS)));
    assert_eq!(network(false), (1, Some(5 * MS), Some(5 * MS)));
    assert_eq!((joiner.counters().matched, joiner.counters().resent), (4, 3));
}

/// The same sequence numbers come again 4 GiB later. Of the earlier byte, one host has no trace.
#[test]
fn a_trace_without_counterpart_yields_to_the_next_byte_with_its_number() {
    let mut joiner = joiner();
    joiner.add(sent(0, MS));
    // Either the sender or the receiver reports first.
    joiner.add(sent(0, 400 * MS));
    joiner.add(read(0, 405 * MS));
    joiner.add(sent(1 << 14, MS));
    joiner.add(read(1 << 14, 405 * MS));
    let late = HostTrace { arrived_ns: T + 416 * MS, ..sent(1 << 14, 400 * MS) };
    joiner.add(late);
    joiner.add(read(2 << 14, MS));
    joiner.add(read(2 << 14, 405 * MS));
    joiner.add(sent(2 << 14, 400 * MS));
    let windows = all(&mut joiner);
    let (_, path) = &windows[0].paths[0];
    let network = path.segment(PathSegment::Network);
    assert_eq!((network.count(), network.max_ns()), (3, Some(5 * MS)));
    let counters = joiner.counters();
    assert_eq!((counters.unmatched_tx, counters.unmatched_rx), (2, 1));
    assert_eq!(counters.clock_faults, 0);
}

#[test]
fn what_waits_too_long_or_among_too_many_is_given_up_and_counted() {
    let mut waits = joiner();
    waits.add(sent(0, MS));
    waits.add(read(1 << 14, MS));
    waits.advance(T + 70 * S);
    waits.advance(T + 140 * S);
    let counters = waits.counters();
    assert_eq!((counters.unmatched_tx, counters.unmatched_rx), (1, 1));
    assert_eq!(counters.crowded, 0);

    let config = Config { max_waiting: 100, ..Config::default() };
    let mut few = Joiner::new(config, Checkpoint::default());
    for seq in 0..1000 {
        few.add(sent(seq, MS));
    }
    let counters = few.counters();
    assert!((900..1000).contains(&counters.crowded), "{counters:?}");
    assert_eq!(counters.unmatched_tx, counters.crowded);
    // The last bytes are still present.
    few.add(read(999, 2 * MS));
    few.advance(T + 2 * S);
    assert_eq!(few.counters().matched, 1);

    // Both traces are present: making room does not lose them.
    let mut pairs = Joiner::new(config, Checkpoint::default());
    for seq in 0..1000 {
        pairs.add(sent(seq, MS));
        pairs.add(read(seq, 2 * MS));
    }
    pairs.advance(T + 2 * S);
    assert_eq!(pairs.counters().matched, 1000);
    assert_eq!(pairs.counters().crowded, 0);
}

/// It settles when the byte before it with the same key would have.
#[test]
fn a_byte_that_comes_after_one_that_was_dropped_is_not_lost_with_it() {
    let config = Config { max_waiting: 2, ..Config::default() };
    let mut joiner = Joiner::new(config, Checkpoint::default());
    let pair = |joiner: &mut Joiner, seq| [sent(seq, MS), read(seq, MS)].map(|trace| joiner.add(trace));
    pair(&mut joiner, 0);
    // Two others, for which it makes room.
    pair(&mut joiner, 1);
    pair(&mut joiner, 2);
    let again = sent(0, MS);
    joiner.add(HostTrace { arrived_ns: T + S, ..again });
    joiner.advance(T + 2 * S);
    joiner.advance(T + 60 * S);
    joiner.advance(T + 120 * S);
    let counters = joiner.counters();
    assert_eq!((counters.matched, counters.unmatched_tx), (3, 1), "{counters:?}");
}

/// One host reports far more than all others together.
#[test]
fn a_host_that_reports_too_much_does_not_take_the_room_of_others() {
    const GREEDY: u32 = 7;
    let config = Config { max_waiting: 1_000, ..Config::default() };
    let mut joiner = Joiner::new(config, Checkpoint::default());
    let mut seq = 1_000_000;
    for round in 0..100 {
        joiner.add(sent(round, MS));
        for _ in 0..10_000 {
            seq += 1;
            joiner.add(HostTrace { host: GREEDY, ..sent(seq, MS) });
        }
        if round >= 10 {
            // Its other half comes 100,000 traces later.
            joiner.add(read(round - 10, 2 * MS));
        }
    }
    joiner.advance(T + 5 * S);
    // Until the first trace of another host arrived, there was nobody to leave room for.
    let counters = joiner.counters();
    assert!(counters.matched >= 85, "{counters:?}");
    assert!(counters.crowded > 900_000, "{counters:?}");
}

/// A host may invent both ends of bytes, and times for them.
#[test]
fn paths_that_are_not_reported_yet_have_a_bound_and_one_host_leaves_room_for_others() {
    let config = Config { max_paths: 1_000, ..Config::default() };
    let mut joiner = Joiner::new(config, Checkpoint::default());
    let add = |joiner: &mut Joiner, host: Option<u32>, seq: u32, at_ns| {
        for mut trace in [sent(seq, at_ns), read(seq, at_ns + MS)] {
            trace.host = host.unwrap_or(trace.host);
            trace.arrived_ns = T + 90_000 * S;
            joiner.add(trace);
        }
    };
    // Each in an interval of its own.
    (0..10_000).for_each(|seq| add(&mut joiner, Some(7), seq, u64::from(seq) * S));
    (10_000..10_010).for_each(|seq| add(&mut joiner, None, seq, u64::from(seq) * S));
    let windows = joiner.take_finished(T + 90_005 * S, T + 90_000 * S);
    let of = |host| {
        let keys = windows.iter().flat_map(|window| &window.paths).map(|(key, _)| key);
        keys.filter(|key| key.tx_host == host).count()
    };
    assert!((490..=510).contains(&of(7)), "{}", of(7));
    assert_eq!(of(A), 20, "of each byte the sums and its flow");
    let counters = joiner.counters();
    assert_eq!(counters.matched, 10_010);
    assert!(counters.paths_omitted > 9_000, "{counters:?}");
    // There is room again.
    add(&mut joiner, Some(7), 20_000, 20_000 * S);
    assert_eq!(joiner.take_finished(T + 90_010 * S, T + 90_000 * S).len(), 1);
}

#[test]
fn flows_beyond_the_bound_are_in_the_sums() {
    let config = Config { flows: 4, ..Config::default() };
    let mut joiner = Joiner::new(config, Checkpoint::default());
    for sport in 0..10 {
        for mut trace in [sent(0, MS), read(0, 2 * MS)] {
            trace.trace.ends = ends(sport);
            joiner.add(trace);
        }
    }
    let windows = all(&mut joiner);
    assert_eq!(windows[0].paths.len(), 4);
    assert_eq!(windows[0].paths[0].1.segment(PathSegment::EndToEnd).count(), 10);
    assert_eq!(joiner.counters().flows_omitted, 7);
}

/// A collector that is killed at any time, and then replays what it had stored, reports each byte exactly once.
#[test]
fn what_was_reported_before_a_restart_is_not_reported_again() {
    let traces: Vec<_> = (0..4000u64)
        .flat_map(|number| {
            let (seq, at_ns) = (number as u32, number * MS);
            let late_ms = if number % 7 == 0 { 1800 } else { 0 };
            let mut up = read(seq, at_ns + 3 * MS);
            up.arrived_ns += late_ms * MS;
            [sent(seq, at_ns), up]
        })
        .collect();
    let mut traces = traces;
    traces.sort_by_key(|trace| trace.arrived_ns);
    for killed_ms in (1500..6000).step_by(333) {
        let killed_ns = T + killed_ms * MS;
        let mut checkpoint = Checkpoint::default();
        let mut bytes = 0;
        let mut run = |joiner: &mut Joiner, checkpoint: &mut Checkpoint, now_ns: u64| {
            let until_ns = (now_ns - 2 * S) / S * S;
            for window in joiner.take_finished(now_ns, until_ns) {
                bytes += window.paths[0].1.segment(PathSegment::EndToEnd).count();
            }
            *checkpoint = Checkpoint { settled_ns: now_ns, end_ns: until_ns };
        };
        let mut first = Joiner::new(Config::default(), checkpoint);
        let mut next_ns = T + S + 123;
        for trace in traces.iter().filter(|trace| trace.arrived_ns < killed_ns) {
            while trace.arrived_ns >= next_ns {
                run(&mut first, &mut checkpoint, next_ns);
                next_ns += S;
            }
            first.add(*trace);
        }
        let mut second = Joiner::new(Config::default(), checkpoint);
        for trace in &traces {
            second.add(*trace);
        }
        run(&mut second, &mut checkpoint, T + 20 * S);
        assert_eq!(bytes, 4000, "killed at {killed_ms} ms");
    }
}

#[test]
fn a_trace_without_a_stamp_at_the_driver_has_no_edge() {
    let byte_trace = byte_trace(0, &[(Layer::RxIp, 5), (Layer::RxSocket, 9)]);
    assert_eq!(byte_trace.direction, Direction::Rx);
    assert_eq!(HostTrace::edge_of(&byte_trace), None);
    assert!(HostTrace::edge_of(&sent(0, MS).trace).is_some());
}

/// The other trace was lost on the path to the collector, and the sequence number comes again 4 GiB later.
#[test]
fn a_lone_arrival_is_not_joined_with_what_left_long_after() {
    let mut joiner = joiner();
    joiner.add(read(0, MS));
    joiner.add(sent(0, 4 * S));
    joiner.add(read(0, 4 * S + 5 * MS));
    let windows = all(&mut joiner);
    let counters = joiner.counters();
    assert_eq!(counters.clock_faults, 0);
    assert_eq!((counters.matched, counters.unmatched_rx), (1, 1));
    let (_, path) = &windows[0].paths[0];
    assert_eq!(path.segment(PathSegment::Network).sum_ns(), u128::from(5 * MS));
}

#[test]
fn after_a_restart_with_another_interval_each_byte_is_reported_once() {
    let bytes = [100, 900, 1_100, 1_900, 2_100].map(|ms| ms * MS);
    let with = |window_ns, checkpoint| {
        let config = Config { window_ns, ..Config::default() };
        let mut joiner = Joiner::new(config, checkpoint);
        for (seq, edge_ns) in bytes.into_iter().enumerate() {
            joiner.add(sent(seq as u32, edge_ns));
            joiner.add(read(seq as u32, edge_ns + MS));
        }
        joiner
    };
    let reported = |windows: Vec<Window>| -> u64 {
        let paths = windows.iter().flat_map(|window| &window.paths);
        let sums = paths.filter(|(key, _)| key.flow.is_none());
        sums.map(|(_, path)| path.segment(PathSegment::EndToEnd).count()).sum()
    };
    let checkpoint = Checkpoint { settled_ns: T + 4 * S, end_ns: T + 2 * S };
    let mut before = with(S, Checkpoint::default());
    assert_eq!(reported(before.take_finished(checkpoint.settled_ns, checkpoint.end_ns)), 4);
    for window_ns in [S, 2 * S, 3 * S, 10 * S, S / 2] {
        let mut after = with(window_ns, checkpoint);
        assert_eq!(reported(all(&mut after)), 1, "{window_ns}");
    }
}

/// Puts a trace into a network namespace.
fn within(namespace: u32, half: HostTrace) -> HostTrace {
    HostTrace { trace: ByteTrace { namespace, ..half.trace }, ..half }
}

#[test]
fn loopback_is_joined_within_a_namespace_of_a_host_only() {
    let at = |host, namespace, half: HostTrace| {
        let loopback = Endpoint { address: [127, 0, 0, 1].into(), port: 1 };
        let mut half = within(namespace, HostTrace { host, ..half });
        half.trace.ends = Ends { src: loopback, dst: loopback };
        half
    };
    let mut joiner = joiner();
    joiner.add(at(A, 1, sent(0, MS)));
    joiner.add(at(A, 2, sent(0, 2 * MS)));
    joiner.add(at(B, 1, read(0, 3 * MS)));
    assert!(all(&mut joiner).is_empty());
    joiner.add(HostTrace { arrived_ns: T + 20 * MS, ..at(A, 2, read(0, 4 * MS)) });
    let windows = all(&mut joiner);
    let (key, path) = &windows[0].paths[0];
    assert_eq!((key.tx_host, key.rx_host), (A, A));
    assert_eq!(path.segment(PathSegment::Network).max_ns(), Some(2 * MS));
    assert_eq!((joiner.counters().matched, joiner.counters().ambiguous), (1, 0));
}

#[test]
fn a_byte_that_two_namespaces_of_a_host_report_is_in_no_path() {
    let mut joiner = joiner();
    joiner.add(within(1, sent(0, MS)));
    joiner.add(within(2, sent(0, 2 * MS)));
    joiner.add(read(0, 6 * MS));
    // This one is of one namespace at each host.
    joiner.add(within(1, sent(1 << 14, 10 * MS)));
    joiner.add(within(7, read(1 << 14, 16 * MS)));
    let windows = all(&mut joiner);
    assert_eq!(windows[0].paths[0].1.segment(PathSegment::Network).count(), 1);
    assert_eq!((joiner.counters().matched, joiner.counters().ambiguous), (1, 1));
}
