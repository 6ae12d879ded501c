//! What fuzzing starts from: small inputs that reach each part by hand.

use std::{io::Write, num::NonZeroU64};

use dwell_capture::{LinkType, Writer};
use dwell_engine::{
    clock::{Stamper, answer, request},
    histogram::Histogram,
    layers::{Direction, Ends, Layer, Passage, Segment},
    measure::Endpoint,
};
use dwell_fleet::wire::{
    self, Batch, Content, Flow, FlowSegment, FromAgent, FromCollector, Hello, Interval, Passages,
    Row, Trip,
};

use crate::{
    frame::{self, Frame, Link},
    targets::clock_session,
};

/// A target's seeds by name.
pub fn of(target: &str) -> Vec<(&'static str, Vec<u8>)> {
    match target {
        "capture" => captures(),
        "clock" => clocks(),
        "dns" => dns(),
        "filter" => filters(),
        "fleet" => fleet(),
        "icmp" => icmp(),
        "packet" => packets(),
        "quic" => quic(),
        "response" => responses(),
        "replay" | "response_replay" => captures()
            .into_iter()
            .map(|(name, file)| (name, [&[0, 5, 0][..], &file].concat()))
            .collect(),
        "socket" => sockets(),
        "tcp" => tcp(),
        _ => panic!("no target {target}"),
    }
}

/// A hello; a byte that two hosts tell of, in a batch with an interval; what a collector says.
fn fleet() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |message: &dyn Fn() -> Option<Vec<u8>>| {
        let mut bytes = Vec::new();
        let content = message().expect("it is short");
        wire::write(&mut bytes, &content).expect("memory takes all");
        bytes
    };
    let hello = FromAgent::Hello(Hello {
        name: String::from("web-1").try_into().expect("a name"),
        run: [7; 16],
        boot: String::from("a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1"),
        sync_port: Some(4790),
    });
    let batch = |number, passages| {
        let mut took = Histogram::default();
        took.record(1_000);
        let row = Row {
            segment: Segment::Queueing,
            histogram: took.clone(),
            again: Histogram::default(),
            hook_from: Some("hook".into()),
            hook_to: None,
            missing: Some(Layer::TxTcp),
        };
        let segment = FlowSegment {
            segment: Segment::Application,
            histogram: took,
        };
        let flow = Flow {
            ends: ends(),
            segments: vec![segment],
        };
        let interval = Interval {
            end_ns: 5_000,
            end_unix_ns: -1,
            length_ns: 1_000,
            sample_bytes: 1 << 16,
            rows: vec![row],
            flows: vec![flow],
            trips: vec![Trip {
                ends: ends(),
                is_received: true,
                least_ns: 1_000,
                smoothed_ns: 2_000,
            }],
        };
        FromAgent::Batch(Box::new(Batch {
            number,
            content: Content {
                intervals: vec![interval],
                passages: Passages(passages),
                counters: vec![("lost".into(), 1)],
            },
        }))
    };
    let both = batch(9, vec![passed(Direction::Tx), passed(Direction::Rx)]);
    let [down, up] = [Direction::Tx, Direction::Rx].map(|way| batch(9, vec![passed(way)]));
    let refused = FromCollector::Refused("no".into());
    let stored = FromCollector::Stored { through: 300 };
    let [hello, alive, both, down, up] =
        [hello, FromAgent::Alive, both, down, up].map(|message| frame(&|| wire::encode(&message)));
    let [refused, stored] = [refused, stored].map(|message| frame(&|| wire::encode(&message)));
    vec![
        ("hello", [hello.clone(), alive].concat()),
        ("batch", both),
        ("batches", [hello, down, up].concat()),
        ("answers", [refused, stored].concat()),
    ]
}

fn ends() -> Ends {
    let end = |last, port| Endpoint {
        address: [192, 0, 2, last].into(),
        port,
    };
    Ends {
        src: end(1, 40_000),
        dst: end(2, 443),
    }
}

