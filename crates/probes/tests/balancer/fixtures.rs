//! Packets, and the packets that the balancer must make of them.

use std::net::IpAddr;

use dwell_probes::balancer::{
    Decap, DecapOutcome, DryRun, Forward, Plane, Protocol, Real, Reason, Verdict, Vip, VipKey,
};
use dwell_testbed::skip::lacks_root;
use etherparse::{Icmpv4Type, Icmpv6Type, IpHeaders, PacketBuilder};

use crate::{
    decap::rules,
    options,
    packets::{CLIENT_MAC, Client, GUE_PORT, OUR_MAC, REAL_MAC, address, checked, hop_less, inside, real, v4, v6},
};

const OUT: u32 = 77;
const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// Loads a plane with VIPs of both address families, TCP port 80 and UDP of any port, and two backends. All connections
/// go to the first one.
pub fn plane(first: Real) -> Option<Plane> {
    if lacks_root() {
        return None;
    }
    let mut plane = Plane::load(&options()).unwrap();
    plane.set_real(1, &first).unwrap();
    plane.set_real(2, &first).unwrap();
    for (client, number) in [(v4(), 1), (v6(), 2)] {
        for (protocol, port) in [(Protocol::Tcp, Some(80)), (Protocol::Udp, None)] {
            let key = VipKey { address: client.dst, protocol, port };
            let vip = Vip { number, measured: true, ..Vip::default() };
            plane.set_vip(&key, &vip).unwrap();
        }
        plane.set_table(number, &[1; 101]).unwrap();
    }
    Some(plane)
}

/// Returns the frame as passed to the backend; `None` if it is dropped or sent on.
pub fn taken_out(decap: &mut Decap, frame: &[u8]) -> Option<Vec<u8>> {
    let (verdict, frame) = decap.replay_packet(frame).unwrap();
    (verdict == XDP_PASS).then_some(frame)
}

pub fn l2() -> Real {
    real(address("10.0.0.5"), Forward::L2, OUT)
}

pub fn ask(plane: &mut Plane, frame: &[u8]) -> DryRun {
    plane.dry_run(frame).unwrap()
}

pub fn why(plane: &mut Plane, frame: &[u8]) -> Reason {
    ask(plane, frame).decision.reason
}

/// Returns the number of the backend that gets the packet, and the reason. The connection table records it.
pub fn pass(plane: &mut Plane, frame: &[u8]) -> (Option<u32>, Reason) {
    let before = plane.counters().unwrap();
    let told = ask(plane, frame).decision.real;
    plane.replay_packet(frame).unwrap();
    let after = plane.counters().unwrap();
    let whys: Vec<Reason> = Reason::ALL.into_iter().filter(|why| after.get(*why) != before.get(*why)).collect();
    assert_eq!(whys.len(), 1, "{whys:?}");
    (told, whys[0])
}

#[test]
fn root_tunnels_carry_the_packet_with_a_hop_less() {
    for (outer, forward) in [
        ("10.0.0.5", Forward::Ipip),
        ("10.0.0.5", Forward::Gue(GUE_PORT)),
        ("2001:db8:5::5", Forward::Ipip),
        ("2001:db8:5::5", Forward::Gue(GUE_PORT)),
    ] {
        let Some(mut plane) = plane(real(address(outer), forward, OUT)) else {
            return;
        };
        let mut decap = Decap::load(&rules(outer)).unwrap();
        for client in [v4(), v6()] {
            let marked = Client { tos: 0b1011_1010, ..client };
            let options = Client {
                options: match marked.dst {
                    IpAddr::V4(_) => vec![1; 8],
                    IpAddr::V6(_) => Vec::new(),
                },
                ..marked.clone()
            };
            let udp = [marked.udp(b"query"), marked.udp(b"")];
            for frame in [marked.syn(), marked.data(777), options.syn()].into_iter().chain(udp) {
                carries(&mut plane, &mut decap, address(outer), forward, &frame);
            }
        }
    }
}

