//! Bytes that two hosts tell of. The times are those of a common clock, which begins at T.

use std::num::NonZeroU64;

use dwell_engine::{
    layers::{
        Direction, Ends, Layer, Leg, Passage, Segment,
        join::{Config, Half, Joiner, PathKey, Told, Window},
    },
    measure::Endpoint,
};

const T: u64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const A: u32 = 0;
const B: u32 = 1;

fn ends(sport: u16) -> Ends {
    let end = |address: [u8; 4], port| Endpoint { address: address.into(), port };
    Ends { src: end([192, 0, 2, 1], sport), dst: end([192, 0, 2, 2], 443) }
}

/// Of the byte `seq`, stamped at these times in ns after T, on a clock that began elsewhere.
fn passage(seq: u32, stamps: &[(Layer, u64)]) -> Passage {
    let mut passage = Passage {
        ends: ends(40_000),
        seq,
        direction: stamps[0].0.direction(),
        sent: 1,
        again: false,
        stamps: [None; Layer::ALL.len()],
    };
    for (layer, ns) in stamps {
        passage.stamps[*layer as usize] = NonZeroU64::new(77 * S + ns);
    }
    passage
}

/// Down in 1, 2 and 30 µs, of which 25 queued; reaches the driver at `edge_ns` after T.
fn sent(seq: u32, edge_ns: u64) -> Half {
    let at = |layer, before_ns: u64| (layer, edge_ns + S - before_ns);
    let passage = passage(
        seq,
        &[
            at(Layer::TxSocket, 33_000),
            at(Layer::TxTcp, 32_000),
            at(Layer::TxIp, 30_000),
            at(Layer::TxQueue, 25_000),
            at(Layer::TxDriver, 0),
        ],
    );
    half(A, passage, edge_ns)
}

/// Up in 4, 5 and 600 µs, of which 100 out of order.
fn read(seq: u32, edge_ns: u64) -> Half {
    let at = |layer, after_ns: u64| (layer, edge_ns + S + after_ns);
    let passage = passage(
        seq,
        &[
            at(Layer::RxDriver, 0),
            at(Layer::RxIp, 4_000),
            at(Layer::RxTcp, 9_000),
            at(Layer::RxReady, 109_000),
            at(Layer::RxSocket, 609_000),
        ],
    );
    half(B, passage, edge_ns)
}

fn half(host: u32, passage: Passage, edge_ns: u64) -> Half {
    Half { host, passage, edge_ns: T + edge_ns, bound_ns: 500, arrived_ns: T + edge_ns + 10 * MS }
}

fn joiner() -> Joiner {
    Joiner::new(Config::default(), Told::default())
}

fn all(joiner: &mut Joiner) -> Vec<Window> {
    joiner.take(T + 10 * S, T + 100 * S)
}

fn key(flow: Option<Ends>, resent: bool) -> PathKey {
    PathKey { tx_host: A, rx_host: B, flow, resent }
}

