//! What a tunnel's end refuses, in the kernel and natively.

use std::net::IpAddr;

use dwell_engine::{balance::TunnelEnd, rtt::Prefix};
use dwell_probes::balancer::{Decap, DecapOutcome, DecapRules};
use dwell_testbed::skip::lacks_root;
use etherparse::{EtherType, Ethernet2Header, IpHeaders, IpNumber, PacketBuilder};

use crate::{
    fixtures::taken_out,
    packets::{CLIENT_MAC, Client, GUE_PORT, OUR_MAC, address, v4, v6},
};

/// A tunnel's end at this address, for the VIPs of the fixtures and from anybody.
pub fn rules(at: &str) -> DecapRules {
    DecapRules {
        addresses: vec![address(at)],
        gue_port: GUE_PORT,
        vips: ["198.51.100.1/32", "2001:db8:1::1/128"].map(prefix).to_vec(),
        senders: DecapRules::ANYBODY.to_vec(),
        ..DecapRules::default()
    }
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Puts outer headers around the packet of a frame: IPIP, or GUE.
pub fn wrapped(frame: &[u8], from: &str, to: &str, is_gue: bool) -> Vec<u8> {
    let inner = &frame[14..];
    let number = if inner[0] >> 4 == 4 { IpNumber::IPV4 } else { IpNumber::IPV6 };
    let outer = Client { src: address(from), dst: address(to), ..v4() };
    let mut ip = outer.ip();
    let mut out = Vec::new();
    if is_gue {
        let builder = PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ip(ip);
        builder.udp(50_000, GUE_PORT).write(&mut out, inner).unwrap();
        return out;
    }
    let ether_type = if outer.dst.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    let link = Ethernet2Header { source: CLIENT_MAC, destination: OUR_MAC, ether_type };
    link.write(&mut out).unwrap();
    match &mut ip {
        IpHeaders::Ipv4(ip, _) => {
            ip.protocol = number;
            ip.set_payload_len(inner.len()).unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            ip.write(&mut out).unwrap();
        }
        IpHeaders::Ipv6(ip, _) => {
            ip.next_header = number;
            ip.set_payload_length(inner.len()).unwrap();
            ip.write(&mut out).unwrap();
        }
    }
    out.extend(inner);
    out
}

/// A client's packet to any destination.
fn to(destination: &str) -> Vec<u8> {
    let destination = address(destination);
    let client = if destination.is_ipv4() { v4() } else { v6() };
    Client { dst: destination, ..client }.data(100)
}

/// Lets the kernel and the native core process a frame, which must agree. Returns the outcome, after checking that the
/// frame that is passed on is what the outcome says.
fn process(kernel: &mut Decap, native: &mut TunnelEnd, frame: &[u8], inner: &[u8]) -> DecapOutcome {
    let before = kernel.counters().unwrap();
    let passed = taken_out(kernel, frame);
    let after = kernel.counters().unwrap();
    let (outcome, natively) = native.packet(frame);
    assert_eq!(passed, natively, "{outcome:?}");
    for each in DecapOutcome::ALL {
        let counted = after.get(each) - before.get(each);
        assert_eq!(counted, u64::from(each == outcome), "{each:?}, and natively {outcome:?}");
    }
    match outcome {
        DecapOutcome::Other | DecapOutcome::Sender => assert_eq!(passed.as_deref(), Some(frame)),
        DecapOutcome::Ipip | DecapOutcome::Gue => assert_eq!(passed.unwrap()[12..], inner[12..]),
        _ => assert_eq!(passed, None),
    }
    outcome
}

#[test]
fn root_only_packets_to_vips_from_listed_senders_are_decapsulated() {
    if lacks_root() {
        return;
    }
    let rules = DecapRules {
        addresses: vec![address("10.0.0.5"), address("2001:db8:5::6")],
        gue_port: GUE_PORT,
        vips: ["198.51.100.1", "203.0.113.128/25", "2001:db8:1::1", "2001:db8:2::/64"].map(prefix).to_vec(),
        senders: ["172.16.0.0/16", "100::/64"].map(prefix).to_vec(),
        ..DecapRules::default()
    };
    let (mut kernel, mut native) = (Decap::load(&rules).unwrap(), TunnelEnd::new(&rules));
    let vips = ["198.51.100.1", "203.0.113.128", "203.0.113.255", "2001:db8:1::1", "2001:db8:2::77"];
    let others = ["198.51.100.2", "203.0.113.127", "10.0.0.5", "2001:db8:1::2", "2001:db8:5::6", "8.8.8.8"];
    let special = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.0.9",
        "169.254.169.254",
        "224.0.0.1",
        "239.1.2.3",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:198.51.100.1",
        "fe80::1",
        "febf::9",
        "ff02::1",
    ];
    for (from, end) in [("172.16.9.9", "10.0.0.5"), ("100::1:2:3:4", "2001:db8:5::6")] {
        for is_gue in [false, true] {
            let mut outcome = |inner: &str, from: &str| {
                let inner = to(inner);
                process(&mut kernel, &mut native, &wrapped(&inner, from, end, is_gue), &inner)
            };
            let done = if is_gue { DecapOutcome::Gue } else { DecapOutcome::Ipip };
            for inner in vips {
                assert_eq!(outcome(inner, from), done, "{inner}");
                let stranger = if from.contains(':') { "100:0:0:1::1" } else { "172.17.0.1" };
                assert_eq!(outcome(inner, stranger), DecapOutcome::Sender, "{inner}");
            }
            for inner in others {
                assert_eq!(outcome(inner, from), DecapOutcome::NotVip, "{inner}");
            }
            for inner in special {
                assert_eq!(outcome(inner, from), DecapOutcome::Special, "{inner}");
            }
        }
    }
    let plain = to("127.0.0.1");
    assert_eq!(process(&mut kernel, &mut native, &plain, &plain), DecapOutcome::Other);
}

