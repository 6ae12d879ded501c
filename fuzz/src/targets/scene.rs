//! Packets of a few flows, and an independent record of them against which every event is checked.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use dwell_engine::{
    measure::{Endpoint, Event, FlowChange, FlowEvent, Method, Protocol, Sample, Tunnel},
    observe::Observation,
    rtt::Counter,
};

use crate::{
    bytes::Bytes,
    frame::{self, Link},
    watch::{self, Watch},
};

/// Maximum length of a scene, well below the 2^48 ns in which times wrap.
const SPAN_NS: u64 = 1 << 46;

const DELTAS_NS: [u64; 30] = [
    0,
    1,
    1_000,
    10_000,
    20_000,
    40_000,
    60_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    30_000_000,
    50_000_000,
    70_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    1_100_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    31_000_000_000,
    61_000_000_000,
    600_000_000_000,
    3_600_000_000_000,
];

/// The sender of a packet: flow, direction and link.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Number of the flow.
    pub flow: u8,
    /// Whether the client sends the packet.
    pub forward: bool,
    interface: u32,
    link: Link,
}

impl Stage {
    /// Decodes the byte that selects the sender.
    pub fn new(who: u8) -> Stage {
        let forward = who & 1 == 0;
        if who >= 0xc0 {
            return Stage { flow: 2 + (who >> 1 & 31), forward, interface: 0, link: Link::Ethernet };
        }
        Stage {
            flow: who >> 1 & 1,
            forward,
            interface: u32::from(who >> 4 & 3 == 3),
            link: [Link::Ethernet, Link::Tagged, Link::Raw, Link::Ethernet][usize::from(who >> 2 & 3)],
        }
    }

    /// Returns the link type of its frames.
    pub fn link(self) -> Link {
        self.link
    }

    /// Decodes the byte that selects the time step.
    pub fn delta_ns(delta: u8) -> u64 {
        DELTAS_NS[usize::from(delta & 31) % DELTAS_NS.len()]
    }

    /// Returns the addresses of client and server. Flows differ in these or in their ports.
    pub fn addresses(self) -> (IpAddr, IpAddr) {
        let v4 = |a, b, c, d| IpAddr::from([a, b, c, d]);
        let v6 = |high: [u16; 2], low: [u16; 4]| IpAddr::from([high[0], high[1], 0, 0, low[0], low[1], low[2], low[3]]);
        let number = self.flow / 8 + 1;
        let wide = u16::from(number);
        match self.flow % 8 {
            0 => (v4(10, 0, 0, 1), v4(10, 0, 0, 2)),
            1 => (v6([0xfd00, 0], [0, 0, 0, 1]), v6([0xfd00, 0], [0, 0, 0, 2])),
            2 => (v4(127, 0, 0, 1), v4(127, 0, 0, 1)),
            3 => (v6([0, 0], [0, 0, 0, 1]), v6([0, 0], [wide, 0, 0, 5])),
            4 => (v4(10, 0, 0, 2), v4(10, 0, 0, 1)),
            5 => (v6([0x2001, 0xdb8], [0, 0, 0, 255]), v6([0x2001, 0xdb8], [0, 0, 0, wide])),
            6 => (v4(192, 0, 2, number), v4(10, 0, 0, 1)),
            _ => (v6([0, 0], [0, 0, 0, 1]), v6([0, 0], [0, 0, 0, 1])),
        }
    }

    /// Returns source and destination. Flows with the same addresses differ in the client's port.
    pub fn endpoints(self, client_port: u16, server_port: u16) -> (Endpoint, Endpoint) {
        let (client, server) = self.addresses();
        // Every eighth flow has the same port, so that only its addresses differ.
        let offset = if self.flow % 8 == 3 { 0 } else { u16::from(self.flow / 8) };
        let client = Endpoint { address: client, port: client_port + offset };
        let server = Endpoint { address: server, port: server_port };
        if self.forward { (client, server) } else { (server, client) }
    }
}

/// The content of a packet, as its matcher should read it.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// A TCP segment.
    Tcp {
        /// First sequence number.
        seq: u32,
        /// One past the last byte, SYN and FIN included.
        end: u32,
        /// Acknowledgement number, if the ACK flag is set.
        ack: Option<u32>,
        /// Timestamp and echo, if there is a timestamp option.
        ts: Option<(u32, u32)>,
    },
    /// An ICMP echo message.
    Echo {
        /// Whether it is a request.
        request: bool,
        /// Sequence number.
        seq: u16,
    },
    /// A DNS message with one question.
    Dns {
        /// Whether it is a query.
        query: bool,
        /// Transaction ID.
        id: u16,
        /// Name, type and class, in lower case.
        question: Vec<u8>,
    },
    /// A QUIC packet.
    Quic {
        /// The first byte.
        first: u8,
        /// Version in a long header.
        version: u32,
    },
    /// A packet that no matcher can use.
    Nothing,
}