#[test]
fn the_legs_of_a_byte_add_up_to_its_way_from_end_to_end() {
    for first_half in [A, B] {
        let mut joiner = joiner();
        let (down, up) = (sent(0, MS), read(0, 6 * MS));
        match first_half {
            A => [down, up].map(|half| joiner.add(half)),
            _ => {
                // The sender's agent is late.
                let arrived_ns = up.arrived_ns + 1;
                [up, Half { arrived_ns, ..down }].map(|half| joiner.add(half))
            }
        };
        let windows = all(&mut joiner);
        assert_eq!(windows.len(), 1);
        assert_eq!(windows[0].end_ns, T + S);
        let keys: Vec<_> = windows[0].paths.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [key(None, false), key(Some(ends(40_000)), false)]);
        for (_, path) in &windows[0].paths {
            let took = |leg| {
                let histogram = path.leg(leg);
                assert!(histogram.count() <= 1, "{leg:?}");
                histogram.max_ns()
            };
            for (leg, ns) in [
                (Leg::Host(Segment::SocketTcp), 1_000),
                (Leg::Host(Segment::TcpIp), 2_000),
                (Leg::Host(Segment::IpDriver), 30_000),
                (Leg::Host(Segment::Queueing), 25_000),
                (Leg::Host(Segment::TxTotal), 33_000),
                (Leg::Network, 5_000_000),
                (Leg::Host(Segment::DriverIp), 4_000),
                (Leg::Host(Segment::IpTcp), 5_000),
                (Leg::Host(Segment::TcpSocket), 600_000),
                (Leg::Host(Segment::Reordering), 100_000),
                (Leg::Host(Segment::Application), 500_000),
                (Leg::Host(Segment::RxTotal), 609_000),
                (Leg::EndToEnd, 5_642_000),
            ] {
                assert_eq!(took(leg), Some(ns), "{leg:?}");
            }
            assert_eq!(took(Leg::Host(Segment::TxUnexplained)), None);
            let sum: u64 = Leg::ALL.into_iter().filter(|leg| leg.is_addend()).filter_map(took).sum();
            assert_eq!(Some(sum), took(Leg::EndToEnd));
            assert_eq!((path.bound_ns, path.clamped), (1_000, 0));
        }
        assert_eq!(joiner.counters().matched, 1);
    }
}

#[test]
fn what_a_missing_stamp_leaves_open_is_unexplained_and_still_adds_up() {
    let mut joiner = joiner();
    let mut up = read(0, 6 * MS);
    up.passage.stamps[Layer::RxTcp as usize] = None;
    let mut down = sent(0, MS);
    down.passage.stamps[Layer::TxTcp as usize] = None;
    joiner.add(down);
    joiner.add(up);
    let windows = all(&mut joiner);
    let (_, path) = &windows[0].paths[0];
    let took = |leg| path.leg(leg).max_ns();
    assert_eq!(took(Leg::Host(Segment::SocketTcp)), Some(3_000), "up to IP");
    assert_eq!(took(Leg::Host(Segment::IpTcp)), None);
    assert_eq!(took(Leg::Host(Segment::RxUnexplained)), Some(605_000));
    assert_eq!(took(Leg::EndToEnd), Some(5_642_000));
    let addends = Leg::ALL.into_iter().filter(|leg| leg.is_addend());
    assert_eq!(addends.filter_map(took).sum::<u64>(), 5_642_000);
}

#[test]
fn a_byte_belongs_to_the_interval_in_which_it_was_read() {
    let mut joiner = joiner();
    // Read 0.6 ms after it came, in the next interval.
    joiner.add(sent(0, 999 * MS));
    joiner.add(read(0, S - MS / 2));
    joiner.add(sent(1 << 14, 999 * MS));
    joiner.add(read(1 << 14, S - MS));
    let ends: Vec<_> = all(&mut joiner).iter().map(|window| window.end_ns).collect();
    assert_eq!(ends, [T + S, T + 2 * S]);
}

#[test]
fn an_interval_is_told_once_and_what_comes_late_is_told_after() {
    let mut joiner = joiner();
    joiner.add(sent(0, MS));
    joiner.add(read(0, 2 * MS));
    assert_eq!(joiner.take(T + S, T + S), [], "it may be sent again still");
    assert_eq!(joiner.take(T + 2 * S, T + S).len(), 1);
    assert_eq!(joiner.take(T + 3 * S, T + 2 * S), []);
    let late = |half: Half| Half { arrived_ns: T + 4 * S, ..half };
    joiner.add(late(sent(1 << 14, MS)));
    joiner.add(late(read(1 << 14, 2 * MS)));
    let windows = joiner.take(T + 6 * S, T + 5 * S);
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
    assert_eq!(path.leg(Leg::Network).count(), 1);
    assert_eq!(path.leg(Leg::Network).max_ns(), Some(0));
    assert_eq!(path.leg(Leg::EndToEnd).max_ns(), Some(642_000));
    let counters = joiner.counters();
    assert_eq!((counters.matched, counters.clamped, counters.clock_faults), (1, 1, 1));
}

