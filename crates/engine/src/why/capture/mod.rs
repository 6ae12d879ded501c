//! The verdict from a capture: the time of its connections, divided by what the packets show.
//!
//! A capture has no counters of the kernel and no process. It has what both ends said to each other, so what limited a
//! sender can often be told at either end or between them. The decision is the same as of live connections.

mod conversation;
mod datagrams;
mod ending;
mod flights;
mod holes;
mod passed_on;
mod questions;
mod reach;
mod scale;
mod sender;
mod spacing;
#[cfg(test)]
mod tests;
mod turns;
mod twins;

use std::collections::HashMap;

pub use self::datagrams::UdpPackets;

use self::{
    conversation::Conversation,
    passed_on::{Exchange, PassedOn},
    questions::Questions,
    twins::Twins,
};
use super::{CountKind, Evidence, Key, Layers, Part, Source, Target, Unseen, figures::ConnectionFigures};
use crate::{
    abi,
    filter::Filter,
    labels::Labels,
    measure::{Endpoint, Method},
    observe::Observation,
    rtt::{
        Config, Counter, Counters, Tracker,
        native::{NoSegment, Payload, Segment},
    },
    sequence,
};

/// Connections that are followed at once; others are counted.
const MAX_CONNECTIONS: usize = 4096;
/// A connection without a packet for at least this long makes room for another.
const SILENT_NS: u64 = 60_000_000_000;

/// Packets between two searches for connections that make room: each looks at all of them.
const ROOM_STRIDE: u64 = 256;

/// Follows the connections of a capture.
pub struct Replay {
    config: Box<abi::dwell_rtt_config>,
    /// Counts packets.
    names: Tracker,
    questions: Questions,
    conversations: HashMap<(u32, Endpoint, Endpoint), Conversation>,
    /// Connections that several interfaces show.
    twins: Twins,
    passed_on: PassedOn,
    /// `None` where none are to be shown.
    labels: Option<Labels>,
    evidence: Evidence,
    span_ns: Option<(u64, u64)>,
    filter: Filter,
    /// Connections of which the capture has the packets of one end.
    one_way: u64,
    /// Connections of which it lacks the handshake.
    began_before: u64,
    /// Segments that it lacks.
    missed: u64,
    /// Packets of TCP that are cut off within their headers.
    cut: u64,
    /// Packets since room was last made for more connections.
    since_room: u64,
}

impl Replay {
    /// Follows the connections that a filter admits, and with `has_labels` tells their requests apart.
    pub fn new(filter: Filter, has_labels: bool) -> Replay {
        let config =
            Config { filter: filter.clone(), methods: vec![Method::TcpSeq, Method::TcpTimestamp], ..Config::default() };
        let names = Config { filter: filter.clone(), methods: vec![Method::Dns], max_flows: 1024, ..Config::default() };
        Replay {
            config: Box::new(config.to_core()),
            names: Tracker::new(&names),
            questions: Questions::default(),
            conversations: HashMap::new(),
            twins: Twins::default(),
            passed_on: PassedOn::default(),
            labels: has_labels.then(Labels::default),
            evidence: Evidence { source: Source::Capture, ..Evidence::default() },
            span_ns: None,
            filter,
            one_way: 0,
            began_before: 0,
            missed: 0,
            cut: 0,
            since_room: ROOM_STRIDE,
        }
    }

    /// Takes a packet.
    pub fn observe(&mut self, packet: &Observation<'_>) {
        let (first, last) = self.span_ns.unwrap_or((packet.time_ns, packet.time_ns));
        self.span_ns = Some((first.min(packet.time_ns), last.max(packet.time_ns)));
        let segment = Segment::read(packet, &self.config);
        let cut_before = self.names.counters().get(Counter::Truncated);
        let evidence = &mut self.evidence;
        self.names.observe(packet, |_| ());
        let segment = match segment {
            Ok(segment) => segment,
            Err(why) => {
                let is_counted = self.names.counters().get(Counter::Truncated) > cut_before;
                self.cut += u64::from(why == NoSegment::CutOff && !is_counted);
                if let Some(payload) = Payload::read(packet) {
                    evidence.udp.observe(&payload, &self.filter);
                    let waited = self.questions.take(packet.time_ns, &payload, &self.filter);
                    waited.into_iter().for_each(|ns| evidence.add_name(ns));
                }
                return;
            }
        };
        let (low, high) = match (segment.src.address, segment.src.port) <= (segment.dst.address, segment.dst.port) {
            true => (segment.src, segment.dst),
            false => (segment.dst, segment.src),
        };
        let key = (segment.interface, low, high);
        let is_new = segment.has(Segment::SYN) && !segment.has(Segment::ACK);
        if is_new && self.conversations.get(&key).is_some_and(Conversation::is_closing) {
            let over = self.conversations.remove(&key).expect("it was just there");
            self.add(over);
        }
        self.since_room += 1;
        if !self.conversations.contains_key(&key) {
            if self.conversations.len() >= MAX_CONNECTIONS && self.since_room >= ROOM_STRIDE {
                self.since_room = 0;
                self.make_room(segment.time_ns);
            }
            if self.conversations.len() >= MAX_CONNECTIONS {
                self.evidence.omitted += u64::from(is_new);
                return;
            }
            if self.evidence.omitted > 0 && !segment.has(Segment::SYN) {
                // It may be of one that found no room.
                return;
            }
        }
        let label = match &mut self.labels {
            Some(labels) if segment.payload_bytes > 0 => {
                Payload::read(packet).and_then(|payload| labels.take(&payload))
            }
            _ => None,
        };
        if !self.conversations.contains_key(&key) {
            let others = self.twins.others(key.0).filter_map(|other| self.conversations.get(&(other, low, high)));
            let same: Vec<_> = others.filter(|other| other.is_same(&segment)).map(|other| other.number).collect();
            let conversation = Conversation::new(&segment, self.twins.number(same.into_iter()));
            self.conversations.insert(key, conversation);
        }
        let conversation = self.conversations.get_mut(&key).expect("it was just there");
        let Some(answered) = conversation.observe(&segment, label) else { return };
        let answered_ns = segment.time_ns;
        let asked_ns = answered_ns.saturating_sub(answered.wait_ns);
        let exchange = Exchange { client: segment.dst.address, server: segment.src, asked_ns, answered_ns };
        conversation.pass_on(self.passed_on.take(exchange));
        if let Some(label) = answered.label.filter(|_| conversation.number.is_first()) {
            self.evidence.requests.add(&label, answered.wait_ns);
        }
    }