#[test]
fn root_a_network_of_everything_has_no_special_address() {
    if lacks_root() {
        return;
    }
    let everything = DecapRules { vips: DecapRules::ANYBODY.to_vec(), ..rules("10.0.0.5") };
    let six_alone = DecapRules { vips: vec![prefix("::/0")], ..rules("10.0.0.5") };
    for (rules, four, six) in
        [(everything, DecapOutcome::Ipip, DecapOutcome::Ipip), (six_alone, DecapOutcome::NotVip, DecapOutcome::Ipip)]
    {
        let (mut kernel, mut native) = (Decap::load(&rules).unwrap(), TunnelEnd::new(&rules));
        for (inner, expected) in [
            ("8.8.8.8", four),
            ("2001:db8::9", six),
            ("127.0.0.1", DecapOutcome::Special),
            ("::1", DecapOutcome::Special),
        ] {
            let inner = to(inner);
            let frame = wrapped(&inner, "192.0.2.1", "10.0.0.5", false);
            assert_eq!(process(&mut kernel, &mut native, &frame, &inner), expected);
        }
    }
}

#[test]
fn root_vips_change_while_it_runs() {
    if lacks_root() {
        return;
    }
    let mut decap = Decap::load(&rules("10.0.0.5")).unwrap();
    let other = to("198.51.100.2");
    let frame = wrapped(&other, "192.0.2.1", "10.0.0.5", false);
    assert_eq!(taken_out(&mut decap, &frame), None);
    decap.set_vips(&[prefix("198.51.100.2")]).unwrap();
    assert!(taken_out(&mut decap, &frame).is_some());
    decap.set_vips(&[]).unwrap();
    assert_eq!(taken_out(&mut decap, &frame), None);
    assert_eq!(decap.counters().unwrap().get(DecapOutcome::NotVip), 2);
}

#[test]
fn an_address_that_is_no_hosts_is_told() {
    for (text, special) in [("192.0.2.1", false), ("127.0.0.1", true), ("2001:db8::1", false), ("fe80::1", true)] {
        assert_eq!(dwell_engine::balance::is_special(text.parse::<IpAddr>().unwrap()), special, "{text}");
    }
}
