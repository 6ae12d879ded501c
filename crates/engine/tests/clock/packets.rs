//! Requests and replies in frames, at times that the test sets.

use std::net::SocketAddr;

use dwell_engine::clock::{
    Exchange, Experiment, Key, MESSAGE_BYTES, Session, Stamper, answer,
    native::{Agent, Prober, Verdict},
    read_reply, request,
};
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const PORT: u16 = 4711;

fn session() -> Session {
    Session { id: 7, key: Key([9; 16]) }
}

/// Returns the endpoints of the collector and the agent.
fn ends(is_ipv6: bool) -> (SocketAddr, SocketAddr) {
    match is_ipv6 {
        false => ("192.0.2.1:40000".parse().unwrap(), "192.0.2.2:4711".parse().unwrap()),
        true => ("[2001:db8::1]:40000".parse().unwrap(), "[2001:db8::2]:4711".parse().unwrap()),
    }
}

fn agent(is_ipv6: bool) -> Agent {
    let (collector, _) = ends(is_ipv6);
    Agent::new(&session(), collector.ip(), PORT, Experiment::default())
}

/// Returns the frame as the collector's socket sends it to itself.
fn looped(is_ipv6: bool, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([0; 6], [0; 6]);
    let ip = match is_ipv6 {
        false => ethernet.ipv4([127, 0, 0, 1], [127, 0, 0, 1], 64),
        true => {
            let own = std::net::Ipv6Addr::LOCALHOST.octets();
            ethernet.ipv6(own, own, 64)
        }
    };
    let mut frame = Vec::new();
    ip.udp(40001, 40001).write(&mut frame, payload).unwrap();
    frame
}

/// Returns the frame as it leaves the collector.
fn sent(is_ipv6: bool, sequence: u64, now_ns: u64) -> (Prober, Vec<u8>) {
    let (collector, there) = ends(is_ipv6);
    let mut prober = Prober::new(&session(), collector, there);
    let mut frame = looped(is_ipv6, &request(&session(), sequence));
    assert!(prober.send(&mut frame, sequence, now_ns));
    (prober, frame)
}

/// Returns what an independent receiver sees: addresses, with checksums verified.
fn seen(frame: &[u8]) -> (SocketAddr, SocketAddr) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        panic!("no UDP");
    };
    let header = udp.to_header();
    let (source, destination, checksum) = match packet.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let checksum = header.calc_checksum_ipv4(&ip, udp.payload()).unwrap();
            (ip.source.into(), ip.destination.into(), checksum)
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            let checksum = header.calc_checksum_ipv6(&ip, udp.payload()).unwrap();
            (ip.source.into(), ip.destination.into(), checksum)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(header.checksum, checksum);
    (SocketAddr::new(source, header.source_port), SocketAddr::new(destination, header.destination_port))
}

#[test]
fn an_exchange_has_the_four_times() {
    for is_ipv6 in [false, true] {
        let (collector, there) = ends(is_ipv6);
        let (mut prober, mut frame) = sent(is_ipv6, 1, 1_000);
        assert_eq!(seen(&frame), (collector, there));
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);

        let bytes = frame.len();
        assert_eq!(agent(is_ipv6).frame(&mut frame, 50_000), Verdict::Answered);
        assert_eq!(frame.len(), bytes, "a reply is no larger than its request");
        assert_eq!(seen(&frame), (there, collector));
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);

        let exchange = Exchange { t1_ns: 1_000, t2_ns: 50_000, t3_ns: 50_000, t4_ns: 4_000 };
        assert_eq!(prober.receive(&mut frame, 4_000), Some((exchange, Stamper::Xdp)));
        assert_eq!(prober.receive(&mut frame, 4_000), None, "a reply counts once");
        assert_eq!(exchange.round_trip_ns(), Some(3_000));
        assert_eq!(exchange.offset_ns(), 47_500);
    }
}

#[test]
fn what_was_answered_is_not_answered_again() {
    let mut agent = agent(false);
    let frames: Vec<_> = (1..=3).map(|number| sent(false, number, 0).1).collect();
    for (number, verdict) in [
        (1, Verdict::Answered),
        (1, Verdict::Refused),
        (3, Verdict::Answered),
        // The packet was overtaken on the path: it is lost rather than treated as a replay.
        (2, Verdict::Refused),
    ] {
        let mut frame = frames[number - 1].clone();
        assert_eq!(agent.frame(&mut frame, 1), verdict, "{number}");
    }
    assert_eq!(agent.counters().replayed, 2);
    assert_eq!(agent.counters().answered_xdp, 2);
}

