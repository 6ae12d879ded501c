//! A small language for packets, and for the results of the engine as lines.
//!
//! Times are milliseconds since the first second of the scene. `client(10.0)` is a packet that the client sends and the
//! vantage point sees then.

use std::net::IpAddr;

use dwell_engine::{
    measure::{Event, FlowChange, FlowEvent, Sample},
    observe::Observation,
    rtt::{Config, Counter, Counters, Tracker},
};
use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement, TcpOptions};

pub const START_NS: u64 = 1_600_000_000_000_000_000;
pub const ETHERNET: u32 = 1;
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 80;

/// Bytes on a link at some time.
#[derive(Debug, Clone)]
pub struct Frame {
    pub time_ns: u64,
    pub interface: u32,
    pub link: u32,
    pub data: Vec<u8>,
    pub wire_len: u32,
}

pub fn frame(at_ms: f64, link: u32, data: Vec<u8>) -> Frame {
    Frame { time_ns: START_NS + (at_ms * 1e6).round() as u64, interface: 1, link, wire_len: data.len() as u32, data }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub fn address(self) -> [u8; 4] {
        [10, 0, 0, if self == Side::Client { 1 } else { 2 }]
    }

    pub fn address6(self) -> [u8; 16] {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, if self == Side::Client { 1 } else { 2 });
        address
    }

    pub fn peer(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    fn of(address: IpAddr) -> Side {
        let last = match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        if last == 1 { Side::Client } else { Side::Server }
    }
}

/// One TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub at_ms: f64,
    pub from: Side,
    pub port: u16,
    pub ipv6: bool,
    pub seq: u32,
    pub payload: usize,
    pub ack: Option<u32>,
    pub ts: Option<(u32, u32)>,
    pub sack: Option<(u32, u32)>,
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    pub window: u16,
}

pub fn client(at_ms: f64) -> Segment {
    segment(Side::Client, at_ms)
}

pub fn server(at_ms: f64) -> Segment {
    segment(Side::Server, at_ms)
}

pub fn segment(from: Side, at_ms: f64) -> Segment {
    Segment {
        at_ms,
        from,
        port: CLIENT_PORT,
        ipv6: false,
        seq: 0,
        payload: 0,
        ack: None,
        ts: None,
        sack: None,
        syn: false,
        fin: false,
        rst: false,
        window: 1000,
    }
}

impl Segment {
    /// Adds `bytes` of data that start at `seq`.
    pub fn data(self, seq: u32, bytes: usize) -> Segment {
        Segment { seq, payload: bytes, ..self }
    }

    pub fn seq(self, seq: u32) -> Segment {
        Segment { seq, ..self }
    }

    pub fn ack(self, ack: u32) -> Segment {
        Segment { ack: Some(ack), ..self }
    }

    /// Adds a TSval, and the TSval that it echoes.
    pub fn ts(self, value: u32, echo: u32) -> Segment {
        Segment { ts: Some((value, echo)), ..self }
    }

    pub fn sack(self, from: u32, to: u32) -> Segment {
        Segment { sack: Some((from, to)), ..self }
    }

    pub fn syn(self, seq: u32) -> Segment {
        Segment { syn: true, seq, ..self }
    }

    pub fn fin(self, seq: u32) -> Segment {
        Segment { fin: true, seq, ..self }
    }

    pub fn rst(self) -> Segment {
        Segment { rst: true, ..self }
    }

    pub fn window(self, window: u16) -> Segment {
        Segment { window, ..self }
    }

    /// Moves the segment to another connection of the same hosts.
    pub fn port(self, port: u16) -> Segment {
        Segment { port, ..self }
    }

    pub fn ipv6(self) -> Segment {
        Segment { ipv6: true, ..self }
    }

