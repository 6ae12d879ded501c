//! Packets of a few flows, and the memory of what was fed that every event is
//! held against.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use dwell_engine::{
    measure::{Endpoint, Event, FlowChange, FlowEvent, Method, Protocol, Sample},
    observe::Observation,
    rtt::Counter,
};

use crate::{
    bytes::Bytes,
    frame::{self, Link},
    watch::{self, Watch},
};

/// Times wrap in 2^48 ns; a scene stays well below.
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

/// Who sends, read from two bytes: flow, direction, link; and how much later
/// than the packet before.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Number of the flow.
    pub flow: u8,
    /// The client sends it.
    pub forward: bool,
    interface: u32,
    link: Link,
}

impl Stage {
    /// From the byte that says who.
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

    /// What frames of it look like.
    pub fn link(self) -> Link {
        self.link
    }

    /// The step in time that a byte stands for.
    pub fn delta_ns(delta: u8) -> u64 {
        DELTAS_NS[usize::from(delta & 31) % DELTAS_NS.len()]
    }

    /// Client and server address. Flows differ in them, or in their ports.
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

    /// From and to, where the client's port tells flows apart.
    pub fn endpoints(self, client_port: u16, server_port: u16) -> (Endpoint, Endpoint) {
        let (client, server) = self.addresses();
        // The third of eight have one port, and so only their addresses.
        let offset = if self.flow % 8 == 3 { 0 } else { u16::from(self.flow / 8) };
        let client = Endpoint { address: client, port: client_port + offset };
        let server = Endpoint { address: server, port: server_port };
        if self.forward { (client, server) } else { (server, client) }
    }
}

/// What a packet says, as its matcher should understand it.
#[derive(Debug, Clone, PartialEq)]
pub enum Says {
    /// TCP; `tsecr` and `ack` only where the ACK flag is set.
    Tcp {
        /// First sequence number.
        seq: u32,
        /// One past the last byte, SYN and FIN included.
        end: u32,
        /// Acknowledgement.
        ack: Option<u32>,
        /// Timestamp and its echo.
        ts: Option<(u32, u32)>,
    },
    /// ICMP echo.
    Echo {
        /// Not a reply.
        request: bool,
        /// Sequence number.
        seq: u16,
    },
    /// DNS with one question.
    Dns {
        /// Not a response.
        query: bool,
        /// Transaction.
        id: u16,
        /// Name, type and class, letters folded.
        question: Vec<u8>,
    },
    /// QUIC.
    Quic {
        /// The first byte.
        first: u8,
        /// Of a long header.
        version: u32,
    },
    /// Nothing that can be measured.
    Nothing,
}

impl Says {
    /// Whether a packet that says this may complete a round trip that `earlier`
    /// began.
    fn may_answer(&self, earlier: &Says, method: Method) -> bool {
        let initial =
            |first: u8, version: u32| first >> 4 & 3 == if version == 0x6b33_43cf { 1 } else { 0 } && version != 0;
        match (method, earlier, self) {
            (
                Method::TcpTimestamp,
                Says::Tcp { ts: Some((value, _)), .. },
                Says::Tcp { ts: Some((_, echo)), ack: Some(_), .. },
            ) => value == echo,
            (Method::TcpSeq, Says::Tcp { seq, end, .. }, Says::Tcp { ack: Some(ack), .. }) => {
                seq != end && end.wrapping_sub(*ack) as i32 <= 0
            }
            (
                Method::Icmp | Method::Icmpv6,
                Says::Echo { request: true, seq: asked },
                Says::Echo { request: false, seq },
            ) => asked == seq,
            (
                Method::Dns,
                Says::Dns { query: true, id: asked_id, question: asked },
                Says::Dns { query: false, id, question },
            ) => (asked_id, asked) == (id, question),
            (Method::QuicSpin | Method::QuicSpinLoop, Says::Quic { first: before, .. }, Says::Quic { first, .. }) => {
                let loops = method == Method::QuicSpinLoop;
                (before | first) & 0x80 == 0 && (!loops || (before ^ first) & 0x20 != 0)
            }
            (Method::QuicHandshake, Says::Quic { first: asked, version }, Says::Quic { first, .. }) => {
                asked & first & 0x80 != 0 && initial(*asked, *version)
            }
            _ => false,
        }
    }

