//! What the client knows of its requests, moved to the wire: from the first packet of a request to the last of its answer.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    net::Ipv4Addr,
    path::Path,
};

use dwell_capture::{Reader, Writer};
use dwell_testbed::{Error, Result};
use serde::{Deserialize, Serialize};

/// By how much a client's log may be late about the first packet of a request: the clocks are compared once a run.
const SLACK_NS: u64 = 50_000;
/// The largest share of requests in a client's log whose packets may be missing.
const MAX_MISSING: f64 = 0.01;

/// A request and its answer at the client's interface, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The client's port.
    pub(super) sport: u16,
    /// The first packet of the request.
    pub(super) start_ns: u64,
    /// The packet with the answer's last byte.
    pub(super) end_ns: u64,
}

/// Times of the packets of a connection that carry data, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Flow {
    sent_ns: Vec<u64>,
    received_ns: Vec<u64>,
}

/// The connections of a capture that was taken at the client.
#[derive(Debug, Clone, Default)]
pub(super) struct Flows(BTreeMap<u16, Flow>);

impl Flows {
    /// Reads a capture of both directions, and writes what the client sent into `half`.
    pub(super) fn split(capture: &Path, client: Ipv4Addr, half: &Path) -> Result<Self> {
        let unreadable = |why| Error::invalid(capture.display().to_string(), why);
        let unwritable = || Error::file("write", half);
        let mut reader = Reader::open(capture).map_err(|why| unreadable(why.to_string()))?;
        let out = BufWriter::new(File::create(half).map_err(unwritable())?);
        let mut writer: Option<Writer<_>> = None;
        let mut out = Some(out);
        let mut flows = Self::default();
        while let Some(packet) = reader.next_packet().map_err(|why| unreadable(why.to_string()))? {
            if let Some(out) = out.take() {
                writer = Some(Writer::new(out, packet.link).map_err(unwritable())?);
            }
            let Some(segment) = Segment::parse(packet.data) else { continue };
            let is_sent = segment.source == client;
            if is_sent && let Some(writer) = &mut writer {
                writer.write(packet.time_ns, packet.data, packet.wire_len).map_err(unwritable())?;
            }
            flows.add(&segment, is_sent, packet.time_ns);
        }
        match writer {
            Some(writer) => writer.finish().map(drop).map_err(unwritable())?,
            None => return Err(unreadable("has no packets".to_owned())),
        }
        Ok(flows)
    }

    fn add(&mut self, segment: &Segment, is_sent: bool, time_ns: u64) {
        if segment.payload == 0 {
            return;
        }
        let [source, destination] = segment.ports;
        let flow = self.0.entry(if is_sent { source } else { destination }).or_default();
        if is_sent { &mut flow.sent_ns } else { &mut flow.received_ns }.push(time_ns);
    }

    /// The answers by the log of a client: lines of its port, and CLOCK_MONOTONIC when it sent the request and when it
    /// had read the answer. With `opening`, what a connection exchanged before the first of them counts too: the log-in
    /// of a database is a request that its client does not log.
    pub(super) fn answers_of_log(
        &self,
        log: &str,
        realtime_minus_monotonic_ns: i64,
        opening: bool,
    ) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let mut missing = 0;
        for line in log.lines() {
            let wrong = || Error::invalid("log of a client", line);
            let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
            let &[port, sent_ns, done_ns] = numbers.as_deref().ok_or_else(wrong)? else { return Err(wrong()) };
            let sport = u16::try_from(port).map_err(|_| wrong())?;
            let [sent_ns, done_ns] = [sent_ns, done_ns].map(|ns| ns.saturating_add_signed(realtime_minus_monotonic_ns));
            match self.0.get(&sport).and_then(|flow| flow.answer(sent_ns, done_ns)) {
                Some((start_ns, end_ns)) => answers.push(Answer { sport, start_ns, end_ns }),
                None => missing += 1,
            }
        }
        if missing as f64 > MAX_MISSING * (answers.len() + missing) as f64 {
            let reason = format!("{missing} of {} requests have no packets", answers.len() + missing);
            return Err(Error::invalid("log of a client", reason));
        }
        if opening {
            answers.extend(self.openings(&answers));
        }
        Ok(answers)
    }

    /// The turns of connections before the first of these answers.
    fn openings(&self, answers: &[Answer]) -> Vec<Answer> {
        let mut first_ns: BTreeMap<u16, u64> = BTreeMap::new();
        for answer in answers {
            let first_ns = first_ns.entry(answer.sport).or_insert(u64::MAX);
            *first_ns = answer.start_ns.min(*first_ns);
        }
        let all = self.answers_of_turns().into_iter();
        all.filter(|turn| first_ns.get(&turn.sport).is_some_and(|&first_ns| turn.end_ns <= first_ns)).collect()
    }

    /// The answers where no two requests of a connection are under way at the same time.
    pub(super) fn answers_of_turns(&self) -> Vec<Answer> {
        let turns = self.0.iter().flat_map(|(&sport, flow)| {
            let turns = flow.turns().into_iter();
            turns.map(move |(start_ns, end_ns)| Answer { sport, start_ns, end_ns })
        });
        turns.collect()
    }
}