#[test]
fn a_byte_that_was_lost_and_sent_again_is_told_apart_by_its_first_copy_and_first_arrival() {
    let again = |half: Half| {
        let mut half = half;
        (half.passage.again, half.passage.sent) = (true, 2);
        half
    };
    let mut joiner = joiner();
    // Byte 0: told in the order in which it happened. Byte 1: the receiver's agent is faster than
    // the sender's, which tells of the second copy last.
    for (seq, order) in [(0, [0, 1, 2]), (1 << 14, [0, 2, 1])] {
        let halves = [sent(seq, MS), again(sent(seq, 201 * MS)), read(seq, 206 * MS)];
        for index in order {
            let arrived_ns = T + 300 * MS;
            joiner.add(Half { arrived_ns, ..halves[index] });
        }
    }
    // Byte 2: a copy that was not needed, and left after the first had come.
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
        let network = path.leg(Leg::Network);
        (network.count(), network.min_ns(), network.max_ns())
    };
    assert_eq!(network(true), (3, Some(5 * MS), Some(205 * MS)));
    assert_eq!(network(false), (1, Some(5 * MS), Some(5 * MS)));
    assert_eq!((joiner.counters().matched, joiner.counters().resent), (4, 3));
}

/// 4 GiB later the same numbers come again: of the byte before, one host has missed its half.
#[test]
fn a_half_that_is_alone_gives_way_to_the_byte_that_has_its_number_next() {
    let mut joiner = joiner();
    joiner.add(sent(0, MS));
    // The sender tells first, or the receiver.
    joiner.add(sent(0, 400 * MS));
    joiner.add(read(0, 405 * MS));
    joiner.add(sent(1 << 14, MS));
    joiner.add(read(1 << 14, 405 * MS));
    let late = Half { arrived_ns: T + 416 * MS, ..sent(1 << 14, 400 * MS) };
    joiner.add(late);
    joiner.add(read(2 << 14, MS));
    joiner.add(read(2 << 14, 405 * MS));
    joiner.add(sent(2 << 14, 400 * MS));
    let windows = all(&mut joiner);
    let (_, path) = &windows[0].paths[0];
    let network = path.leg(Leg::Network);
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

    let config = Config { halves: 100, ..Config::default() };
    let mut few = Joiner::new(config, Told::default());
    for seq in 0..1000 {
        few.add(sent(seq, MS));
    }
    let counters = few.counters();
    assert!((900..1000).contains(&counters.crowded), "{counters:?}");
    assert_eq!(counters.unmatched_tx, counters.crowded);
    // The last ones are still there.
    few.add(read(999, 2 * MS));
    few.advance(T + 2 * S);
    assert_eq!(few.counters().matched, 1);

    // Both halves are there: making room does not lose them.
    let mut pairs = Joiner::new(config, Told::default());
    for seq in 0..1000 {
        pairs.add(sent(seq, MS));
        pairs.add(read(seq, 2 * MS));
    }
    pairs.advance(T + 2 * S);
    assert_eq!(pairs.counters().matched, 1000);
    assert_eq!(pairs.counters().crowded, 0);
}

#[test]
fn flows_beyond_the_bound_are_in_the_sums() {
    let config = Config { flows: 4, ..Config::default() };
    let mut joiner = Joiner::new(config, Told::default());
    for sport in 0..10 {
        for mut half in [sent(0, MS), read(0, 2 * MS)] {
            half.passage.ends = ends(sport);
            joiner.add(half);
        }
    }
    let windows = all(&mut joiner);
    assert_eq!(windows[0].paths.len(), 4);
    assert_eq!(windows[0].paths[0].1.leg(Leg::EndToEnd).count(), 10);
    assert_eq!(joiner.counters().flows_untold, 7);
}