#[test]
fn what_is_not_from_the_collector_is_refused_and_counted() {
    let other = |id, key| {
        let session = Session { id, key: Key(key) };
        let (collector, there) = ends(false);
        let mut frame = looped(false, &request(&session, 1));
        assert!(Prober::new(&session, collector, there).send(&mut frame, 1, 0));
        frame
    };
    let mut agent = agent(false);
    assert_eq!(agent.frame(&mut other(7, [8; 16]), 1), Verdict::Refused);
    assert_eq!(agent.counters().forged, 1);
    assert_eq!(agent.frame(&mut other(8, [9; 16]), 1), Verdict::Refused);
    assert_eq!(agent.counters().unknown, 1);

    // A packet from another address.
    let (_, mut frame) = sent(false, 1, 0);
    frame[29] += 1;
    assert_eq!(agent.frame(&mut frame, 1), Verdict::Refused);
    assert_eq!(agent.counters().stranger, 1);
    assert_eq!(agent.counters().refused(), 3);

    // None of these packets used up a sequence number of the collector.
    assert_eq!(agent.frame(&mut sent(false, 1, 0).1, 1), Verdict::Answered);
}

#[test]
fn what_is_no_request_goes_on_as_it_was() {
    let reply = {
        let (_, mut frame) = sent(false, 1, 0);
        agent(false).frame(&mut frame, 1);
        frame
    };
    let changed = |at: usize, to: u8| {
        let (_, mut frame) = sent(false, 1, 0);
        frame[at] = to;
        frame
    };
    let (_, whole) = sent(false, 1, 0);
    for (what, frame) in [
        ("a reply", reply),
        ("another port", changed(37, 0)),
        ("another protocol", changed(23, 6)),
        ("an option", changed(14, 0x46)),
        ("a fragment", changed(21, 1)),
        ("another version", changed(46, 2)),
        ("another length", changed(39, 55)),
        ("a tag", changed(12, 0x81)),
        ("too short", whole[..whole.len() - 1].to_vec()),
    ] {
        let mut after = frame.clone();
        let mut agent = agent(false);
        assert_eq!(agent.frame(&mut after, 1), Verdict::Passed, "{what}");
        assert_eq!(after, frame, "{what}");
    }
}

#[test]
fn an_experiment_falsifies_the_clock_by_what_was_asked() {
    let experiment = Experiment { since_ns: 1_000_000, offset_ns: -500, drift_ppb: -100_000 };
    assert_eq!(experiment.claimed(1_000_000), 999_500);
    assert_eq!(experiment.claimed(11_000_000), 10_998_500);
    assert_eq!(Experiment::default().claimed(5), 5);
}

#[test]
fn a_sockets_reply_is_read_like_one_of_xdp() {
    let asked = request(&session(), 3);
    let reply = answer(&session(), &asked, Stamper::SocketYet, 5, 6);
    let read = read_reply(&session(), &reply).unwrap();
    assert_eq!((read.sequence, read.arrival_ns, read.departure_ns), (3, 5, 6));
    assert_eq!(read.stamper, Stamper::SocketYet);
    assert_eq!(read_reply(&session(), &asked), None, "a request is no reply");
    assert_eq!(read_reply(&session(), &reply[1..]), None);
}

proptest! {
    /// Each bit of both kinds of messages is authenticated.
    #[test]
    fn a_bit_that_flips_in_transit_is_detected(bit in 0..MESSAGE_BYTES * 8) {
        let (mut prober, frame) = sent(false, 1, 1);
        let mut asked = frame.clone();
        asked[42 + bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(agent(false).frame(&mut asked, 2), Verdict::Answered);

        let mut reply = frame;
        prop_assert_eq!(agent(false).frame(&mut reply, 2), Verdict::Answered);
        reply[42 + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(prober.receive(&mut reply, 3), None);
        prop_assert_eq!(read_reply(&session(), &reply[42..]), None);
    }
}