/// A byte that was at each layer of a side, a microsecond after the one before.
fn passed(direction: Direction) -> Passage {
    let mut stamps = [None; Layer::ALL.len()];
    for (layer, number) in Layer::ALL.into_iter().zip(1..) {
        if layer.direction() == direction {
            stamps[layer as usize] = NonZeroU64::new(number * 1_000);
        }
    }
    Passage {
        ends: ends(),
        seq: 1 << 16,
        direction,
        sent: 1,
        again: false,
        stamps,
    }
}

// Places in the table of steps in time.
const US_20: u8 = 4;
const MS_1: u8 = 10;
const MS_10: u8 = 13;
const MS_20: u8 = 14;
const S_2: u8 = 23;
const S_61: u8 = 27;

const CLIENT: u8 = 0;
const SERVER: u8 = 1;

/// One script with everything off, and with handshakes, ACKs and flow events.
fn scenes(scripts: Vec<(&'static str, &'static str, Vec<u8>)>) -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (plain, all, script) in scripts {
        seeds.push((plain, [&[0, 0, 0, 0][..], &script].concat()));
        seeds.push((all, [&[0, 0, 7, 0][..], &script].concat()));
    }
    seeds
}

/// A request and a reply, over IPv4 and IPv6.
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
        let ip = [
            0x45, 0, 0, 76, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, from, 192, 0, 2, to,
        ];
        [&[1][..], &ethernet, &ip, udp].concat()
    };
    let ipv6 = |from: u8, to: u8, udp: &[u8]| {
        let ethernet = [&[2; 12][..], &[0x86, 0xdd]].concat();
        let address = |last| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let ip = [
            &[0x60, 0, 0, 0, 0, 56, 17, 64][..],
            &address(from),
            &address(to),
        ]
        .concat();
        [&[6][..], &ethernet, &ip, udp].concat()
    };
    let (asked, told) = (udp(40000, 4711, &request), udp(4711, 40000, &reply));
    vec![
        ("request-v4", ipv4(1, 2, &asked)),
        ("request-v6", ipv6(1, 2, &asked)),
        ("reply-v4", ipv4(2, 1, &told)),
        ("reply-v6", ipv6(2, 1, &told)),
    ]
}

