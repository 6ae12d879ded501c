//! Hand-made seeds: small inputs that reach each part of the code.

mod balancer;
mod captures;
mod fleet;
mod labels;
mod packets;
mod traces;

use dwell_engine::{
    clock::{Stamper, answer, request},
    measure::Endpoint,
};

use crate::{
    frame::{self, Frame, Link},
    targets::clock_session,
};

pub(crate) use balancer::{QUIC_KEY, datagram};

/// Returns the seeds of a target with their names.
pub fn of(target: &str) -> Vec<(&'static str, Vec<u8>)> {
    match target {
        "balancer" => balancer::seeds(),
        "capture" => captures::seeds(),
        "clock" => clocks(),
        "dns" => dns(),
        "filter" => filters(),
        "fleet" => fleet::seeds(),
        "icmp" => icmp(),
        "labels" => labels::seeds(),
        "packet" => packets::seeds(),
        "quic" => quic(),
        "response" => responses(),
        "replay" | "response_replay" => {
            captures::seeds().into_iter().map(|(name, file)| (name, [&[0, 5, 0][..], &file].concat())).collect()
        }
        "socket" => sockets(),
        "tcp" => tcp(),
        "token" => balancer::tokens(),
        "trace" => traces::seeds(),
        _ => panic!("no target {target}"),
    }
}

// Indexes into the table of time steps.
const US_20: u8 = 4;
const MS_1: u8 = 10;
const MS_10: u8 = 13;
const MS_20: u8 = 14;
const S_2: u8 = 23;
const S_61: u8 = 27;

const CLIENT: u8 = 0;
const SERVER: u8 = 1;

/// Makes two seeds of each script: with all options off, and with handshakes, ACKs and flow events.
fn scenes(scripts: Vec<(&'static str, &'static str, Vec<u8>)>) -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (plain, all, script) in scripts {
        seeds.push((plain, [&[0, 0, 0, 0][..], &script].concat()));
        seeds.push((all, [&[0, 0, 7, 0][..], &script].concat()));
    }
    seeds
}

/// A clock request and its reply, over IPv4 and IPv6.
fn clocks() -> Vec<(&'static str, Vec<u8>)> {
    let session = clock_session();
    let request = request(&session, 1);
    let reply = answer(&session, &request, Stamper::Xdp, 5, 6);
    let udp = |from: u16, to: u16, message: &[u8]| {
        let header = [from.to_be_bytes(), to.to_be_bytes(), [0, 56], [0, 0]];
        [&header.concat(), message].concat()
    };
    let ipv4 = |from: u8, to: u8, udp: &[u8]| {
        let ethernet = [&[2; 12][..], &[8, 0]].concat();
        let ip = [0x45, 0, 0, 76, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, from, 192, 0, 2, to];
        [&[1][..], &ethernet, &ip, udp].concat()
    };
    let ipv6 = |from: u8, to: u8, udp: &[u8]| {
        let ethernet = [&[2; 12][..], &[0x86, 0xdd]].concat();
        let address = |last| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let ip = [&[0x60, 0, 0, 0, 0, 56, 17, 64][..], &address(from), &address(to)].concat();
        [&[6][..], &ethernet, &ip, udp].concat()
    };
    let (request, reply) = (udp(40000, 4711, &request), udp(4711, 40000, &reply));
    vec![
        ("request-v4", ipv4(1, 2, &request)),
        ("request-v6", ipv6(1, 2, &request)),
        ("reply-v4", ipv4(2, 1, &reply)),
        ("reply-v6", ipv6(2, 1, &reply)),
    ]
}

/// A full send buffer that drains, as kernels of three generations report it, for each estimator.
fn sockets() -> Vec<(&'static str, Vec<u8>)> {
    let poll = |length: u8, n: u8| {
        [
            &[0x80, 0x96, 0x98, 0, length, n & 1, 5, 5, 40, 0, 10, 0][..],
            &[0, 10 * n, 0, 0, 8 * n, 0, n, 0, 0, 200 - 10 * n, 0],
            &[0, 12 * n, 0, 0, n, 200, 30, 9, 9],
        ]
        .concat()
    };
    let polls = |choices: u8, length: u8| {
        let polls = (0..12).flat_map(|n| poll(length, n));
        std::iter::once(choices).chain(polls).collect::<Vec<u8>>()
    };
    vec![
        ("now", polls(0, 232)),
        ("unsent", polls(2, 160)),
        ("acked", polls(0, 144)),
        ("paper", polls(1, 232)),
        ("calls", polls(5, 232)),
    ]
}