fn carries(plane: &mut Plane, decap: &mut Decap, to: IpAddr, forward: Forward, frame: &[u8]) {
    let told = ask(plane, frame);
    let case = format!("{to} {forward:?} {told:x?}");
    assert_eq!(told.decision.verdict, Verdict::Redirect, "{case}");
    assert_eq!(told.decision.interface, Some(OUT));
    assert_eq!(told.decision.real, Some(1));
    assert_eq!(told.frame[..6], REAL_MAC);
    assert_eq!(told.frame[6..12], OUR_MAC);
    assert_eq!(told.decision.size as usize, told.frame.len() - 14, "{case}");
    let outer = checked(&told.frame[14..]);
    let left = match checked(&frame[14..]) {
        inner if inner.v4.is_some() => inner.v4.unwrap().time_to_live - 1,
        inner => inner.v6.unwrap().hop_limit - 1,
    };
    match &outer {
        checked if checked.v4.is_some() => {
            let ip = outer.v4.as_ref().unwrap();
            assert_eq!(told.frame[12..14], [8, 0]);
            assert_eq!(IpAddr::from(ip.destination), to);
            assert_eq!(ip.source[..2], [172, 16]);
            assert!(ip.dont_fragment && ip.options.is_empty());
            // It is the inner one's, so that packets in a loop die.
            assert_eq!(ip.time_to_live, left);
            assert_eq!(ip.dscp.value() << 2 | ip.ecn.value(), 0b1011_1010);
        }
        _ => {
            let ip = outer.v6.as_ref().unwrap();
            assert_eq!(told.frame[12..14], [0x86, 0xdd]);
            assert_eq!(IpAddr::from(ip.destination), to);
            assert_eq!(ip.source[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(ip.hop_limit, left);
            assert_eq!(ip.traffic_class, 0b1011_1010);
            let is_plain = frame[14] != 0x47;
            if forward == Forward::Gue(GUE_PORT) && is_plain {
                assert_ne!(outer.payload[6..8], [0, 0], "{case}");
            }
        }
    }
    let port = (forward == Forward::Gue(GUE_PORT)).then_some(GUE_PORT);
    let expected = hop_less(&frame[14..]);
    let carried = inside(&outer, port);
    assert_eq!(carried, expected, "{case}");
    checked(&carried);

    let taken_out = taken_out(decap, &told.frame).unwrap();
    assert_eq!(taken_out[..12], told.frame[..12]);
    assert_eq!(taken_out[12..14], frame[12..14]);
    assert_eq!(taken_out[14..], expected);
}

#[test]
fn root_a_packet_on_the_segment_gets_another_mac_address() {
    let Some(mut plane) = plane(l2()) else { return };
    for frame in [v4().syn(), v6().data(100), v4().udp(b"x")] {
        let told = ask(&mut plane, &frame);
        let link = [&REAL_MAC[..], &OUR_MAC, &frame[12..14]].concat();
        let expected = [link, hop_less(&frame[14..])].concat();
        assert_eq!(told.frame, expected);
        checked(&told.frame[14..]);
    }
}

#[test]
fn root_pings_of_a_vip_are_answered() {
    let Some(mut plane) = plane(l2()) else { return };
    let mut requests = Vec::new();
    for options in [Vec::new(), vec![1; 12]] {
        let client = Client { options, ..v4() };
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
            .ip(client.ip())
            .icmpv4_echo_request(7, 9)
            .write(&mut frame, b"hello")
            .unwrap();
        requests.push(frame);
    }
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
        .ip(v6().ip())
        .icmpv6_echo_request(7, 9)
        .write(&mut frame, b"hello")
        .unwrap();
    requests.push(frame);
    for request in requests {
        let told = ask(&mut plane, &request);
        assert_eq!(told.decision.reason, Reason::Ping);
        assert_eq!(told.decision.verdict, Verdict::Send);
        assert_eq!(told.frame[..6], CLIENT_MAC);
        assert_eq!(told.frame[6..12], OUR_MAC);
        assert_eq!(told.frame.len(), request.len());
        let (asked, reply) = (checked(&request[14..]), checked(&told.frame[14..]));
        if let (Some(asked), Some(reply)) = (&asked.v4, &reply.v4) {
            assert_eq!((reply.source, reply.destination), (asked.destination, asked.source));
            assert_eq!(reply.time_to_live, 64);
        }
        if let (Some(asked), Some(reply)) = (&asked.v6, &reply.v6) {
            assert_eq!((reply.source, reply.destination), (asked.destination, asked.source));
            assert_eq!(reply.hop_limit, 64);
        }
        assert_eq!(reply.payload[0], if asked.proto == 1 { 0 } else { 129 });
        assert_eq!(reply.payload[4..], asked.payload[4..]);
    }
    // A ping to another host is not answered.
    let mut other = Vec::new();
    PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
        .ipv4([203, 0, 113, 9], [198, 51, 100, 2], 60)
        .icmpv4_echo_request(7, 9)
        .write(&mut other, b"hello")
        .unwrap();
    assert_eq!(why(&mut plane, &other), Reason::NotVip);
    assert_eq!(ask(&mut plane, &other).frame, other);
}

/// Returns an ICMP error about a packet that the VIP sent to this client.
fn icmp_error(client: &Client, from: &str) -> Vec<u8> {
    let answer = Client { src: client.dst, dst: client.src, port: 80, ..client.clone() };
    let mut quoted = answer.tcp(|tcp| tcp.destination_port = client.port, b"answer")[14..].to_vec();
    quoted.truncate(quoted.len() - 18);
    let router = Client { src: address(from), ..client.clone() };
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ip(router.ip());
    match router.ip() {
        IpHeaders::Ipv4(..) => link
            .icmpv4(Icmpv4Type::TimeExceeded(etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit))
            .write(&mut frame, &quoted)
            .unwrap(),
        IpHeaders::Ipv6(..) => link.icmpv6(Icmpv6Type::PacketTooBig { mtu: 1400 }).write(&mut frame, &quoted).unwrap(),
    }
    frame
}

#[test]
fn root_icmp_errors_go_where_the_connection_is() {
    let Some(mut plane) = plane(l2()) else { return };
    for (client, router, number) in [(v4(), "192.0.2.1", 1), (v6(), "2001:db8:7::1", 2)] {
        assert_eq!(pass(&mut plane, &client.syn()), (Some(1), Reason::New));
        plane.set_table(number, &[2; 101]).unwrap();
        let error = icmp_error(&client, router);
        checked(&error[14..]);
        assert_eq!(pass(&mut plane, &error), (Some(1), Reason::Quoted));
        let told = ask(&mut plane, &error);
        assert_eq!(told.frame[14..], hop_less(&error[14..]));
        // An unknown connection goes by the table,
        let other = Client { port: 41_000, ..client.clone() };
        let error = icmp_error(&other, router);
        assert_eq!(pass(&mut plane, &error), (Some(2), Reason::Quoted));
        // and is not recorded.
        assert_eq!(pass(&mut plane, &other.syn()), (Some(2), Reason::New));
        // A packet that the VIP did not send belongs to no connection.
        let mut forged = error.clone();
        let quoted_source = if number == 1 { 14 + 28 + 12 } else { 14 + 48 + 8 };
        forged[quoted_source] ^= 1;
        assert_eq!(why(&mut plane, &forged), Reason::Malformed);
    }
}

#[test]
fn root_a_client_is_told_what_fits() {
    for (to, forward, overhead) in [
        ("10.0.0.5", Forward::Ipip, 20),
        ("10.0.0.5", Forward::Gue(GUE_PORT), 28),
        ("2001:db8:5::5", Forward::Ipip, 40),
        ("2001:db8:5::5", Forward::Gue(GUE_PORT), 48),
        ("10.0.0.5", Forward::L2, 0),
    ] {
        let Some(mut plane) = plane(real(address(to), forward, OUT)) else {
            return;
        };
        for client in [v4(), v6()] {
            let header = if client.dst.is_ipv4() { 40 } else { 60 };
            let most = 1500 - overhead;
            let fits = client.data(most - header);
            assert_eq!(why(&mut plane, &fits), Reason::Fallback);
            assert_eq!(ask(&mut plane, &fits).decision.size, 1500);
            let frame = client.data(most - header + 1);
            let told = ask(&mut plane, &frame);
            assert_eq!(told.decision.reason, Reason::TooBig);
            assert_eq!(told.decision.verdict, Verdict::Send);
            assert_eq!(told.frame[..6], CLIENT_MAC);
            assert_eq!(told.frame[6..12], OUR_MAC);
            assert_eq!(told.frame[12..14], frame[12..14]);
            let reply = checked(&told.frame[14..]);
            assert_eq!(told.decision.size as usize, told.frame.len() - 14);
            let (kind, quoted) = match client.dst {
                IpAddr::V4(vip) => {
                    let ip = reply.v4.as_ref().unwrap();
                    assert_eq!(ip.source, vip.octets());
                    assert_eq!(IpAddr::from(ip.destination), client.src);
                    ([3, 4], 68)
                }
                IpAddr::V6(vip) => {
                    let ip = reply.v6.as_ref().unwrap();
                    assert_eq!(ip.source, vip.octets());
                    assert_eq!(IpAddr::from(ip.destination), client.src);
                    ([2, 0], 208)
                }
            };
            assert_eq!(reply.payload[..2], kind);
            assert_eq!(reply.payload[4..8], (most as u32).to_be_bytes());
            assert_eq!(reply.payload[8..], frame[14..14 + quoted]);
        }
    }
}

#[test]
fn root_what_cannot_go_on_is_dropped_and_counted() {
    let Some(mut plane) = plane(l2()) else { return };
    let last_hop = |client: Client| Client { ttl: 1, ..client };
    let mut truncated = v4().syn();
    truncated.truncate(14 + 20 + 12);
    let mut longer = v4().syn();
    longer[17] += 1;
    let mut offset = v4().syn();
    offset[14 + 20 + 12] = 0x40;
    let mut udp_longer = v6().udp(b"query");
    udp_longer[14 + 40 + 5] += 1;
    let mut first_fragment = v4().data(10);
    first_fragment[20] = 0x20;
    let mut last_fragment = v4().data(10);
    last_fragment[21] = 3;
    let with_header = |kind: u8, header: [u8; 8]| {
        let mut frame = v6().data(10);
        frame[14 + 6] = kind;
        frame[14 + 5] += 8;
        frame.splice(54..54, header);
        frame
    };
    let fragment6 = with_header(44, [6, 0, 0, 1, 0, 0, 0, 7]);
    for (name, frame, reason) in [
        ("last hop", last_hop(v4()).syn(), Reason::Ttl),
        ("last hop of IPv6", last_hop(v6()).syn(), Reason::Ttl),
        ("cut off", truncated, Reason::Malformed),
        ("longer than it is", longer, Reason::Malformed),
        ("a TCP header too short", offset, Reason::Malformed),
        ("UDP longer than IP", udp_longer, Reason::Malformed),
        ("first fragment", first_fragment, Reason::Fragment),
        ("last fragment", last_fragment, Reason::Fragment),
        ("fragment of IPv6", fragment6, Reason::Fragment),
    ] {
        assert_eq!(why(&mut plane, &frame), reason, "{name}");
        let before = plane.counters().unwrap().get(reason);
        let (verdict, _) = plane.replay_packet(&frame).unwrap();
        assert_eq!(verdict, XDP_DROP, "{name}");
        assert_eq!(plane.counters().unwrap().get(reason), before + 1, "{name}");
    }
    // A whole packet with a fragment header is not a fragment (RFC 6946).
    let mut atomic = with_header(44, [6, 0, 0, 0, 0, 0, 0, 7]);
    atomic[14 + 40 + 8] ^= 1; // a port that was not used before
    assert_eq!(why(&mut plane, &atomic), Reason::Fallback);
    // The table is empty.
    plane.set_table(1, &[]).unwrap();
    let other = Client { port: 3, ..v4() };
    assert_eq!(pass(&mut plane, &other.syn()), (None, Reason::NoBackend));
    plane.set_table(1, &[1; 101]).unwrap();
    for number in [1, 2] {
        let lost = Real { next_hop: None, ..l2() };
        plane.set_real(number, &lost).unwrap();
    }
    assert_eq!(why(&mut plane, &other.syn()), Reason::NoRoute);
}

#[test]
fn root_extension_headers_are_walked() {
    let Some(mut plane) = plane(real(address("10.0.0.5"), Forward::Ipip, OUT)) else {
        return;
    };
    for headers in 1..=5u8 {
        let mut frame = v6().syn();
        frame[14 + 6] = 60;
        frame[14 + 5] += 8 * headers;
        for at in 0..headers {
            let next = if at == 0 { 6 } else { 60 };
            frame.splice(54..54, [next, 0, 1, 4, 0, 0, 0, 0]);
        }
        checked(&frame[14..]);
        let told = ask(&mut plane, &frame);
        if headers <= 4 {
            assert_eq!(told.decision.reason, Reason::New, "{headers}");
            let outer = checked(&told.frame[14..]);
            assert_eq!(inside(&outer, None), hop_less(&frame[14..]));
        } else {
            assert_eq!(told.decision.reason, Reason::Malformed);
        }
    }
}

#[test]
fn root_what_is_no_vips_passes_untouched() {
    let Some(mut plane) = plane(l2()) else { return };
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6]);
    arp.extend([0; 46]);
    let mut other_port = v4().syn();
    other_port[14 + 20 + 3] = 81;
    let elsewhere = Client { dst: address("198.51.100.2"), ..v4() };
    let mut fragment = elsewhere.data(10);
    fragment[20] = 0x20;
    let tagged = |client: Client, tags: &[u8]| {
        let mut frame = client.syn();
        frame.splice(12..12, tags.iter().copied());
        frame
    };
    let mut tunnel = v4().syn();
    tunnel[23] = 47;
    for (frame, reason) in [
        (arp, Reason::NotIp),
        (tagged(v4(), &[0x81, 0, 0, 5]), Reason::NotIp),
        (tagged(v6(), &[0x81, 0, 0, 5]), Reason::NotIp),
        (tagged(v4(), &[0x81, 0, 0xa0, 0]), Reason::NotIp), // a priority alone
        (tagged(v4(), &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 7]), Reason::NotIp),
        (other_port, Reason::NotVip),
        (elsewhere.syn(), Reason::NotVip),
        (fragment, Reason::NotVip),
        (tunnel, Reason::NotVip),
    ] {
        let told = ask(&mut plane, &frame);
        assert_eq!(told.decision.reason, reason);
        assert_eq!((told.decision.real, told.decision.vip), (None, None));
        assert_eq!(plane.replay_packet(&frame).unwrap(), (XDP_PASS, frame));
    }
    assert_eq!(plane.sweep(drop).unwrap().total(), 0);
}