    /// Returns what was counted of all packets so far.
    pub fn counters(&self) -> Counters {
        self.names.counters().plus(Counter::Truncated, self.cut)
    }

    /// Ends the replay. Returns what it found of the target that the user called `name`.
    pub fn evidence(mut self, name: &str) -> Evidence {
        let left = self.conversations.drain().map(|(_, conversation)| conversation).collect();
        self.add_all(left);
        while let Some(figures) = self.twins.settle() {
            self.count(&figures);
        }
        let mut evidence = self.evidence;
        let end_ns = self.span_ns.map_or(0, |(_, last)| last);
        self.questions.finish(end_ns).into_iter().for_each(|ns| evidence.add_name(ns));
        evidence.open_names += self.questions.unanswered;
        evidence.on_several_interfaces = self.twins.count;
        evidence.observed_ns = self.span_ns.map_or(0, |(first, last)| last - first);
        evidence.ended_ns = end_ns;
        evidence.target = Target { name: name.to_owned(), ..Target::default() };
        evidence.target = evidence.about(&Part::ALL).target;
        let queueing_ns = evidence.sums.queued.mean_ns().map(|ns| ns as u64);
        evidence.layers = queueing_ns.map(|ns| Layers { queueing_ns: Some(ns), ..Layers::default() });
        evidence.unseen.push(Unseen {
            what: "programs, processors, disks, buffers of sockets and queues of devices: no capture has them".into(),
            remedy: format!("run `dwell why{}` at one of the hosts", evidence.target.port_of()),
        });
        if self.began_before > 0 {
            evidence.unseen.push(Unseen {
                what: match self.began_before {
                    1 => "windows and the shortest round trip of a connection that began before the capture".into(),
                    many => {
                        format!("windows and shortest round trips of {many} connections that began before the capture")
                    }
                },
                remedy: "begin the capture first, and then the connections".into(),
            });
        }
        if self.one_way > 0 {
            evidence.unseen.push(Unseen {
                what: match self.one_way {
                    1 => "what one end of a connection sent".into(),
                    many => format!("what one end of {many} connections sent"),
                },
                remedy: "capture where both directions pass, without a filter on the source".into(),
            });
        }
        if self.missed > 0 {
            evidence.unseen.push(Unseen {
                what: format!("{} segments that were acknowledged, which the capture lacks", self.missed),
                remedy: "capture with less load or a larger buffer (tcpdump -B 65536 -s 128), where all packets pass"
                    .into(),
            });
        }
        if evidence.omitted > 0 {
            evidence.unseen.push(Unseen {
                what: format!(
                    "{} connections beyond the {MAX_CONNECTIONS} that are followed at once",
                    evidence.omitted
                ),
                remedy: "name fewer of them, as by HOST:PORT".into(),
            });
        }
        evidence
    }

    /// Adds the connections that are over or have been silent for long.
    fn make_room(&mut self, now_ns: u64) {
        let is_done = |conversation: &Conversation| {
            conversation.is_over() || now_ns.saturating_sub(conversation.last_ns()) > SILENT_NS
        };
        let done = self.conversations.extract_if(|_, conversation| is_done(conversation));
        let done = done.map(|(_, conversation)| conversation).collect();
        self.add_all(done);
    }

    /// Adds connections, those that are the same one after the other.
    fn add_all(&mut self, mut conversations: Vec<Conversation>) {
        conversations.sort_by_key(|conversation| conversation.number);
        conversations.into_iter().for_each(|conversation| self.add(conversation));
    }

    fn add(&mut self, conversation: Conversation) {
        let number = conversation.number;
        let end_ns = self.span_ns.map_or(0, |(_, last)| last);
        if let Some(figures) = self.twins.end(number, conversation.finish(end_ns)) {
            self.count(&figures);
        }
    }

    fn count(&mut self, figures: &ConnectionFigures) {
        let Some(ends) = figures.ends else { return };
        self.began_before += u64::from(figures.began_before && figures.sums.polls > 1);
        self.one_way += u64::from(figures.is_one_way && figures.sums.polls > 1);
        self.missed += figures.segments_missed;
        let key = Key { seen_from: Some(ends.src.address), ..Key::of(&ends, figures.role) };
        self.evidence.add_figures(figures, key, CountKind::Whole);
    }
}