fn tcp() -> Vec<(&'static str, Vec<u8>)> {
    let open = |no_ts: u8| {
        [
            [CLIENT, MS_1, 0, 0, 0x1f, 2 | 8 | no_ts, 0],
            [SERVER, MS_20, 0, 0, 0x10, 2 | no_ts, 0],
            [CLIENT, MS_10, 0, 0, 0x10, no_ts, 0],
        ]
    };
    let exchange = |no_ts: u8| {
        [
            [CLIENT, MS_1, 0, 0, 0x10, no_ts, 5],
            [SERVER, MS_20, 0, 0, 0x10, no_ts, 14],
            [CLIENT, MS_10, 0, 0, 0x10, no_ts, 0],
            [CLIENT, MS_1, 0, 0, 0x10, no_ts, 5],
            // A retransmission, an ACK with a gap, an ACK of everything.
            [CLIENT, MS_1, 251, 0, 0x10, no_ts, 5],
            [SERVER, MS_20, 0, 251, 0x10, no_ts | 32, 0],
            [SERVER, MS_1, 0, 0, 0x10, no_ts | 64, 0],
        ]
    };
    let close = [
        [CLIENT, MS_1, 0, 0, 0x10, 1, 1],
        [SERVER, MS_20, 0, 0, 0x10, 1, 0],
        [CLIENT, MS_10, 0, 0, 0x10, 0, 0],
        [CLIENT, S_2, 0, 0, 0x10, 2 | 8, 0],
        [SERVER, MS_20, 0, 0, 0x10, 4, 0],
    ];
    let many: Vec<u8> = (0..24)
        .flat_map(|flow| {
            let who = 0xc0 | flow << 1;
            [[who, MS_20, 0, 0, 0x10, 0, 5], [who | 1, S_2, 0, 0, 0x10, 0, 5]]
        })
        .flatten()
        .collect();
    scenes(vec![
        ("timestamps", "timestamps-all", [&open(0)[..], &exchange(0), &close].concat().concat()),
        ("sequence", "sequence-all", [&open(16)[..], &exchange(16), &close].concat().concat()),
        (
            // The SYN was not answered, or the answer was not captured.
            "data-after-syn",
            "data-after-syn-all",
            [
                [CLIENT, MS_1, 0, 0, 0x1f, 2 | 8 | 16, 0],
                [CLIENT, MS_20, 0, 0, 0x10, 16, 5],
                [SERVER, MS_20, 0, 0, 0x10, 16, 0],
            ]
            .concat(),
        ),
        ("many", "many-all", many),
    ])
}

/// Requests of every transport with the ACKs of their answers, for each estimator.
fn responses() -> Vec<(&'static str, Vec<u8>)> {
    let script = |transport: u8| {
        let exchanges = (0..40u8).flat_map(|number| {
            let (seq, ack) = (number.wrapping_mul(2), number.wrapping_mul(5));
            [
                [CLIENT, US_20, transport, seq, ack, 0x10, 30],
                [CLIENT, MS_10, transport, seq + 1, ack.wrapping_add(3), 0x10, 0],
                [SERVER, US_20, transport, ack, seq, 0x10, 100],
                [CLIENT, US_20, transport, seq + 1, ack.wrapping_add(5), 0x10, 0],
            ]
        });
        let back = [[CLIENT, 0xf7, transport, 9, 9, 0x10, 30]];
        exchanges.chain(back).flatten().collect::<Vec<_>>()
    };
    let with = |estimator, transport| [&[estimator, 0, 0x91][..], &script(transport)].concat();
    vec![
        ("auto-tcp", with(0, 0)),
        ("auto-quic", with(0, 4)),
        ("auto-wireguard", with(0, 5)),
        ("auto-esp", with(0, 6)),
        ("pirate-tcp", with(1, 0)),
        ("gap-other", with(2, 7)),
        ("syn-ack", with(3, 0)),
    ]
}

fn icmp() -> Vec<(&'static str, Vec<u8>)> {
    let ping = |who: u8, seq| [[who, MS_1, seq, 0], [who | 1, MS_20, seq, 1]].concat();
    let lost = vec![CLIENT, MS_1, 9, 0, CLIENT, MS_1, 9, 0, CLIENT, S_61, 9, 0];
    let many = (0..24).flat_map(|flow| ping(0xc0 | flow << 1, flow));
    scenes(vec![
        ("pings", "pings-all", [ping(0, 1), ping(2, 1), ping(0, 2), lost, ping(0, 9)].concat()),
        ("many", "many-all", many.collect()),
    ])
}