impl Flow {
    fn answer(&self, sent_ns: u64, done_ns: u64) -> Option<(u64, u64)> {
        let first = self.sent_ns.partition_point(|&ns| ns < sent_ns.saturating_sub(SLACK_NS));
        let start_ns = *self.sent_ns.get(first)?;
        let last = self.received_ns.partition_point(|&ns| ns <= done_ns);
        let end_ns = *self.received_ns.get(last.checked_sub(1)?)?;
        (end_ns > start_ns).then_some((start_ns, end_ns))
    }

    fn turns(&self) -> Vec<(u64, u64)> {
        let mut turns = Vec::new();
        let mut sent = self.sent_ns.iter().copied().peekable();
        let mut received = self.received_ns.iter().copied().peekable();
        while let Some(start_ns) = sent.next() {
            // What the server sends first is not an answer.
            while received.next_if(|&ns| ns <= start_ns).is_some() {}
            let Some(&begins_ns) = received.peek() else { break };
            while sent.next_if(|&ns| ns < begins_ns).is_some() {}
            let until_ns = sent.peek().copied().unwrap_or(u64::MAX);
            let mut end_ns = begins_ns;
            while let Some(ns) = received.next_if(|&ns| ns < until_ns) {
                end_ns = ns;
            }
            turns.push((start_ns, end_ns));
        }
        turns
    }
}

/// Reads answers that [`write`] has written.
pub(super) fn read(file: &Path) -> Result<Vec<Answer>> {
    let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
    let answer = |line| serde_json::from_str(line).map_err(|why| Error::invalid(file.display().to_string(), why));
    text.lines().map(answer).collect()
}

/// Writes answers as JSON Lines.
pub(super) fn write(answers: &[Answer], file: &Path) -> Result<()> {
    let mut text = Vec::new();
    for answer in answers {
        serde_json::to_writer(&mut text, answer).map_err(|why| Error::invalid("truth", why))?;
        text.push(b'\n');
    }
    fs::write(file, text).map_err(Error::file("write", file))
}

/// A TCP segment on Ethernet and IPv4.
struct Segment {
    source: Ipv4Addr,
    ports: [u16; 2],
    payload: u16,
}

impl Segment {
    fn parse(frame: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let ip = frame.get(14..).filter(|_| number(frame, 12) == Some(0x0800))?;
        let ip_header = usize::from(ip.first()? & 0xf) * 4;
        let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
        let tcp = ip.get(ip_header..).filter(|_| ip[9] == 6)?;
        let tcp_header = u16::from(tcp.get(12)? >> 4) * 4;
        let payload = number(ip, 2)?.checked_sub(ip_header as u16 + tcp_header)?;
        Some(Self { source: source.into(), ports: [number(tcp, 0)?, number(tcp, 2)?], payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(sent_ns: &[u64], received_ns: &[u64]) -> Flows {
        let flow = Flow { sent_ns: sent_ns.to_vec(), received_ns: received_ns.to_vec() };
        Flows(BTreeMap::from([(5000, flow)]))
    }

    #[test]
    fn a_logged_request_lasts_from_its_first_packet_to_the_last_of_its_answer() {
        let flows = flows(&[1_000_000, 1_100_000, 3_000_000], &[2_000_000, 2_500_000, 4_000_000]);
        let answers = flows.answers_of_log("5000 990000 2600000\n5000 2990000 4100000\n", 5, false).unwrap();
        let ends: Vec<(u64, u64)> = answers.iter().map(|answer| (answer.start_ns, answer.end_ns)).collect();
        assert_eq!(ends, [(1_000_000, 2_500_000), (3_000_000, 4_000_000)]);
        assert!(flows.answers_of_log("5001 990000 2600000\n", 0, false).is_err());
        assert!(flows.answers_of_log("5000 990000\n", 0, false).is_err());
    }

    #[test]
    fn what_opens_a_connection_is_a_turn_before_the_log() {
        let flows = flows(&[1_000_000, 3_000_000, 5_000_000], &[2_000_000, 4_000_000, 6_000_000]);
        let log = "5000 5000000 6000000\n";
        let [all, logged] = [true, false].map(|opening| flows.answers_of_log(log, 0, opening).unwrap().len());
        assert_eq!((all, logged), (3, 1));
    }

    #[test]
    fn a_turn_lasts_until_the_next_request() {
        // Something from the server, a request in two packets with an answer in two, one with one, and one without.
        let flows = flows(&[10, 11, 30, 50], &[5, 20, 21, 40]);
        let ends: Vec<(u64, u64)> =
            flows.answers_of_turns().iter().map(|answer| (answer.start_ns, answer.end_ns)).collect();
        assert_eq!(ends, [(10, 21), (30, 40)]);
    }

    #[test]
    fn the_payload_of_a_segment_is_known_though_it_was_cut() {
        let packet = etherparse::PacketBuilder::ethernet2([0; 6], [0; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(5000, 80, 1, 1000);
        let mut frame = Vec::new();
        packet.write(&mut frame, &[0; 300]).unwrap();
        let segment = Segment::parse(&frame[..60]).unwrap();
        assert_eq!((segment.source, segment.ports, segment.payload), ([10, 0, 0, 1].into(), [5000, 80], 300));
        assert!(Segment::parse(&frame[..30]).is_none());
    }
}