#[test]
fn root_a_tunnel_hands_its_congestion_marks_on() {
    let Some(mut plane) = plane(real(address("10.0.0.5"), Forward::Ipip, OUT)) else {
        return;
    };
    let mut decap = Decap::load(&rules("10.0.0.5")).unwrap();
    // RFC 6040, figure 4: outer, inner, result.
    for (outer, inner, out) in [
        (0, 0, Some(0)),
        (3, 0, None),
        (3, 2, Some(3)),
        (3, 1, Some(3)),
        (1, 2, Some(1)),
        (2, 1, Some(1)),
        (1, 0, Some(0)),
    ] {
        for client in [v4(), v6()] {
            let client = Client { tos: 0b1010_0000 | inner, ..client };
            let mut frame = ask(&mut plane, &client.syn()).frame;
            let (mut ip, _) = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap();
            ip.ecn = outer.try_into().unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            frame[14..34].copy_from_slice(&ip.to_bytes());
            let taken_out = taken_out(&mut decap, &frame);
            let found = taken_out.map(|frame| {
                let inner = checked(&frame[14..]);
                let v4 = inner.v4.map(|ip| ip.dscp.value() << 2 | ip.ecn.value());
                v4.or(inner.v6.map(|ip| ip.traffic_class)).unwrap()
            });
            assert_eq!(found, out.map(|out| 0b1010_0000 | out), "{outer} {inner}");
        }
    }
    let counters = decap.counters().unwrap();
    assert_eq!((counters.get(DecapOutcome::Marked), counters.get(DecapOutcome::Congested)), (6, 2));
    // The inner packet must fit, and be what the header says.
    let frame = ask(&mut plane, &v4().data(50)).frame;
    let mut longer = frame.clone();
    longer[34 + 3] += 1;
    let mut other = frame.clone();
    other[34] = 0x65;
    for frame in [longer, other] {
        assert_eq!(taken_out(&mut decap, &frame), None);
    }
    let mut elsewhere = frame.clone();
    elsewhere[33] ^= 1;
    assert_eq!(taken_out(&mut decap, &elsewhere), Some(elsewhere));
    assert_eq!(decap.counters().unwrap().get(DecapOutcome::Malformed), 2);
}