/// A full buffer that empties, as kernels of three ages tell it, by each estimator.
fn sockets() -> Vec<(&'static str, Vec<u8>)> {
    let look = |length: u8, n: u8| {
        [
            &[0x80, 0x96, 0x98, 0, length, n & 1, 5, 5, 40, 0, 10, 0][..],
            &[0, 10 * n, 0, 0, 8 * n, 0, n, 0, 0, 200 - 10 * n, 0],
            &[0, 12 * n, 0, 0, n, 200, 30, 9, 9],
        ]
        .concat()
    };
    let looks = |choices: u8, length: u8| {
        let looks = (0..12).flat_map(|n| look(length, n));
        std::iter::once(choices).chain(looks).collect::<Vec<u8>>()
    };
    vec![
        ("now", looks(0, 232)),
        ("unsent", looks(2, 160)),
        ("acked", looks(0, 144)),
        ("paper", looks(1, 232)),
        ("calls", looks(5, 232)),
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
            // the same bytes again, an ACK with a hole, an ACK for all
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
            [
                [who, MS_20, 0, 0, 0x10, 0, 5],
                [who | 1, S_2, 0, 0, 0x10, 0, 5],
            ]
        })
        .flatten()
        .collect();
    scenes(vec![
        (
            "timestamps",
            "timestamps-all",
            [&open(0)[..], &exchange(0), &close].concat().concat(),
        ),
        (
            "sequence",
            "sequence-all",
            [&open(16)[..], &exchange(16), &close].concat().concat(),
        ),
        (
            // The SYN was not answered, or its answer not seen.
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

/// Each estimator over requests of every transport and the ACKs of their answers.
fn responses() -> Vec<(&'static str, Vec<u8>)> {
    let script = |transport: u8| {
        let exchanges = (0..40u8).flat_map(|number| {
            let (seq, ack) = (number.wrapping_mul(2), number.wrapping_mul(5));
            [
                [CLIENT, US_20, transport, seq, ack, 0x10, 30],
                [
                    CLIENT,
                    MS_10,
                    transport,
                    seq + 1,
                    ack.wrapping_add(3),
                    0x10,
                    0,
                ],
                [SERVER, US_20, transport, ack, seq, 0x10, 100],
                [
                    CLIENT,
                    US_20,
                    transport,
                    seq + 1,
                    ack.wrapping_add(5),
                    0x10,
                    0,
                ],
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
        (
            "pings",
            "pings-all",
            [ping(0, 1), ping(2, 1), ping(0, 2), lost, ping(0, 9)].concat(),
        ),
        ("many", "many-all", many.collect()),
    ])
}

fn dns() -> Vec<(&'static str, Vec<u8>)> {
    let ask = |who, question| [who, MS_1, 7, question, 0];
    let answer = |who: u8, question| [who | 1, MS_20, 7, question, 1];
    let many: Vec<_> = (0..24)
        .flat_map(|flow| {
            [
                ask(0xc0 | flow << 1, flow & 7),
                answer(0xc0 | flow << 1, flow & 7),
            ]
        })
        .collect();
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
        (
            "at-once",
            "at-once-all",
            [ask(0, 2), [SERVER, 0, 7, 2, 1]].concat(),
        ),
        (
            // Flows whose addresses differ only where a hash may forget to look.
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
        // The client inverts what the server echoes. Some edges come too early.
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
    let again = [
        handshake(0xc0, 0xc0, 0),
        handshake(0xd0, 0xe0, 1),
        handshake(0xc0, 0x80, 2),
    ];
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
        (
            "several",
            "10.0.0.0/8\n!10.1.0.0/16:53\n[2001:db8::/32]:443\n:8000-8099\n2001:db8::1",
        ),
        ("excluding", "!192.0.2.1:1-2\n!:0-65535\n!fd00::/8"),
        (
            "wrong",
            "\n!\n10.0.0.0/33\n:99999\n:20-10\n[2001:db8::/32\n[::1]443\n-:1-\n:+1",
        ),
        ("whole", "0.0.0.0/0\n[0::/0]:53\n::ffff:10.0.0.0/104"),
    ]
    .map(|(name, text)| (name, text.into()))
    .to_vec()
}

fn endpoints(v6: bool, ports: (u16, u16)) -> (Endpoint, Endpoint) {
    let address = |text: &str| text.parse().expect("an address");
    let (client, server) = match v6 {
        false => (address("10.0.0.1"), address("10.0.0.2")),
        true => (address("fd00::1"), address("fd00::2")),
    };
    (
        Endpoint {
            address: client,
            port: ports.0,
        },
        Endpoint {
            address: server,
            port: ports.1,
        },
    )
}

fn framed(link: Link, proto: u8, v6: bool, l4: &[u8]) -> Frame {
    let (from, to) = endpoints(v6, (0, 0));
    frame::ip(link, proto, from, to, l4, l4.len())
}

fn segment(ack: bool) -> Vec<u8> {
    let options = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let ports = if ack { (80, 40_000) } else { (40_000, 80) };
    frame::tcp(ports, 5, 6, 16, 1000, &options)
}

fn query() -> Vec<u8> {
    frame::udp(
        (5353, 53),
        b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03www\x04test\0\0\x01\0\x01",
    )
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let seed = |link: u8, data: &[u8]| [&[0, 0, 0, link, 0, 1][..], data].concat();
    let (ethernet, raw) = (Link::Ethernet, Link::Raw);
    let tcp4 = framed(raw, 6, false, &segment(false)).data;
    let dns6 = framed(raw, 17, true, &query()).data;
    // Places in LINK_TYPES: NULL, Ethernet, raw, SLL, SLL2.
    let (null, eth, bare, sll, sll2) = (0, 1, 4, 6, 9);
    let typed = |ethertype: [u8; 2], rest: &[u8]| [&[2; 12][..], &ethertype, rest].concat();
    // What an outer header of IPv4 or IPv6 brings before `inner`.
    let within = |proto, v6, inner: &[u8]| framed(ethernet, proto, v6, inner).data;
    let echo = [8, 0, 0, 0, 0, 7, 0, 1];
    let quic = frame::udp((50_000, 443), &[0xc0, 0, 0, 0, 1, 8, 0]);
    let mut options = tcp4.clone();
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 0]);
    vec![
        ("tcp4", seed(eth, &within(6, false, &segment(false)))),
        ("tcp6", seed(eth, &within(6, true, &segment(false)))),
        ("raw", seed(bare, &tcp4)),
        ("options", seed(bare, &options)),
        ("null", seed(null, &[&[2, 0, 0, 0][..], &tcp4].concat())),
        ("sll", seed(sll, &[&[0; 14][..], &[8, 0], &tcp4].concat())),
        (
            "sll2",
            seed(sll2, &[&[0x86, 0xdd][..], &[0; 18], &dns6].concat()),
        ),
        ("unknown-link", seed(200, &tcp4)),
        ("arp", seed(eth, &typed([8, 6], &[0; 28]))),
        ("icmp4", seed(eth, &within(1, false, &echo))),
        (
            "icmp6",
            seed(eth, &within(58, true, &[128, 0, 0, 0, 0, 7, 0, 1])),
        ),
        ("dns4", seed(eth, &within(17, false, &query()))),
        ("dns6", seed(bare, &dns6)),
        ("quic", seed(eth, &within(17, false, &quic))),
        (
            "vlans",
            seed(
                eth,
                &typed(
                    [0x88, 0xa8],
                    &[&[0, 1, 0x81, 0, 0, 2, 8, 0][..], &tcp4].concat(),
                ),
            ),
        ),
        (
            "pppoe",
            seed(
                eth,
                &typed(
                    [0x88, 0x64],
                    &[&[0x11, 0, 0, 1, 0, 60, 0, 0x57][..], &dns6].concat(),
                ),
            ),
        ),
        (
            "mpls",
            seed(
                eth,
                &typed(
                    [0x88, 0x47],
                    &[&[0, 0, 0, 64, 0, 0, 1, 64][..], &tcp4].concat(),
                ),
            ),
        ),
        (
            "pppoe4",
            seed(
                eth,
                &typed(
                    [0x88, 0x64],
                    &[&[0x11, 0, 0, 1, 0, 60, 0, 0x21][..], &tcp4].concat(),
                ),
            ),
        ),
        (
            // An inner header farther away than is looked.
            "far",
            seed(
                eth,
                &within(60, true, &[&[4, 140][..], &[0; 1126], &tcp4].concat()),
            ),
        ),
        ("4in4", seed(eth, &within(4, false, &tcp4))),
        ("6in4", seed(eth, &within(41, false, &dns6))),
        (
            "gre",
            seed(
                eth,
                &within(47, false, &[&[0xb0, 0, 8, 0][..], &[0; 12], &tcp4].concat()),
            ),
        ),
        (
            "gre-bridged",
            seed(
                eth,
                &within(
                    47,
                    false,
                    &[&[0, 0, 0x65, 0x58][..], &typed([8, 0], &tcp4)].concat(),
                ),
            ),
        ),
        (
            "extensions",
            seed(
                eth,
                &within(
                    0,
                    true,
                    &[
                        &[43, 0, 0, 0, 0, 0, 0, 0][..],
                        &[60, 0, 0, 0, 0, 0, 0, 0],
                        &[51, 0, 0, 0, 0, 0, 0, 0],
                        &[44, 1, 0, 0, 0, 0, 0, 0],
                        &[17, 0, 0, 0, 0, 0, 0, 0],
                        &query(),
                    ]
                    .concat(),
                ),
            ),
        ),
        (
            "fragment",
            seed(
                eth,
                &within(
                    44,
                    true,
                    &[&[17, 0, 0, 9, 0, 0, 0, 0][..], &query()].concat(),
                ),
            ),
        ),
    ]
}

/// Small files of each format, and broken ones.
fn captures() -> Vec<(&'static str, Vec<u8>)> {
    let (client, server) = endpoints(false, (0, 0));
    let asked = frame::ip(Link::Ethernet, 6, client, server, &segment(false), 82).data;
    let reply = segment(true);
    let reply = [&reply[..24], &[0, 0, 0, 9, 0, 0, 0, 7], &reply[32..]].concat();
    let told = frame::ip(Link::Ethernet, 6, server, client, &reply, 82).data;
    let question = framed(Link::Ethernet, 17, true, &query()).data;
    let all = [&asked, &told, &question];

    let mut writer = Writer::new(Vec::new(), LinkType(1)).expect("memory");
    for (at_ms, data) in (0..).zip(all) {
        let time_ns = 1_600_000_000_000_000_000 + at_ms * 20_000_000;
        writer
            .write(time_ns, data, data.len() as u32 + 50)
            .expect("memory");
    }
    let classic = writer.finish().expect("memory");
    // The same in the other byte order and with microseconds.
    let mut swapped: Vec<u8> = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    for data in all {
        let len = data.len() as u32;
        swapped.extend([5, 6, len, len].iter().flat_map(|word| word.to_be_bytes()));
        swapped.extend(data);
    }

    let section = block(
        0x0a0d_0d0a,
        &[
            0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
        ],
    );
    let interface = |link: u8, tsresol: u8| {
        let head = [link, 0, 0, 0, 0, 0, 4, 0];
        block(
            1,
            &[&head[..], &[9, 0, 1, 0, tsresol, 0, 0, 0, 0, 0, 0, 0]].concat(),
        )
    };
    let packet = |kind: u32, number: u8, time: u32, data: &[u8]| {
        let len = (data.len() as u32).to_le_bytes();
        let head = [
            [number, 0, 0, 0],
            0x57f5_0000u32.to_le_bytes(),
            time.to_le_bytes(),
            len,
            len,
        ];
        let mut body = [head.as_flattened(), data].concat();
        body.resize(body.len().next_multiple_of(4), 0);
        block(kind, &body)
    };
    let mut simple = [&(asked.len() as u32).to_le_bytes()[..], &asked].concat();
    simple.resize(simple.len().next_multiple_of(4), 0);
    let blocks = [
        section.clone(),
        interface(1, 9),
        packet(6, 0, 1_000_000, &asked),
        interface(101, 0x94),
        packet(6, 0, 21_000_000, &told),
        packet(2, 1, 3, &asked[14..]),
        block(5, &[0; 12]),
        block(3, &simple),
        section,
        interface(1, 6),
        packet(6, 0, 9, &question),
    ]
    .concat();
    let cut = |file: &[u8]| file[..file.len() - 9].to_vec();
    vec![
        ("empty", Vec::new()),
        ("text", b"GET / HTTP/1.1\r\n".to_vec()),
        ("classic-cut", cut(&classic)),
        ("blocks-cut", cut(&blocks)),
        ("classic-gzip", gzip(&classic)),
        (
            "blocks-gzip",
            [gzip(&blocks[..100]), gzip(&blocks[100..])].concat(),
        ),
        ("classic", classic),
        ("classic-swapped", swapped),
        ("blocks", blocks),
    ]
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, &len].concat()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packer.write_all(content).expect("memory");
    packer.finish().expect("memory")
}
