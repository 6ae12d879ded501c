//! Bytes whose two hosts see other addresses (NAT).

use dwell_engine::layers::{
    ByteTrace, Ends, Isns, PathSegment,
    join::{Checkpoint, Config, HostTrace, Joiner, PathKey},
};

use crate::join::{A, B, MS, T, all, ends, joiner, read, sent};

const C: u32 = 2;
const D: u32 = 3;
const ISNS: Isns = Isns { src: 0xffff_fff0, dst: 7 };

/// As a host sees the flow of a trace, which is of this connection.
fn seen(half: HostTrace, host: u32, ends: Ends, isns: Isns) -> HostTrace {
    HostTrace { host, trace: ByteTrace { ends, isns: Some(isns), ..half.trace }, ..half }
}

/// As the sender sees the flow, and as the receiver does: behind a router that masquerades.
fn before() -> Ends {
    ends(40_000)
}

fn behind() -> Ends {
    let Ends { mut src, dst } = ends(1_024);
    src.address = [198, 51, 100, 1].into();
    Ends { src, dst }
}

/// Returns the flows that were reported, and the number of their bytes.
fn flows(joiner: &mut Joiner) -> Vec<(PathKey, u64)> {
    let windows = all(joiner);
    let paths = windows.iter().flat_map(|window| &window.paths).filter(|(key, _)| key.flow.is_some());
    paths.map(|(key, path)| (*key, path.segment(PathSegment::EndToEnd).count())).collect()
}

fn translated(tx_host: u32, rx_host: u32) -> PathKey {
    PathKey { tx_host, rx_host, flow: Some(before()), rx_flow: Some(behind()), resent: false }
}

#[test]
fn bytes_whose_addresses_are_translated_are_matched_by_the_connections_numbers() {
    let sent = |seq, edge_ns| seen(sent(seq, edge_ns), A, before(), ISNS);
    let read = |seq, edge_ns| seen(read(seq, edge_ns), B, behind(), ISNS);
    // Whoever reports first: its first bytes wait before it is known that addresses are translated.
    for is_sender_first in [true, false] {
        let mut joiner = joiner();
        let (down, up) = ([0, 1, 2].map(|seq| sent(seq, MS)), [0, 1, 2].map(|seq| read(seq, 3 * MS)));
        let halves: Vec<_> = match is_sender_first {
            true => [down, up].concat(),
            false => [up, down.map(|half| HostTrace { arrived_ns: half.arrived_ns + 5 * MS, ..half })].concat(),
        };
        halves.into_iter().for_each(|half| joiner.add(half));
        // Later ones do not.
        [sent(3, 20 * MS), read(3, 22 * MS)].into_iter().for_each(|half| joiner.add(half));
        assert_eq!(flows(&mut joiner), [(translated(A, B), 4)]);
        let counters = joiner.counters();
        assert_eq!((counters.matched, counters.translated, counters.contested), (4, 4, 0));
        assert_eq!((counters.unmatched_tx, counters.unmatched_rx), (0, 0));
    }
}

#[test]
fn flows_whose_addresses_are_the_same_are_matched_by_them_also_if_one_host_knows_no_numbers() {
    let numbered = |half| seen(half, A, before(), ISNS);
    let mut joiner = joiner();
    [numbered(sent(0, MS)), read(0, 2 * MS)].into_iter().for_each(|half| joiner.add(half));
    [sent(1, 20 * MS), seen(read(1, 21 * MS), B, before(), ISNS)].into_iter().for_each(|half| joiner.add(half));
    // The accepting end of a socket without a backlog is wrong by one.
    let other = Isns { dst: ISNS.dst + 1, ..ISNS };
    [numbered(sent(2, 40 * MS)), seen(read(2, 41 * MS), B, before(), other)]
        .into_iter()
        .for_each(|half| joiner.add(half));
    assert_eq!(flows(&mut joiner), [(PathKey { rx_flow: None, ..translated(A, B) }, 3)]);
    assert_eq!((joiner.counters().matched, joiner.counters().translated), (3, 0));
}

