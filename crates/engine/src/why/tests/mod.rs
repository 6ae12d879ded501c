//! Evidence that is computed by hand, and sockets that are polled by hand.

mod certainty;
mod connections;
mod decisions;
mod ended;
mod far;
mod stuck;
mod turns;
mod unsure;

use super::*;
use crate::socket::{Reading, Sum, TcpInfo};

const MS: f64 = 1e6;

/// Ten seconds of one connection, of which each part took this share.
fn evidence(parts: &[(Part, f64)]) -> Evidence {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, connections: 1, ..Evidence::default() };
    let sums = Sums { polls: 5_000, polled_ns: 1e10, sent_bytes: 10_000_000, segments_sent: 7_000, ..Sums::default() };
    evidence.sums = sums;
    for (part, share) in parts {
        evidence.sums.times.add(*part, share * 1e10);
    }
    evidence
}

/// That, with other sums.
fn with(parts: &[(Part, f64)], change: impl FnOnce(&mut Sums)) -> Evidence {
    let mut evidence = evidence(parts);
    change(&mut evidence.sums);
    evidence
}

fn cause(evidence: &Evidence) -> Option<Cause> {
    match decide(evidence).outcome {
        Outcome::Slow(cause) => Some(cause),
        _ => None,
    }
}

fn silences(count: u64, mean_ms: u64) -> Silences {
    Silences { count, sum_ns: count * mean_ms * 1_000_000, longest_ns: mean_ms * 1_000_000 }
}

fn wait(mean_ms: u64) -> Sum {
    Sum { samples: 10, bytes: 1000, ns_bytes: 1000.0 * mean_ms as f64 * MS }
}

/// A connection that took this time, with as many answers.
fn group(key: Key, times: Times, answered_polls: u64) -> Group {
    let (counted, answers) = (CountKind::Whole, ByLength::default());
    Group { key, counted, connections: 1, brief: 0, refused: 0, times, answers, answered_polls }
}

/// Connections with one peer.
fn key(role: Role, port: u16) -> Key {
    Key { peer: "192.0.2.1".parse().unwrap(), port, role, pid: Some(7), seen_from: None }
}

/// A connection that is polled each millisecond; `step` changes what the kernel reports.
struct Socket {
    reading: Reading,
    connection: Connection,
}

impl Socket {
    fn new(role: Role) -> Socket {
        let info = TcpInfo {
            state: 1,
            send_mss: 1_000,
            rtt_us: 100,
            min_rtt_us: Some(100),
            bytes_acked: Some(1_001),
            bytes_received: Some(0),
            notsent_bytes: Some(0),
            bytes_sent: Some(0),
            bytes_retransmitted: Some(0),
            busy_us: Some(0),
            receiver_limited_us: Some(0),
            buffer_limited_us: Some(0),
            segments_out: Some(0),
            segments_in: Some(0),
            data_segments_in: Some(0),
            data_segments_out: Some(0),
            out_of_order: Some(0),
            ..TcpInfo::default()
        };
        let reading = Reading { time_ns: 1_000_000, info, unacknowledged: Some(0), readable: Some(0) };
        Socket { reading, connection: Connection::new(role, &reading) }
    }

    /// Returns the wait of the last request that was answered.
    fn polls(&mut self, count: u64, mut step: impl FnMut(&mut TcpInfo)) -> Option<u64> {
        let mut answered_ns = None;
        for _ in 0..count {
            self.reading.time_ns += 1_000_000;
            step(&mut self.reading.info);
            answered_ns = self.connection.observe(&self.reading).or(answered_ns);
        }
        answered_ns
    }

    fn request(&mut self) {
        self.polls(1, |info| info.bytes_received = info.bytes_received.map(|bytes| bytes + 100));
    }

    fn answer(&mut self) {
        self.polls(1, |info| info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100));
    }

    /// This host and the peer send between two polls; what it received are so many acknowledgements without data, too.
    fn both(&mut self, sent_bytes: u64, acknowledgements: u32) {
        self.polls(1, |info| {
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + sent_bytes);
            info.bytes_received = info.bytes_received.map(|bytes| bytes + 100);
            info.segments_in = info.segments_in.map(|segments| segments + 1 + acknowledgements);
            info.data_segments_in = info.data_segments_in.map(|segments| segments + 1);
        });
    }

    fn evidence(&self) -> Evidence {
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        evidence.add(&self.connection, key(Role::Client, 80), CountKind::Whole);
        evidence
    }

    /// Turns of a client: each answer takes this many milliseconds, and the next request follows at once.
    fn turns(&mut self, count: u64, answer_ms: u64) {
        for _ in 0..count {
            self.answer();
            self.polls(answer_ms - 1, |_| {});
            self.request();
        }
    }
}
