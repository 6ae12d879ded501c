//! A client and a server that speak TCP over a path that loses, reorders and delays, as the client's packets show them.
//! Nothing here was made after the estimator: the rules are those of RFC 5681 and 7323, and of Linux.

mod client;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use dwell_engine::abi::dwell_arrival;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use crate::support::{MS, SECOND, START, US, syn};

/// A distribution of durations or sizes.
#[derive(Debug, Clone, Copy)]
pub enum Draw {
    Always(u64),
    Between(u64, u64),
    Exponential(u64),
    /// The first, or with this probability the second.
    Either(u64, u64, f64),
}

/// When a client acknowledges data without sending any.
#[derive(Debug, Clone, Copy)]
pub enum Acks {
    AtOnce,
    /// By Linux's rules, with jiffies of this length: phases of quick ACKs, and interactive ones.
    Linux {
        jiffy_ns: u64,
    },
    /// At once each number of full segments, otherwise after a time.
    Every {
        segments: u32,
        timer_ns: u64,
    },
    /// Each second segment at once, otherwise when a clock that never stops strikes.
    Strikes {
        period_ns: u64,
    },
}

/// TCP timestamps, as the client echoes them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stamps {
    /// A middlebox, or one of both ends, does without.
    None,
    Honest,
    /// The server answered the handshake with a cookie, whose clock lacks up to 63 ticks.
    Cookie,
    /// A middlebox takes them off all segments but that of the handshake.
    Frozen,
}

/// Probabilities that a packet is lost, or overtaken by later ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Segments of the server, and the client's packets after the vantage point.
    pub lost_answers: f64,
    pub lost_requests: f64,
    pub lost_acks: f64,
    /// ACKs of the client before the vantage point.
    pub unseen_acks: f64,
    pub late_answers: f64,
    /// The client's packets before the vantage point.
    pub late_requests: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub rtt_ns: u64,
    pub service_ns: Draw,
    pub think_ns: Draw,
    pub request_bytes: Draw,
    /// Writes of a request, each of which is a packet at least.
    pub writes: u32,
    pub answer_bytes: Draw,
    /// Pieces of an answer, and the time between them.
    pub pieces: u32,
    pub between_ns: Draw,
    /// Requests that are sent at once.
    pub depth: u32,
    pub acks: Acks,
    /// For how long the client collects segments before it looks at them (GRO); 0: not at all.
    pub merge_ns: u64,
    /// The rhythm in which the client's line sends: of the ACKs that wait, only the newest leaves; 0: none.
    pub thin_ns: u64,
    pub stamps: Stamps,
    pub tick_ns: u64,
    pub bits_per_second: u64,
    /// Mean delay of segments in queues.
    pub jitter_ns: u64,
    pub faults: Faults,
    /// Whether the server sends the last of several segments again after two round trips, and not only after its timer.
    pub is_probing: bool,
    /// The silence after which the client asks whether the server is there; 0: never.
    pub keepalive_ns: u64,
    /// The part of answers after which the client tells of a larger window.
    pub window_updates: f64,
    /// Whether requests can be read, as those of HTTP in the clear.
    pub is_text: bool,
    pub is_joined_late: bool,
}

/// An answer whose last byte came to the client.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    pub asked_ns: u64,
    pub came_ns: u64,
}

/// What the client sent, in the order of the vantage point, and the true times.
pub struct Traffic {
    pub packets: Vec<dwell_arrival>,
    pub answers: Vec<Answer>,
}

impl Traffic {
    /// Returns how many answers ended in an epoch, and their mean latency. `None`: none did.
    pub fn mean(&self, start_ns: u64, length_ns: u64) -> Option<(usize, f64)> {
        let ended =
            self.answers.iter().filter(|answer| answer.came_ns >= start_ns && answer.came_ns < start_ns + length_ns);
        let took_ns: Vec<f64> = ended.map(|answer| (answer.came_ns - answer.asked_ns) as f64).collect();
        (!took_ns.is_empty()).then(|| (took_ns.len(), took_ns.iter().sum::<f64>() / took_ns.len() as f64))
    }
}