#[test]
fn without_numbers_or_with_others_nothing_is_matched_through_translation() {
    let other = Isns { src: ISNS.src + 1, ..ISNS };
    let mut joiner = joiner();
    [seen(sent(0, MS), A, before(), ISNS), seen(read(0, 2 * MS), B, behind(), other)]
        .into_iter()
        .for_each(|half| joiner.add(half));
    let unknown = |half: HostTrace| HostTrace { trace: ByteTrace { isns: None, ..half.trace }, ..half };
    let halves = [seen(sent(1, 20 * MS), A, before(), ISNS), seen(read(1, 21 * MS), B, behind(), ISNS)];
    halves.into_iter().for_each(|half| joiner.add(unknown(half)));
    assert!(flows(&mut joiner).is_empty());
}

/// The numbers of two connections are the same, which is improbable, or an agent makes them up.
#[test]
fn numbers_that_several_receivers_report_match_nothing_and_addresses_still_do() {
    let mut joiner = joiner();
    joiner.add(seen(sent(0, MS), A, before(), ISNS));
    joiner.add(seen(read(0, 2 * MS), B, behind(), ISNS));
    joiner.add(seen(read(1, 20 * MS), C, ends(9), ISNS));
    for seq in 1..4 {
        let edge_ns = MS * 30 * u64::from(seq);
        joiner.add(seen(sent(seq, edge_ns), A, before(), ISNS));
        joiner.add(seen(read(seq, edge_ns + MS), B, behind(), ISNS));
        joiner.add(seen(read(seq, edge_ns + 2 * MS), D, before(), ISNS));
    }
    let by_address = PathKey { rx_flow: None, ..translated(A, D) };
    assert_eq!(flows(&mut joiner), [(translated(A, B), 1), (by_address, 3)]);
    assert_eq!((joiner.counters().translated, joiner.counters().contested), (1, 10));
}

/// Hosts behind different routers have the same private addresses, and send bytes of the same numbers.
#[test]
fn flows_with_the_same_private_addresses_are_told_apart() {
    let other = Isns { src: 1, dst: 2 };
    let public = |host: u8| {
        let Ends { mut src, dst } = behind();
        src.address = [198, 51, 100, host].into();
        Ends { src, dst }
    };
    let mut joiner = joiner();
    // By now it is known that addresses are translated.
    for (seq, edge_ns) in [(0, MS), (1, 20 * MS)] {
        joiner.add(seen(sent(seq, edge_ns), A, before(), ISNS));
        joiner.add(seen(read(seq, edge_ns + MS), B, public(1), ISNS));
        let edge_ns = edge_ns + if seq == 0 { 10 * MS } else { MS / 2 };
        joiner.add(HostTrace { arrived_ns: T + edge_ns + 12 * MS, ..seen(sent(seq, edge_ns), C, before(), other) });
        let arrived_ns = T + edge_ns + 13 * MS;
        joiner.add(HostTrace { arrived_ns, ..seen(read(seq, edge_ns + MS), D, public(2), other) });
    }
    let path = |tx_host, rx_host, host| PathKey { rx_flow: Some(public(host)), ..translated(tx_host, rx_host) };
    let flows = flows(&mut joiner);
    assert!(flows.contains(&(path(A, B, 1), 2)), "{flows:?}");
    assert!(flows.iter().any(|(key, count)| *key == path(C, D, 2) && *count >= 1), "{flows:?}");
}

#[test]
fn connections_beyond_a_bound_are_matched_by_addresses_only() {
    let mut joiner = Joiner::new(Config { max_waiting: 8, ..Config::default() }, Checkpoint::default());
    // Of one byte, so that others have room to wait.
    for number in 0..6 {
        let isns = Isns { src: number, dst: 1 };
        joiner.add(seen(sent(0, u64::from(number) * MS), A, before(), isns));
    }
    assert_eq!(joiner.counters().connections_omitted, 2);
    joiner.add(read(0, 6 * MS));
    assert_eq!(flows(&mut joiner), [(PathKey { rx_flow: None, ..translated(A, B) }, 1)]);
}
