//! A client and a server on one connection, as the client's packets show them.

use std::collections::VecDeque;

use dwell_engine::abi::{self, dwell_arrival};

use crate::support::{MS, START, US, syn, tcp};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Client {
    /// Sends `depth` requests, and waits for all responses.
    Batch,
    /// Sends one request for each response.
    Window,
    /// Requests a root document, then the documents that it names, at most `depth` at once.
    Page,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Server {
    /// Serves one request after another.
    Serial,
    /// Serves all requests at once, and answers in order.
    Concurrent,
}

#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub client: Client,
    pub depth: usize,
    pub server: Server,
    /// The range of the service time, uniform.
    pub service_ns: (u64, u64),
    pub rtt_ns: u64,
    /// The think time before a page or batch.
    pub think_ns: u64,
    /// The size of full segments of both sides.
    pub segment: u32,
    pub request: u32,
    /// The median of the log-normal sizes of responses.
    pub response: u32,
    /// The most documents that the root document of a page names.
    pub documents: u64,
    /// Whether requests can be read, as those of HTTP in the clear.
    pub is_text: bool,
    pub seed: u64,
}

impl Workload {
    pub fn new(client: Client, depth: usize) -> Workload {
        Workload {
            client,
            depth,
            server: Server::Serial,
            service_ns: (MS, 20 * MS),
            rtt_ns: 100 * US,
            think_ns: 0,
            segment: 1448,
            request: 300,
            response: 20_000,
            documents: 12,
            is_text: false,
            seed: 1,
        }
    }
}

/// The end of a response, its latency, and whether a request followed.
pub struct Response {
    pub done_ns: u64,
    pub latency_ns: u64,
    pub causal: bool,
}

/// What the client sent, and the true latencies.
pub struct Traffic {
    pub packets: Vec<dwell_arrival>,
    pub responses: Vec<Response>,
}

/// A response is received in pieces of at most this number of bytes (GRO), in segments.
const PIECE: u32 = 65_160;
const PUSH: u8 = 8;
/// 1 Gbit/s.
const NS_PER_BYTE: u64 = 8;

struct Waiting {
    sent_ns: u64,
    begins_ns: u64,
    ends_ns: u64,
    bytes: u32,
}

struct Simulation {
    workload: Workload,
    random: u64,
    traffic: Traffic,
    waiting: VecDeque<Waiting>,
    /// The times at which the server is idle, and at which the line is free.
    server_ns: u64,
    line_ns: u64,
    seq: u32,
    /// The bytes received and acknowledged, and since when the difference is pending.
    received: u32,
    acked: u32,
    unacked_ns: Option<u64>,
    /// The requests of the page that are still to be sent; whether it is the root's turn.
    left: usize,
    is_root: bool,
}

/// Runs a workload until `duration_ns` after START.
pub fn simulate(workload: Workload, duration_ns: u64) -> Traffic {
    let mut sim = Simulation {
        workload,
        random: workload.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        traffic: Traffic { packets: vec![syn(START, 0)], responses: Vec::new() },
        waiting: VecDeque::new(),
        server_ns: 0,
        line_ns: 0,
        seq: 1,
        received: 1,
        acked: 1,
        unacked_ns: None,
        left: 0,
        is_root: false,
    };
    sim.send(START + workload.rtt_ns, 0);
    sim.begin(START + workload.rtt_ns + MS);
    while let Some(next) = sim.waiting.pop_front() {
        if next.ends_ns > START + duration_ns {
            break;
        }
        sim.receive(&next);
    }
    sim.traffic.packets.sort_by_key(|packet| packet.time_ns);
    sim.traffic
}