    /// Whether it can be answered at all.
    fn asks(&self, method: Method) -> bool {
        match self {
            Says::Tcp { seq, end, ts, .. } => match method {
                Method::TcpTimestamp => ts.is_some(),
                _ => seq != end,
            },
            Says::Echo { request, .. } => *request,
            Says::Dns { query, .. } => *query,
            Says::Quic { .. } => true,
            Says::Nothing => false,
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
    says: Says,
}

#[derive(Default)]
struct Flow {
    fed: Vec<Fed>,
    bytes: u64,
    open: bool,
    samples: HashMap<(Method, Endpoint), usize>,
}

/// A tracker, the time, and what was fed.
pub struct Scene {
    watch: Watch,
    start_ns: u64,
    now_ns: u64,
    flows: HashMap<Key, Flow>,
}

impl Scene {
    /// Reads time and configuration.
    pub fn new(choices: &mut Bytes<'_>) -> Scene {
        let start_ns = match choices.u8() & 3 {
            0 => 1_600_000_000_000_000_000,
            1 => (1 << 48) - 1_000_000,
            2 => u64::MAX - SPAN_NS,
            _ => 0,
        };
        Scene { watch: Watch::new(watch::config(choices)), start_ns, now_ns: start_ns, flows: HashMap::new() }
    }

    /// Moves on in time, sweeps now and then, and says who sends next.
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

    /// Feeds one packet of a stage. `cut` bytes at the end are not captured.
    pub fn feed(&mut self, stage: Stage, packet: Packet) -> Option<Counter> {
        let Packet { proto, from, to, l4, l4_len, says } = packet;
        let frame = frame::ip(stage.link, proto, from, to, &l4, l4_len);
        let data = frame.data.into_boxed_slice();
        let (interface, protocol) = (stage.interface, Protocol(proto));
        let flow = self.flows.entry(key(from, to, protocol, interface)).or_default();
        let before = flow.fed.len();
        flow.bytes += u64::from(frame.wire_len);
        flow.fed.push(Fed { time_ns: self.now_ns, from, to, says });
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

    /// Closes all flows.
    pub fn finish(mut self) -> BTreeSet<Method> {
        for event in self.watch.finish(self.now_ns) {
            self.check(&event, None);
        }
        assert!(self.flows.values().all(|flow| !flow.open), "a flow is open after the end");
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
        assert!(
            flow.fed.iter().any(|fed| fed.time_ns == event.first_ns && fed.from == event.src && fed.to == event.dst),
            "{event:?} begins with no packet that was fed"
        );
        assert!(event.packets <= flow.fed.len() as u64 && event.bytes <= flow.bytes, "{event:?}");
        match event.change {
            FlowChange::Open => {
                assert!(!flow.open, "{event:?} twice");
                assert_eq!(now.map(|(key, _)| key), Some(key), "{event:?}");
                assert_eq!(event.first_ns, event.time_ns);
                flow.open = true;
            }
            FlowChange::Close(_) => {
                assert!(flow.open, "{event:?} without its opening");
                flow.open = false;
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
        let began = sample.time_ns.checked_sub(sample.rtt_ns);
        assert!(
            flow.fed[..at].iter().any(|fed| Some(fed.time_ns) == began
                && (fed.from, fed.to) == (src, dst)
                && answer.says.may_answer(&fed.says, sample.method)),
            "{sample:?} answers no packet that was fed"
        );
        assert!(flow.fed[..at].iter().any(|fed| fed.from == answer.to), "{sample:?} of one direction");
        let asked = flow.fed[..at].iter().filter(|fed| fed.from == src && fed.says.asks(sample.method)).count();
        let samples = flow.samples.entry((sample.method, sample.dst)).or_default();
        *samples += 1;
        assert!(*samples <= asked, "{samples} samples of {asked} packets: {sample:?}");
    }
}

/// A packet to feed.
pub struct Packet {
    /// IP protocol.
    pub proto: u8,
    /// Who sends it.
    pub from: Endpoint,
    /// To whom.
    pub to: Endpoint,
    /// The captured part of what follows the IP header.
    pub l4: Vec<u8>,
    /// Its length on the wire.
    pub l4_len: usize,
    /// What it says.
    pub says: Says,
}