impl Meaning {
    /// Whether this packet may complete a round trip that `earlier` started.
    fn may_answer(&self, earlier: &Meaning, method: Method) -> bool {
        let initial =
            |first: u8, version: u32| first >> 4 & 3 == if version == 0x6b33_43cf { 1 } else { 0 } && version != 0;
        match (method, earlier, self) {
            (
                Method::TcpTimestamp,
                Meaning::Tcp { ts: Some((value, _)), .. },
                Meaning::Tcp { ts: Some((_, echo)), ack: Some(_), .. },
            ) => value == echo,
            (Method::TcpSeq, Meaning::Tcp { seq, end, .. }, Meaning::Tcp { ack: Some(ack), .. }) => {
                seq != end && end.wrapping_sub(*ack) as i32 <= 0
            }
            (
                Method::Icmp | Method::Icmpv6,
                Meaning::Echo { request: true, seq: request_seq },
                Meaning::Echo { request: false, seq },
            ) => request_seq == seq,
            (
                Method::Dns,
                Meaning::Dns { query: true, id: query_id, question: queried },
                Meaning::Dns { query: false, id, question },
            ) => (query_id, queried) == (id, question),
            (
                Method::QuicSpin | Method::QuicSpinLoop,
                Meaning::Quic { first: before, .. },
                Meaning::Quic { first, .. },
            ) => {
                let loops = method == Method::QuicSpinLoop;
                (before | first) & 0x80 == 0 && (!loops || (before ^ first) & 0x20 != 0)
            }
            (Method::QuicHandshake, Meaning::Quic { first: earlier_first, version }, Meaning::Quic { first, .. }) => {
                earlier_first & first & 0x80 != 0 && initial(*earlier_first, *version)
            }
            _ => false,
        }
    }

    /// Whether this packet can start a round trip.
    fn is_request(&self, method: Method) -> bool {
        match self {
            Meaning::Tcp { seq, end, ts, .. } => match method {
                Method::TcpTimestamp => ts.is_some(),
                _ => seq != end,
            },
            Meaning::Echo { request, .. } => *request,
            Meaning::Dns { query, .. } => *query,
            Meaning::Quic { .. } => true,
            Meaning::Nothing => false,
        }
    }
}

type Key = (Endpoint, Endpoint, Protocol, u32);

fn key(one: Endpoint, other: Endpoint, protocol: Protocol, interface: u32) -> Key {
    (one.min(other), one.max(other), protocol, interface)
}

struct Fed {
    time_ns: u64,
    from: Endpoint,
    to: Endpoint,
    meaning: Meaning,
}

#[derive(Default)]
struct Flow {
    fed: Vec<Fed>,
    bytes: u64,
    /// What encloses the packets of the flows that are open.
    open: HashSet<Tunnel>,
    samples: HashMap<(Method, Endpoint), usize>,
}

/// A tracker, the current time, and the packets that were fed to it.
pub struct Scene {
    watch: Watch,
    start_ns: u64,
    now_ns: u64,
    flows: HashMap<Key, Flow>,
}

impl Scene {
    /// Reads the start time and the configuration from the input.
    pub fn new(choices: &mut Bytes<'_>) -> Scene {
        let start_ns = match choices.u8() & 3 {
            0 => 1_600_000_000_000_000_000,
            1 => (1 << 48) - 1_000_000,
            2 => u64::MAX - SPAN_NS,
            _ => 0,
        };
        Scene { watch: Watch::new(watch::config(choices)), start_ns, now_ns: start_ns, flows: HashMap::new() }
    }

    /// Advances the time, sweeps idle flows, and decodes the next sender.
    pub fn stage(&mut self, who: u8, delta: u8) -> Stage {
        match DELTAS_NS.get(usize::from(delta & 31)) {
            Some(step) => {
                let step = step * (1 + u64::from(delta >> 5));
                if self.now_ns - self.start_ns + step < SPAN_NS {
                    self.now_ns += step;
                }
            }
            None => {
                let back = if delta & 31 == 30 { 30_000 } else { 2_000_000 };
                self.now_ns = self.now_ns.saturating_sub(back).max(self.start_ns);
            }
        }
        for event in self.watch.sweep(self.now_ns) {
            self.check(&event, None);
        }
        Stage::new(who)
    }