impl Simulation {
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit.max(1)
    }

    /// Draws a log-normal size with sigma 0.8.
    fn size(&mut self) -> u32 {
        let uniform: f64 = (0..12).map(|_| self.below(1 << 20) as f64 / (1 << 20) as f64).sum();
        (f64::from(self.workload.response) * ((uniform - 6.0) * 0.8).exp()) as u32
    }

    fn send(&mut self, time_ns: u64, payload: u32) {
        self.traffic.packets.push(tcp(time_ns, self.seq, payload, self.received));
        self.seq += payload;
        self.acked = self.received;
        self.unacked_ns = None;
    }

    fn request(&mut self, now_ns: u64) {
        let mut rest = self.workload.request;
        while rest > 0 {
            let size = rest.min(self.workload.segment);
            rest -= size;
            self.send(now_ns, size);
            if rest == 0 {
                let last = self.traffic.packets.last_mut().expect("just sent");
                last.tcp_flags |= PUSH;
            }
            if self.workload.is_text && rest + size == self.workload.request {
                let head = self.traffic.packets.last_mut().expect("just sent");
                head.content = abi::DWELL_CONTENT_TEXT as u8;
            }
        }
        let (low, high) = self.workload.service_ns;
        let service_ns = low + self.below(high - low + 1);
        let arrives_ns = now_ns + self.workload.rtt_ns / 2;
        let finish_ns = match self.workload.server {
            Server::Serial => arrives_ns.max(self.server_ns) + service_ns,
            Server::Concurrent => arrives_ns + service_ns,
        };
        self.server_ns = finish_ns;
        let bytes = self.size();
        let begins_ns = (finish_ns + self.workload.rtt_ns / 2).max(self.line_ns);
        let ends_ns = begins_ns + u64::from(bytes) * NS_PER_BYTE;
        self.line_ns = ends_ns;
        self.waiting.push_back(Waiting { sent_ns: now_ns, begins_ns, ends_ns, bytes });
    }

    fn burst(&mut self, now_ns: u64, count: usize) {
        for i in 0..count as u64 {
            self.request(now_ns + (i + 1) * 10 * US);
        }
    }

    /// Starts a page, a batch or a window.
    fn begin(&mut self, now_ns: u64) {
        let count = if self.workload.client == Client::Page { 1 } else { self.workload.depth };
        self.is_root = true;
        self.burst(now_ns, count);
    }

    fn receive(&mut self, response: &Waiting) {
        let mut rest = response.bytes;
        let mut now_ns = response.begins_ns;
        let segment = self.workload.segment;
        self.delayed_ack(now_ns);
        while rest > 0 {
            let piece = rest.min(PIECE / segment * segment);
            rest -= piece;
            now_ns += u64::from(piece) * NS_PER_BYTE;
            self.received += piece;
            if self.received - self.acked >= 2 * segment {
                self.send(now_ns, 0);
            } else {
                self.unacked_ns.get_or_insert(now_ns);
            }
        }
        let causal = self.react(now_ns + 10 * US);
        self.traffic.responses.push(Response { done_ns: now_ns, latency_ns: now_ns - response.sent_ns, causal });
    }

    fn delayed_ack(&mut self, now_ns: u64) {
        let due_ns = self.unacked_ns.map(|since_ns| since_ns + 40 * MS);
        if let Some(due_ns) = due_ns.filter(|due_ns| *due_ns < now_ns) {
            self.send(due_ns, 0);
        }
    }

    /// Returns whether it sent something.
    fn react(&mut self, now_ns: u64) -> bool {
        match self.workload.client {
            Client::Window => self.burst(now_ns, 1),
            Client::Page if self.is_root => {
                self.is_root = false;
                self.left = 1 + self.below(self.workload.documents) as usize;
                self.fill(now_ns);
            }
            Client::Page if self.left > 0 => self.fill(now_ns),
            _ if self.waiting.is_empty() => {
                let begins_ns = now_ns + self.workload.think_ns;
                self.delayed_ack(begins_ns);
                self.begin(begins_ns);
            }
            _ => return false,
        }
        true
    }

    fn fill(&mut self, now_ns: u64) {
        let count = self.left.min(self.workload.depth - self.waiting.len());
        self.left -= count;
        self.burst(now_ns, count);
    }
}