fn dns() -> Vec<(&'static str, Vec<u8>)> {
    let ask = |who, question| [who, MS_1, 7, question, 0];
    let answer = |who: u8, question| [who | 1, MS_20, 7, question, 1];
    let many: Vec<_> =
        (0..24).flat_map(|flow| [ask(0xc0 | flow << 1, flow & 7), answer(0xc0 | flow << 1, flow & 7)]).collect();
    scenes(vec![
        (
            "queries",
            "queries-all",
            [
                ask(0, 2),
                ask(0, 2),
                answer(0, 3),
                answer(0, 3),
                ask(2, 7),
                answer(2, 7),
                ask(0, 5),
                answer(0, 6),
                [CLIENT, MS_1, 250, 0, 16],
                [CLIENT, MS_1, 1, 9, 32],
                [CLIENT, MS_1, 1, 0x10, 8],
                [CLIENT, MS_1, 1, 0, 4 | 0x80],
            ]
            .concat(),
        ),
        ("at-once", "at-once-all", [ask(0, 2), [SERVER, 0, 7, 2, 1]].concat()),
        (
            // Flows whose addresses differ only in bits that a poor hash ignores.
            "alike",
            "alike-all",
            [ask(0xc2, 2), [0xd2, MS_1, 8, 2, 0], answer(0xd2, 2)].concat(),
        ),
        ("many", "many-all", many.concat()),
    ])
}

fn quic() -> Vec<(&'static str, Vec<u8>)> {
    let mut spin = Vec::new();
    for turn in 0..40u8 {
        // The client inverts the bit that the server echoes. Some edges arrive too early.
        let value = if turn % 2 == 0 { 0x60 } else { 0x40 };
        spin.push([CLIENT, MS_10, value, 0]);
        spin.push([CLIENT, MS_1, value, 0]);
        if turn == 20 {
            spin.push([CLIENT, US_20, value ^ 0x20, 0]);
            spin.push([CLIENT, US_20, value, 0]);
        }
        spin.push([SERVER, MS_20, value, 0]);
    }
    let handshake = |initial, reply, version| {
        [
            [CLIENT, MS_1, initial, version],
            [CLIENT, MS_1, initial, version],
            [SERVER, MS_20, reply, version],
            [SERVER, MS_1, 0xe0, version],
        ]
    };
    let again = [handshake(0xc0, 0xc0, 0), handshake(0xd0, 0xe0, 1), handshake(0xc0, 0x80, 2)];
    let both = [&handshake(0xc0, 0xf0, 0)[..], &spin, &again.concat()].concat();
    let long = (0..150u8).flat_map(|turn| {
        let value = 0x40 | (turn & 1) << 5;
        let client = [CLIENT, MS_1, value, 0];
        [client, client, [SERVER, MS_1, value, 0]]
    });
    let long: Vec<_> = long.collect();
    scenes(vec![
        ("spin", "spin-all", spin.concat()),
        ("long", "long-all", long.concat()),
        ("handshakes", "handshakes-all", again.concat().concat()),
        ("both", "both-all", both.concat()),
    ])
}

fn filters() -> Vec<(&'static str, Vec<u8>)> {
    [
        ("one", "10.0.0.0/8"),
        ("several", "10.0.0.0/8\n!10.1.0.0/16:53\n[2001:db8::/32]:443\n:8000-8099\n2001:db8::1"),
        ("excluding", "!192.0.2.1:1-2\n!:0-65535\n!fd00::/8"),
        ("wrong", "\n!\n10.0.0.0/33\n:99999\n:20-10\n[2001:db8::/32\n[::1]443\n-:1-\n:+1"),
        ("whole", "0.0.0.0/0\n[0::/0]:53\n::ffff:10.0.0.0/104"),
    ]
    .map(|(name, text)| (name, text.into()))
    .to_vec()
}

pub(crate) fn endpoints(v6: bool, ports: (u16, u16)) -> (Endpoint, Endpoint) {
    let address = |text: &str| text.parse().expect("an address");
    let (client, server) = match v6 {
        false => (address("10.0.0.1"), address("10.0.0.2")),
        true => (address("fd00::1"), address("fd00::2")),
    };
    (Endpoint { address: client, port: ports.0 }, Endpoint { address: server, port: ports.1 })
}

pub(crate) fn framed(link: Link, proto: u8, v6: bool, l4: &[u8]) -> Frame {
    let (from, to) = endpoints(v6, (0, 0));
    frame::ip(link, proto, from, to, l4, l4.len())
}

fn segment(ack: bool) -> Vec<u8> {
    let options = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let ports = if ack { (80, 40_000) } else { (40_000, 80) };
    frame::tcp(ports, 5, 6, 16, 1000, &options)
}

fn query() -> Vec<u8> {
    frame::udp((5353, 53), b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03www\x04test\0\0\x01\0\x01")
}