/// A collector that is killed at any time, and is given again what it had put aside, tells each
/// byte once.
#[test]
fn what_was_told_before_a_restart_is_not_told_again() {
    let halves: Vec<_> = (0..4000u64)
        .flat_map(|number| {
            let (seq, at_ns) = (number as u32, number * MS);
            let late_ms = if number % 7 == 0 { 1800 } else { 0 };
            let mut up = read(seq, at_ns + 3 * MS);
            up.arrived_ns += late_ms * MS;
            [sent(seq, at_ns), up]
        })
        .collect();
    let mut halves = halves;
    halves.sort_by_key(|half| half.arrived_ns);
    for killed_ms in (1500..6000).step_by(333) {
        let killed_ns = T + killed_ms * MS;
        let mut told = Told::default();
        let mut bytes = 0;
        let mut run = |joiner: &mut Joiner, told: &mut Told, now_ns: u64| {
            let until_ns = (now_ns - 2 * S) / S * S;
            for window in joiner.take(now_ns, until_ns) {
                bytes += window.paths[0].1.leg(Leg::EndToEnd).count();
            }
            *told = Told { at_ns: now_ns, until_ns };
        };
        let mut first = Joiner::new(Config::default(), told);
        let mut next_ns = T + S + 123;
        for half in halves.iter().filter(|half| half.arrived_ns < killed_ns) {
            while half.arrived_ns >= next_ns {
                run(&mut first, &mut told, next_ns);
                next_ns += S;
            }
            first.add(*half);
        }
        let mut second = Joiner::new(Config::default(), told);
        for half in &halves {
            second.add(*half);
        }
        run(&mut second, &mut told, T + 20 * S);
        assert_eq!(bytes, 4000, "killed at {killed_ms} ms");
    }
}

#[test]
fn a_passage_without_the_stamp_at_the_driver_has_no_edge() {
    let passage = passage(0, &[(Layer::RxIp, 5), (Layer::RxSocket, 9)]);
    assert_eq!(passage.direction, Direction::Rx);
    assert_eq!(Half::edge_of(&passage), None);
    assert!(Half::edge_of(&sent(0, MS).passage).is_some());
}

/// Its other half was lost on the way to the collector: the number comes round 4 GiB later.
#[test]
fn what_came_alone_is_not_joined_with_what_left_long_after() {
    let mut joiner = joiner();
    joiner.add(read(0, MS));
    joiner.add(sent(0, 4 * S));
    joiner.add(read(0, 4 * S + 5 * MS));
    let windows = all(&mut joiner);
    let counters = joiner.counters();
    assert_eq!(counters.clock_faults, 0);
    assert_eq!((counters.matched, counters.unmatched_rx), (1, 1));
    let (_, path) = &windows[0].paths[0];
    assert_eq!(path.leg(Leg::Network).sum_ns(), u128::from(5 * MS));
}

#[test]
fn after_a_restart_with_another_interval_each_byte_is_told_once() {
    let bytes = [100, 900, 1_100, 1_900, 2_100].map(|ms| ms * MS);
    let with = |window_ns, told| {
        let config = Config { window_ns, ..Config::default() };
        let mut joiner = Joiner::new(config, told);
        for (seq, edge_ns) in bytes.into_iter().enumerate() {
            joiner.add(sent(seq as u32, edge_ns));
            joiner.add(read(seq as u32, edge_ns + MS));
        }
        joiner
    };
    let told_of = |windows: Vec<Window>| -> u64 {
        let paths = windows.iter().flat_map(|window| &window.paths);
        let sums = paths.filter(|(key, _)| key.flow.is_none());
        sums.map(|(_, path)| path.leg(Leg::EndToEnd).count()).sum()
    };
    let told = Told { at_ns: T + 4 * S, until_ns: T + 2 * S };
    let mut before = with(S, Told::default());
    assert_eq!(told_of(before.take(told.at_ns, told.until_ns)), 4);
    for window_ns in [S, 2 * S, 3 * S, 10 * S, S / 2] {
        let mut after = with(window_ns, told);
        assert_eq!(told_of(all(&mut after)), 1, "{window_ns}");
    }
}