const PUSH: u8 = 8;
/// What Linux's timers of delayed ACKs and of retransmission wait at least.
const LEAST_ACK_NS: u64 = 40 * MS;
const LEAST_RETRANSMISSION_NS: u64 = 200 * MS;
/// Segments that Linux acknowledges at once when a connection begins or something is out of order.
const QUICK: u32 = 16;
const FIRST_WINDOW: usize = 10;

#[derive(Debug, Clone, Copy)]
struct Packet {
    seq: u32,
    bytes: u32,
    ack: u32,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    seq: u32,
    bytes: u32,
    stamp: u32,
    /// What the server has of the client.
    ack: u32,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Ask,
    ToServer(Packet),
    ToClient(Segment),
    Look,
    Write(u32),
    Confirm,
    AckTimer(u32),
    ClientTimer(u32),
    ServerTimer(u32),
    KeepAlive(u32),
    WindowUpdate,
}

/// Bytes that came in order, and those beyond a hole.
#[derive(Debug, Default)]
struct Received {
    next: u32,
    early: BTreeMap<u32, u32>,
}

impl Received {
    /// Returns true if the bytes were out of order, known, or filled a hole.
    fn take(&mut self, seq: u32, bytes: u32) -> bool {
        let end = seq + bytes;
        if bytes == 0 {
            return false;
        }
        if seq > self.next {
            self.early.insert(seq, end);
            return true;
        }
        if end <= self.next {
            return true;
        }
        self.next = end;
        let mut fills = false;
        while let Some((&seq, &end)) = self.early.first_key_value().filter(|(seq, _)| **seq <= self.next) {
            self.early.remove(&seq);
            self.next = self.next.max(end);
            fills = true;
        }
        fills
    }
}

#[derive(Default)]
struct Client {
    next: u32,
    unacked: VecDeque<(u32, u32)>,
    timer: u32,
    backoff: u32,
    received: Received,
    /// The newest acknowledgement that was sent, and the clock of the server that is echoed.
    acked: u32,
    stamp: u32,
    /// The generation of the timer of delayed ACKs, and whether it runs.
    ack_timer: u32,
    is_due: bool,
    quick: u32,
    is_interactive: bool,
    received_ns: u64,
    patience_ns: u64,
    merged: Vec<Segment>,
    /// When each request was sent, and where its answer ends.
    waiting: VecDeque<(u64, u32)>,
    answers_end: u32,
    turns: u32,
    /// The largest segment that came: Linux takes it for the full one, and no less than 536 bytes.
    largest: u32,
    /// Where requests begin.
    heads: BTreeSet<u32>,
}

#[derive(Default)]
struct Server {
    received: Received,
    confirmed: u32,
    /// Where each request ends, and how large its answer is.
    requests: VecDeque<(u32, u32)>,
    busy_ns: u64,
    /// Segments that are not acknowledged; the first of them are under way.
    segments: VecDeque<(u32, u32)>,
    flying: usize,
    window: usize,
    written: u32,
    unacked: u32,
    repeats: u32,
    recovers: Option<u32>,
    timer: u32,
    backoff: u32,
}

struct Run<'a> {
    setting: &'a Setting,
    random: Xoshiro256PlusPlus,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    now_ns: u64,
    client: Client,
    server: Server,
    line_ns: u64,
    newest_ns: u64,
    clock: u32,
    traffic: Traffic,
}

impl Draw {
    fn from(self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Draw::Always(value) => value,
            Draw::Between(least, most) => random.random_range(least..=most),
            Draw::Exponential(mean) => (mean as f64 * -(1.0 - random.random::<f64>()).ln()) as u64,
            Draw::Either(usual, other, odds) => {
                if random.random::<f64>() < odds {
                    other
                } else {
                    usual
                }
            }
        }
    }
}

/// Takes items from the front of a queue for as long as they are `so`.
fn pop_while<T: Copy>(queue: &mut VecDeque<T>, so: impl Fn(T) -> bool) -> impl Iterator<Item = T> {
    std::iter::from_fn(move || if so(*queue.front()?) { queue.pop_front() } else { None })
}

