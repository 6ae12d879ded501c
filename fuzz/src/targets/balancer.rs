//! Arbitrary frames at a balancer.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use dwell_engine::{
    balance::{
        Balancer, Decision, Forward, HeavyScope, NextHop, Protocol, Real, Reason, Sampling, ServerId, Verdict, Vip,
        VipKey, ZeroVip, config,
    },
    measure::Method,
    quic_lb::Config,
    response::{Key, Watch},
};

use crate::{
    bytes::Bytes,
    seeds::{QUIC_KEY, endpoints},
};

const INGRESS: u32 = 1;
const OUT: u32 = 2;

/// Forwards frames. The input is a byte of options, then frames, each after its length in two bytes. The options are the
/// forwarding method (the two lowest bits), IPv6 addresses of backends (4), a backend that is down (8), a small MTU
/// (16), and of how many connections one is measured (the two highest).
pub fn balancer(bytes: &[u8]) -> BTreeSet<Method> {
    let mut bytes = Bytes::new(bytes);
    let mut balancer = new_balancer(bytes.u8());
    let mut rest = bytes.rest();
    let mut now_ns = 1_000_000_000;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (frame, after) = after.split_at(length);
        rest = after;
        now_ns += 100_000_000;
        let preview = balancer.packet(frame, INGRESS, now_ns, true, |_| {});
        let again = balancer.packet(frame, INGRESS, now_ns, true, |_| {});
        assert_eq!(preview, again, "a preview changes no state");
        let (decision, out) = balancer.packet(frame, INGRESS, now_ns, false, |_| {});
        assert_eq!(decision.real, preview.0.real);
        check(frame, &decision, &out);
    }
    BTreeSet::new()
}

fn new_balancer(choices: u8) -> Balancer {
    let watch = Watch { key: Key::FiveTuple, max_flows: 64, ..Watch::default() };
    let prefix = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);
    let config = config(7, Ipv4Addr::new(172, 16, 0, 0), prefix, Duration::from_secs(1));
    let mut balancer = Balancer::new(&watch, config);
    for number in 1..=2 {
        let address = match choices & 4 {
            0 => Ipv4Addr::new(10, 0, 1, number as u8).into(),
            _ => Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, number as u16).into(),
        };
        let next_hop = NextHop {
            interface: OUT,
            destination: [6; 6],
            source: [8; 6],
            mtu: if choices & 16 == 0 { 1500 } else { 100 },
        };
        let real = Real {
            address,
            next_hop: Some(next_hop),
            forward: [Forward::Ipip, Forward::Gue(6080), Forward::L2, Forward::Ipip][usize::from(choices & 3)],
            down: choices & 8 != 0 && number == 1,
            leaving: choices & 16 != 0 && number == 2,
            capacity: number as u16,
            sampling: Sampling::one_of(1 << (choices >> 6)).unwrap_or_default(),
        };
        balancer.set_real(number, &real);
    }
    for v6 in [false, true] {
        let (_, vip) = endpoints(v6, (0, 0));
        for (number, protocol) in (1..).zip([Protocol::Tcp, Protocol::Udp]) {
            let key = VipKey { address: vip.address, protocol, port: None };
            let vip = Vip {
                number: number + 2 * u32::from(v6),
                measured: true,
                sampling: Sampling::one_of(1 << (choices >> 6)).unwrap_or_default(),
                more_choices: choices >> 4 & 3,
                ..Vip::default()
            };
            balancer.set_vip(&key, &vip, &[1, 2, 1, 2, 1, 2, 1]);
        }
        let key = VipKey { address: vip.address, protocol: Protocol::Udp, port: Some(443) };
        let slot = 1 + u16::from(v6);
        let vip = Vip { number: 4 + u32::from(slot), zero_slot: Some(slot), ..Vip::default() };
        balancer.set_vip(&key, &vip, &[1, 2, 1, 2, 1, 2, 1]);
        balancer.set_zero(&key, slot, &zero_vip());
    }
    balancer
}

/// A zero-RTT VIP with connection IDs in three layouts. A short header whose ID leads to no server is handled as any UDP
/// packet.
fn zero_vip() -> ZeroVip {
    let layouts = [Config::own(0, QUIC_KEY), Config::new(1, 3, 4, None), Config::new(2, 9, 10, Some(QUIC_KEY))];
    let layouts = layouts.map(|layout| layout.expect("a layout")).to_vec();
    ZeroVip {
        attempt: Duration::from_secs(1),
        heavy_scope: HeavyScope::Any,
        ..ZeroVip::new(layouts, (1..=2).map(|real| (real, ServerId(real.into()))))
    }
}

fn check(frame: &[u8], decision: &Decision, out: &[u8]) {
    match decision.verdict {
        Verdict::Pass => assert_eq!(frame, out, "a packet that passes is unchanged"),
        Verdict::Drop => {}
        Verdict::Send | Verdict::Redirect => {
            assert!(14 + decision.size as usize <= out.len(), "{decision:?}");
            check_ip(&out[14..]);
        }
    }
    if decision.verdict == Verdict::Redirect {
        assert!(decision.real.is_some() && decision.interface == Some(OUT));
        assert_eq!(out[..6], [6; 6]);
    }
    if decision.verdict == Verdict::Send {
        assert!(matches!(decision.reason, Reason::Ping | Reason::TooBig), "{decision:?}");
        assert_eq!(decision.interface, Some(INGRESS));
    }
}

/// Checks the outermost IP header if the balancer wrote it. With layer-2 forwarding it did not.
fn check_ip(packet: &[u8]) {
    let is_ours = packet[0] == 0x45 && (packet[12..14] == [172, 16] || packet[9] == 1);
    if !is_ours {
        return;
    }
    let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    assert!(length <= packet.len());
    if packet[12..14] == [172, 16] {
        let words = packet[..20].chunks_exact(2);
        let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{packet:x?}");
    }
}