    /// Returns the packet from the IP header on.
    pub fn ip_packet(&self) -> Vec<u8> {
        let ports = match self.from {
            Side::Client => (self.port, SERVER_PORT),
            Side::Server => (SERVER_PORT, self.port),
        };
        let mut tcp = TcpHeader::new(ports.0, ports.1, self.seq, self.window);
        tcp.ack = self.ack.is_some();
        tcp.acknowledgment_number = self.ack.unwrap_or(0);
        (tcp.syn, tcp.fin, tcp.rst) = (self.syn, self.fin, self.rst);
        let mut options = Vec::new();
        if let Some((value, echo)) = self.ts {
            options.extend([TcpOptionElement::Noop, TcpOptionElement::Noop]);
            options.push(TcpOptionElement::Timestamp(value, echo));
        }
        if let Some(block) = self.sack {
            options.push(TcpOptionElement::SelectiveAcknowledgement(block, [None; 3]));
        }
        tcp.options = TcpOptions::try_from_elements(&options).expect("they fit");
        let (from, to) = (self.from, self.from.peer());
        let builder = if self.ipv6 {
            PacketBuilder::ipv6(from.address6(), to.address6(), 64)
        } else {
            PacketBuilder::ipv4(from.address(), to.address(), 64)
        };
        let mut bytes = Vec::new();
        builder.tcp_header(tcp).write(&mut bytes, &vec![0xda; self.payload]).expect("a vector takes it");
        bytes
    }
}

impl From<Segment> for Frame {
    fn from(segment: Segment) -> Frame {
        frame(segment.at_ms, ETHERNET, ethernet(&segment.ip_packet()))
    }
}

/// Returns an Ethernet frame with an IP packet of either version.
pub fn ethernet(ip: &[u8]) -> Vec<u8> {
    let ethertype: [u8; 2] = if ip[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[2; 12][..], &ethertype, ip].concat()
}

/// Returns a UDP datagram, from the IP header on.
pub fn udp(from: Side, source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(from.address(), from.peer().address(), 64)
        .udp(source_port, destination_port)
        .write(&mut bytes, payload)
        .expect("a vector takes it");
    bytes
}

/// The results of a scene.
pub struct Run {
    pub samples: Vec<Sample>,
    pub flows: Vec<FlowEvent>,
    pub counters: Counters,
}

pub fn run(config: &Config, scene: impl IntoIterator<Item = impl Into<Frame>>) -> Run {
    let mut tracker = Tracker::new(config);
    let (mut samples, mut flows) = (Vec::new(), Vec::new());
    for frame in scene {
        let frame = frame.into();
        observe(&mut tracker, &frame, |event| match event {
            Event::Sample(sample) => samples.push(sample),
            Event::Flow(flow) => flows.push(flow),
        });
    }
    Run { samples, flows, counters: tracker.counters() }
}

pub fn observe(tracker: &mut Tracker, frame: &Frame, emit: impl FnMut(Event)) {
    tracker.observe(&observation(frame), emit);
}

pub fn observation(frame: &Frame) -> Observation<'_> {
    Observation {
        time_ns: frame.time_ns,
        interface: frame.interface,
        link: frame.link,
        data: &frame.data,
        wire_len: frame.wire_len,
    }
}

pub fn small() -> Config {
    Config { max_flows: 64, ..Config::default() }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Run {
    /// Returns one line per sample, as in "tcp-seq to server: 20 ms at 30".
    pub fn lines(&self) -> Vec<String> {
        self.samples
            .iter()
            .map(|sample| {
                let who = match Side::of(sample.dst.address) {
                    Side::Client => "client",
                    Side::Server => "server",
                };
                let handshake = if sample.handshake { " handshake" } else { "" };
                format!(
                    "{}{handshake} to {who}: {} ms at {}",
                    sample.method,
                    ms(sample.rtt_ns),
                    ms(sample.time_ns - START_NS)
                )
            })
            .collect()
    }

    /// Returns one line per change, as in "close fin at 40".
    pub fn flow_lines(&self) -> Vec<String> {
        self.flows
            .iter()
            .map(|flow| {
                let at = ms(flow.time_ns - START_NS);
                match flow.change {
                    FlowChange::Open => format!("open at {at}"),
                    FlowChange::FirstRtt(method, rtt) => {
                        format!("first-rtt {} ms by {method} at {at}", ms(rtt))
                    }
                    FlowChange::Close(reason) => format!("close {} at {at}", reason.name()),
                }
            })
            .collect()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }
}