    /// Feeds one packet. Returns the counter of the reason if it was skipped.
    pub fn feed(&mut self, stage: Stage, packet: Packet) -> Option<Counter> {
        let Packet { proto, from, to, l4, l4_len, meaning } = packet;
        let frame = frame::ip(stage.link, proto, from, to, &l4, l4_len);
        let data = frame.data.into_boxed_slice();
        let (interface, protocol) = (stage.interface, Protocol(proto));
        let flow = self.flows.entry(key(from, to, protocol, interface)).or_default();
        let before = flow.fed.len();
        flow.bytes += u64::from(frame.wire_len);
        flow.fed.push(Fed { time_ns: self.now_ns, from, to, meaning });
        let observed = self.watch.observe(&Observation {
            time_ns: self.now_ns,
            interface,
            link: frame.link,
            data: &data,
            wire_len: frame.wire_len,
        });
        let now = (key(from, to, protocol, interface), before);
        for event in &observed.events {
            self.check(event, Some(now));
        }
        observed.skipped
    }

    /// Closes all flows. Returns the methods that gave samples.
    pub fn finish(mut self) -> BTreeSet<Method> {
        for event in self.watch.finish(self.now_ns) {
            self.check(&event, None);
        }
        assert!(self.flows.values().all(|flow| flow.open.is_empty()), "a flow is open after the end");
        self.watch.reached()
    }

    fn check(&mut self, event: &Event, now: Option<(Key, usize)>) {
        match event {
            Event::Flow(event) => self.check_flow(event, now),
            Event::Sample(sample) => {
                self.check_sample(sample, now.expect("only a packet gives a sample"));
            }
        }
    }

    fn check_flow(&mut self, event: &FlowEvent, now: Option<(Key, usize)>) {
        let key = key(event.src, event.dst, event.protocol, event.interface);
        let flow = self.flows.get_mut(&key).expect("the flow of an event was fed");
        // A connection that takes the ports of another begins with the SYN-ACK, which comes from its server.
        let ends = [(event.src, event.dst), (event.dst, event.src)];
        let mut fed = flow.fed.iter().filter(|fed| fed.time_ns == event.first_ns);
        assert!(fed.any(|fed| ends.contains(&(fed.from, fed.to))), "{event:?} starts with no packet that was fed");
        assert!(event.packets <= flow.fed.len() as u64 && event.bytes <= flow.bytes, "{event:?}");
        match event.change {
            FlowChange::Open => {
                assert!(flow.open.insert(event.tunnel), "{event:?} twice");
                assert_eq!(now.map(|(key, _)| key), Some(key), "{event:?}");
                assert_eq!(event.first_ns, event.time_ns);
            }
            FlowChange::Close(_) => {
                assert!(flow.open.remove(&event.tunnel), "{event:?} without its opening");
            }
            FlowChange::FirstRtt(..) => {
                assert_eq!(now.map(|(key, _)| key), Some(key), "{event:?}");
            }
        }
    }

    fn check_sample(&mut self, sample: &Sample, (fed_key, at): (Key, usize)) {
        let flow = self.flows.get_mut(&fed_key).expect("just fed");
        let answer = &flow.fed[at];
        assert_eq!(
            (sample.src, sample.dst, sample.protocol, sample.interface),
            (answer.to, answer.from, fed_key.2, fed_key.3),
            "{sample:?}"
        );
        assert!(sample.packets <= flow.fed.len() as u64 && sample.bytes <= flow.bytes, "{sample:?}");
        let loops = sample.method == Method::QuicSpinLoop;
        let (src, dst) = match loops {
            true => (answer.from, answer.to),
            false => (answer.to, answer.from),
        };
        let start_ns = sample.time_ns.checked_sub(sample.rtt_ns);
        assert!(
            flow.fed[..at].iter().any(|fed| Some(fed.time_ns) == start_ns
                && (fed.from, fed.to) == (src, dst)
                && answer.meaning.may_answer(&fed.meaning, sample.method)),
            "{sample:?} answers no packet that was fed"
        );
        assert!(flow.fed[..at].iter().any(|fed| fed.from == answer.to), "{sample:?} of one direction");
        let requests =
            flow.fed[..at].iter().filter(|fed| fed.from == src && fed.meaning.is_request(sample.method)).count();
        let samples = flow.samples.entry((sample.method, sample.dst)).or_default();
        *samples += 1;
        assert!(*samples <= requests, "{samples} samples of {requests} packets: {sample:?}");
    }
}

/// A packet to feed.
pub struct Packet {
    /// IP protocol.
    pub proto: u8,
    /// The sender.
    pub from: Endpoint,
    /// The receiver.
    pub to: Endpoint,
    /// The captured part of the transport header and payload.
    pub l4: Vec<u8>,
    /// Length of the transport header and payload on the wire.
    pub l4_len: usize,
    /// The meaning of the packet.
    pub meaning: Meaning,
}
