//! Arbitrary frames at both ends of the clock protocol.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use dwell_engine::{
    clock::{
        Experiment, Key, MESSAGE_BYTES, Session,
        native::{Agent, Prober, Verdict, siphash},
        read_reply,
    },
    measure::Method,
};

use crate::bytes::Bytes;

const PORT: u16 = 4711;
const NOW_NS: u64 = 1_000_000;

/// The session of the packets in the seeds.
pub(crate) fn session() -> Session {
    Session { id: 7, key: Key(*b"known to the two") }
}

/// Handles a frame as agent and as collector. A byte of options precedes it: the MAC is corrected at its position behind
/// an IPv4 header (1) or an IPv6 header (2), and the collector uses IPv6 (4).
pub fn clock(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let flags = choices.u8();
    let mut frame = choices.rest().to_vec();
    for (flag, at) in [(1, 42), (2, 62)] {
        if flags & flag != 0
            && let Some(message) = frame.get_mut(at..at + MESSAGE_BYTES)
        {
            let mac = siphash(&session().key, &message[..MESSAGE_BYTES - 8]);
            message[MESSAGE_BYTES - 8..].copy_from_slice(&mac.to_le_bytes());
        }
    }
    let (collector, agent_address) = ends(flags & 4 != 0);
    agent(&frame, collector.ip());
    prober(&frame, collector, agent_address);
    BTreeSet::new()
}

/// The addresses of the collector and the agent.
fn ends(is_ipv6: bool) -> (SocketAddr, SocketAddr) {
    let ip = |last: u8| -> IpAddr {
        match is_ipv6 {
            false => Ipv4Addr::new(192, 0, 2, last).into(),
            true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
        }
    };
    ((ip(1), 40000).into(), (ip(2), PORT).into())
}

/// Checks that an agent answers a frame at most once, refuses it with a reason, or leaves it unchanged.
fn agent(frame: &[u8], collector: IpAddr) {
    let mut agent = Agent::new(&session(), collector, PORT, Experiment::default());
    let mut first = frame.to_vec();
    let verdict = agent.frame(&mut first, NOW_NS);
    let counters = agent.counters();
    assert_eq!(counters.answered_xdp, u64::from(verdict == Verdict::Answered));
    assert_eq!(counters.refused(), u64::from(verdict == Verdict::Refused));
    if verdict != Verdict::Answered {
        assert_eq!(first, frame);
        return;
    }
    let at = if first[12] == 0x08 { 42 } else { 62 };
    let reply = read_reply(&session(), &first[at..at + MESSAGE_BYTES]);
    let reply = reply.expect("an answer is a reply of the session");
    assert_eq!((reply.arrival_ns, reply.departure_ns), (NOW_NS, NOW_NS));
    assert_eq!(agent.frame(&mut frame.to_vec(), NOW_NS), Verdict::Refused);
    assert_eq!(agent.counters().replayed, 1);
    // The reply is not a request, to this agent or any other.
    assert_eq!(agent.frame(&mut first, NOW_NS), Verdict::Passed);
}

/// Checks that a collector accepts a reply once, and only if its MAC is valid.
fn prober(frame: &[u8], collector: SocketAddr, agent: SocketAddr) {
    let mut prober = Prober::new(&session(), collector, agent);
    let mut sent = frame.to_vec();
    if prober.send(&mut sent, 1, 1) {
        assert_eq!(sent.len(), frame.len());
    }
    let mut reply = frame.to_vec();
    if let Some((exchange, _)) = prober.receive(&mut reply, NOW_NS) {
        assert_eq!((exchange.t1_ns, exchange.t4_ns), (1, NOW_NS));
        assert_eq!(prober.receive(&mut reply, NOW_NS), None);
        let at = frame.len().min(if frame[12] == 0x08 { 42 } else { 62 });
        let message = &frame[at..frame.len().min(at + MESSAGE_BYTES)];
        assert!(read_reply(&session(), message).is_some());
    }
    assert_eq!(reply, frame, "reading does not change a reply");
}
