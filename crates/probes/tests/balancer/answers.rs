//! ICMP answers of the balancer: how many, and to whom.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use dwell_engine::{
    balance::{Balancer, Reason},
    response::Watch,
};
use dwell_probes::balancer::{Forward, NextHop, Plane, Protocol, Real, Vip, VipKey};
use dwell_testbed::skip::lacks_root;
use etherparse::PacketBuilder;

use crate::{
    options,
    packets::{CLIENT_MAC, Client, OUR_MAC, address, real, v4, v6},
    parity::native,
};

const SECOND: u64 = 1_000_000_000;
/// Answers of a kind per second and CPU.
const MOST: usize = 1000;

fn ping(from: IpAddr) -> Vec<u8> {
    let client = Client { src: from, ..if from.is_ipv4() { v4() } else { v6() } };
    let link = PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ip(client.ip());
    let mut frame = Vec::new();
    match from {
        IpAddr::V4(_) => link.icmpv4_echo_request(1, 2).write(&mut frame, b"ping").unwrap(),
        IpAddr::V6(_) => link.icmpv6_echo_request(1, 2).write(&mut frame, b"ping").unwrap(),
    }
    frame
}

/// A backend behind a path that carries less than a full frame.
fn narrow() -> Real {
    let wide = real(address("10.0.0.5"), Forward::Ipip, 77);
    Real { next_hop: wide.next_hop.map(|hop| NextHop { mtu: 1000, ..hop }), ..wide }
}

fn key(vip: IpAddr) -> VipKey {
    VipKey { address: vip, protocol: Protocol::Tcp, port: Some(80) }
}

fn balancer() -> Balancer {
    let mut balancer = native(Watch::default(), 100);
    balancer.set_real(1, &narrow());
    for (number, vip) in (1..).zip([v4().dst, v6().dst]) {
        balancer.set_vip(&key(vip), &Vip { number, ..Vip::default() }, &[1; 7]);
    }
    balancer
}

/// Passes a frame again and again in one second. Returns how many had this reason; the others were unanswered.
fn answered(balancer: &mut Balancer, frame: &[u8], times: usize, time_ns: u64, reason: Reason) -> usize {
    let mut answered = 0;
    for _ in 0..times {
        let preview = balancer.packet(frame, 1, time_ns, true, drop).0;
        let decision = balancer.packet(frame, 1, time_ns, false, drop).0;
        assert_eq!(preview.reason, decision.reason, "a preview spends nothing");
        assert!([reason, Reason::Unanswered].contains(&decision.reason), "{decision:?}");
        answered += usize::from(decision.reason == reason);
    }
    answered
}

#[test]
fn each_kind_of_answer_has_its_own_limit_per_second() {
    let mut balancer = balancer();
    let (ping, big) = (ping(v4().src), v4().data(1400));
    for second in 1..4 {
        let time_ns = second * SECOND;
        assert_eq!(answered(&mut balancer, &ping, MOST + 500, time_ns, Reason::Ping), MOST);
        assert_eq!(answered(&mut balancer, &big, MOST + 500, time_ns, Reason::TooBig), MOST);
        // What needs no answer goes on.
        let small = balancer.packet(&v4().data(100), 1, time_ns, false, drop).0;
        assert_eq!(small.real, Some(1), "{small:?}");
    }
}

#[test]
fn nobody_is_answered_who_is_no_single_host() {
    let mut balancer = balancer();
    for from in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"] {
        assert_eq!(answered(&mut balancer, &ping(address(from)), 1, SECOND, Reason::Ping), 0, "{from}");
        let client = if from.contains(':') { v6() } else { v4() };
        let big = Client { src: address(from), ..client }.data(1400);
        assert_eq!(answered(&mut balancer, &big, 1, SECOND, Reason::TooBig), 0, "{from}");
    }
    for from in ["169.254.1.1", "fe80::1", "240.0.0.1", "2001:db8:9::9"] {
        assert_eq!(answered(&mut balancer, &ping(address(from)), 1, SECOND, Reason::Ping), 1, "{from}");
    }
}

#[test]
fn root_the_kernel_limits_its_answers_too() {
    if lacks_root() {
        return;
    }
    let mut plane = Plane::load(&options()).unwrap();
    plane.set_vip(&key(v4().dst), &Vip { number: 1, ..Vip::default() }).unwrap();
    let ping = ping(v4().src);
    let begun = Instant::now();
    // Far more than the CPUs of a test machine may answer in a second.
    let mut unanswered = 0;
    while unanswered == 0 && begun.elapsed() < Duration::from_secs(60) {
        for _ in 0..1000 {
            plane.replay_packet(&ping).unwrap();
        }
        unanswered = plane.counters().unwrap().get(Reason::Unanswered);
    }
    assert!(unanswered > 0);
    assert!(plane.counters().unwrap().get(Reason::Ping) > 0);
}