/// Runs a connection until `length_ns` after START.
pub fn run(setting: &Setting, seed: u64, length_ns: u64) -> Traffic {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let clock = random.random_range(1 << 20..1 << 30);
    let mut run = Run {
        setting,
        random,
        events: BTreeMap::new(),
        count: 0,
        now_ns: START,
        client: Client {
            next: 1,
            acked: 1,
            answers_end: 1,
            quick: QUICK,
            patience_ns: LEAST_ACK_NS,
            ..Client::default()
        },
        server: Server { confirmed: 1, window: FIRST_WINDOW, written: 1, unacked: 1, ..Server::default() },
        line_ns: 0,
        newest_ns: 0,
        clock,
        traffic: Traffic { packets: Vec::new(), answers: Vec::new() },
    };
    run.client.received.next = 1;
    run.server.received.next = 1;
    run.open();
    while let Some(((time_ns, _), event)) = run.events.pop_first() {
        if time_ns > START + length_ns {
            break;
        }
        run.now_ns = run.now_ns.max(time_ns);
        run.handle(event);
    }
    let mut traffic = run.traffic;
    traffic.packets.sort_by_key(|packet| packet.time_ns);
    if setting.is_joined_late {
        traffic.packets.retain(|packet| packet.time_ns > START + 2 * SECOND);
    }
    traffic
}

impl Run<'_> {
    fn open(&mut self) {
        self.traffic.packets.push(dwell_arrival { tsecr: 1460, ..self.shape(syn(START, 0)) });
        let stamp = self.stamp(START + self.setting.rtt_ns / 2);
        self.client.stamp = match self.setting.stamps {
            Stamps::Cookie => stamp - self.random.random_range(0..64),
            _ => stamp,
        };
        self.now_ns = START + self.setting.rtt_ns + 30 * US;
        self.emit(1, 0, false);
        let think_ns = self.draw(self.setting.think_ns);
        self.at(self.now_ns + 100 * US + think_ns, Event::Ask);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask => self.ask(),
            Event::ToServer(packet) => self.serve(packet),
            Event::ToClient(segment) if self.setting.merge_ns == 0 => self.take(&[segment]),
            Event::ToClient(segment) => {
                if self.client.merged.is_empty() {
                    self.at(self.now_ns + self.setting.merge_ns, Event::Look);
                }
                self.client.merged.push(segment);
            }
            Event::Look => {
                let merged = mem::take(&mut self.client.merged);
                self.take(&merged);
            }
            Event::Write(bytes) => self.write(bytes),
            Event::Confirm if self.server.confirmed < self.server.received.next => {
                let next = self.server.segments.get(self.server.flying).map_or(self.server.written, |(seq, _)| *seq);
                self.carry(next, 0);
            }
            Event::AckTimer(timer) if timer == self.client.ack_timer && self.client.is_due => self.ack_timer(),
            Event::ClientTimer(timer) if timer == self.client.timer => self.client_timer(),
            Event::ServerTimer(timer) if timer == self.server.timer && self.server.flying > 0 => self.server_timer(),
            Event::KeepAlive(turn) if turn == self.client.turns => self.emit(self.client.next - 1, 0, false),
            Event::WindowUpdate => self.emit(self.client.next, 0, false),
            _ => {}
        }
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.count += 1;
        self.events.insert((time_ns, self.count), event);
    }

    fn draw(&mut self, from: Draw) -> u64 {
        from.from(&mut self.random)
    }

    fn happens(&mut self, odds: f64) -> bool {
        odds > 0.0 && self.random.random::<f64>() < odds
    }

    fn one_way_ns(&self) -> u64 {
        self.setting.rtt_ns / 2
    }

    fn mss(&self) -> u32 {
        if self.setting.stamps == Stamps::None { 1460 } else { 1448 }
    }

    fn stamp(&self, time_ns: u64) -> u32 {
        if self.setting.stamps == Stamps::None {
            return 0;
        }
        // the clock begins anywhere within its tick, and runs 20 ppm fast
        let passed_ns = time_ns - START + u64::from(self.clock) * 7919 % self.setting.tick_ns;
        self.clock + ((passed_ns + passed_ns / 50_000) / self.setting.tick_ns) as u32
    }

    fn shape(&self, packet: dwell_arrival) -> dwell_arrival {
        let options = if self.setting.stamps == Stamps::None { 0 } else { 12 };
        dwell_arrival { bytes: 40 + options + packet.payload_bytes, ..packet }
    }
}
