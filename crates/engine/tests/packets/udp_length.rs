//! The length that a UDP header states, as every program reads it: at least 8 (RFC 768), at most what IP carries, and
//! over IPv6 also 0, which stands for all of that (RFC 2675).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use dwell_engine::{
    balance::{self, Balancer, Forward, NextHop, Protocol, Real, Reason, Vip, VipKey},
    observe::Observation,
    response::{Key, Tracker, Watch},
    rtt::Counter,
};
use etherparse::PacketBuilder;

use crate::wire::{frame, run, small};

const ETHERNET: u32 = 1;
const PORT: u16 = 443;
const HEADERS: usize = 14;

/// A packet with a QUIC header, whose UDP header states this length.
fn packet(address: IpAddr, stated: u16) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([1; 6], [2; 6]);
    let (builder, udp) = match address {
        IpAddr::V4(server) => (link.ipv4([10, 0, 0, 1], server.octets(), 64), HEADERS + 20),
        IpAddr::V6(server) => (link.ipv6(Ipv6Addr::LOCALHOST.octets(), server.octets(), 64), HEADERS + 40),
    };
    let mut bytes = Vec::new();
    builder.udp(4000, PORT).write(&mut bytes, &[0x40; 24]).unwrap();
    bytes[udp + 4..udp + 6].copy_from_slice(&stated.to_be_bytes());
    bytes
}

fn rtt_calls_it_malformed(bytes: &[u8]) -> bool {
    run(&small(), [frame(0.0, ETHERNET, bytes.to_vec())]).count(Counter::Malformed) == 1
}

fn response_calls_it_malformed(bytes: &[u8]) -> bool {
    let mut tracker = Tracker::new(&Watch { key: Key::FiveTuple, max_flows: 64, ..Watch::default() });
    let observation =
        Observation { time_ns: 1, interface: 1, link: ETHERNET, data: bytes, wire_len: bytes.len() as u32 };
    tracker.observe(&observation, |_| {});
    tracker.counters().get(Counter::Malformed) == 1
}

fn balancer_calls_it_malformed(bytes: &[u8], address: IpAddr) -> bool {
    let config = balance::config(1, Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, Duration::from_secs(1));
    let watch = Watch { key: Key::FiveTuple, max_flows: 64, ..Watch::default() };
    let mut balancer = Balancer::new(&watch, config);
    let next_hop = NextHop { interface: 2, destination: [3; 6], source: [4; 6], mtu: 1500 };
    let real = Real::new(address, Some(next_hop), Forward::L2);
    balancer.set_real(1, &real);
    let key = VipKey { address, protocol: Protocol::Udp, port: Some(PORT) };
    balancer.set_vip(&key, &Vip { number: 1, ..Vip::default() }, &[1]);
    let (decision, _) = balancer.packet(bytes, 2, 1, false, |_| {});
    assert!([Reason::New, Reason::Malformed].contains(&decision.reason), "{decision:?}");
    decision.reason == Reason::Malformed
}

#[track_caller]
fn is_malformed(address: IpAddr, stated: u16, wanted: bool) {
    let bytes = packet(address, stated);
    let found = [
        rtt_calls_it_malformed(&bytes),
        response_calls_it_malformed(&bytes),
        balancer_calls_it_malformed(&bytes, address),
    ];
    assert_eq!(found, [wanted; 3], "a length of {stated} to {address}, in rtt, response and lb");
}

#[test]
fn a_udp_length_below_8_or_beyond_ip_is_malformed_in_every_program() {
    for address in [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1))] {
        for stated in [1, 7, 33, 1000] {
            is_malformed(address, stated, true);
        }
        for stated in [8, 31, 32] {
            is_malformed(address, stated, false);
        }
    }
}

#[test]
fn a_udp_length_of_0_means_all_of_an_ipv6_packet_and_nothing_over_ipv4() {
    is_malformed(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 0, true);
    is_malformed(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)), 0, false);
}
