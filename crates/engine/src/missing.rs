//! Segments of TCP that a capture lacks: the other end has acknowledged their data, and they did not pass.

use std::collections::HashMap;

use crate::{
    abi,
    filter::Filter,
    measure::{Endpoint, Method},
    observe::Observation,
    rtt::{
        Config,
        native::{NoSegment, Segment},
    },
    sequence::is_after,
};

/// Connections that are followed; of others nothing is counted.
const MAX_CONNECTIONS: usize = 65_536;
/// Gaps that are remembered per direction; the oldest make room.
const MAX_GAPS: usize = 32;
/// An acknowledgement that is further ahead is none of this connection.
const FARTHEST: u32 = 1 << 26;
/// Packets at the beginning, all of which are looked at. A look takes as long as a sample of a round trip.
const FIRST: u64 = 100_000;
/// Later packets are taken in parts of this many.
const EACH: u64 = 200_000;
/// Packets at the beginning of each part that are looked at.
const OF_EACH: u64 = 10_000;

/// Counts the segments that are missing in a capture, of connections of which it has both directions: in its first 100,000 packets,
/// and then in 10,000 of each 200,000.
pub struct Missing {
    config: Box<abi::dwell_rtt_config>,
    packets: u64,
    /// Those that were looked at, and those of them that are cut off within their headers.
    looked_at: u64,
    cut: u64,
    connections: HashMap<[u64; 5], [Sent; 2]>,
    segments: u64,
    missing: u64,
    one_way: Option<OneWay>,
    has_both: bool,
}

/// Packets of connections of each of which one end alone was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneWay {
    /// The ends of the first of them.
    pub from: Endpoint,
    /// See `from`.
    pub to: Endpoint,
    /// How many packets.
    pub packets: u64,
    /// Of how many connections.
    pub connections: u64,
}

/// What one end has sent, as far as it has passed.
#[derive(Debug, Default)]
struct Sent {
    /// The sequence number after its last byte.
    next: Option<u32>,
    gaps: Vec<(u32, u32)>,
    /// Whether any packet of it has passed, also of a connection before with the same ends.
    has_passed: bool,
}

impl Missing {
    /// Follows the connections that a filter admits.
    pub fn new(filter: Filter) -> Missing {
        let config = Config { filter, methods: vec![Method::TcpSeq], ..Config::default() };
        Missing {
            config: Box::new(config.to_core()),
            packets: 0,
            looked_at: 0,
            cut: 0,
            connections: HashMap::new(),
            segments: 0,
            missing: 0,
            one_way: None,
            has_both: false,
        }
    }

    /// Takes a packet.
    pub fn observe(&mut self, packet: &Observation<'_>) {
        let number = self.packets;
        self.packets += 1;
        if number >= FIRST && number % EACH >= OF_EACH {
            return;
        }
        if number >= FIRST && number.is_multiple_of(EACH) {
            // What has passed meanwhile is not known.
            self.connections.clear();
        }
        self.looked_at += 1;
        let segment = match Segment::read(packet, &self.config) {
            Ok(segment) => segment,
            Err(error) => {
                self.cut += u64::from(error == NoSegment::CutOff);
                return;
            }
        };
        let key = segment.connection;
        let is_new = !self.connections.contains_key(&key);
        if is_new && self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        let ends = self.connections.entry(key).or_default();
        let side = usize::from(segment.direction & 1);
        ends[side].has_passed = true;
        self.has_both |= ends[1 - side].has_passed;
        let one_way =
            self.one_way.get_or_insert(OneWay { from: segment.src, to: segment.dst, packets: 0, connections: 0 });
        one_way.packets += 1;
        one_way.connections += u64::from(is_new);
        if segment.has(Segment::SYN) && !segment.has(Segment::ACK) {
            ends.iter_mut().for_each(|end| *end = Sent { has_passed: end.has_passed, ..Sent::default() });
        }
        self.segments += segments(segment.payload_bytes);
        ends[side].send(&segment);
        if segment.has(Segment::ACK) && !segment.has(Segment::RST) {
            self.missing += ends[1 - side].acknowledge(segment.ack);
        }
    }

    /// Returns the number of segments that are missing among those that were looked at.
    pub fn count(&self) -> u64 {
        self.missing
    }

    /// Returns what was looked at if one end alone was seen of each connection.
    pub fn one_way(&self) -> Option<OneWay> {
        self.one_way.filter(|_| !self.has_both)
    }

    /// Returns the number of packets that were looked at and are cut off within their headers, and of all that were looked at.
    pub fn cut(&self) -> (u64, u64) {
        (self.cut, self.looked_at)
    }

    /// Returns the number of segments with data that were looked at, with those that are missing.
    pub fn of(&self) -> u64 {
        self.segments + self.missing
    }
}

impl Sent {
    fn send(&mut self, segment: &Segment) {
        let controls = u32::from(segment.has(Segment::SYN)) + u32::from(segment.has(Segment::FIN));
        let (seq, end) = (segment.seq, segment.seq.wrapping_add(segment.payload_bytes + controls));
        if end == seq {
            return;
        }
        let next = *self.next.get_or_insert(seq);
        if is_after(seq, next) {
            if self.gaps.len() == MAX_GAPS {
                self.gaps.remove(0);
            }
            self.gaps.push((next, seq));
        } else if !self.gaps.is_empty() {
            let left = |(from, to): (u32, u32)| {
                let is_apart = !is_after(end, from) || !is_after(to, seq);
                let pieces = if is_apart { [(from, to), (to, to)] } else { [(from, seq), (end, to)] };
                pieces.into_iter().filter(|(from, to)| is_after(*to, *from))
            };
            self.gaps = std::mem::take(&mut self.gaps).into_iter().flat_map(left).take(MAX_GAPS).collect();
        }
        self.next = Some(if is_after(end, next) { end } else { next });
    }

    /// Takes an acknowledgement. Returns how many segments it covers that have not passed.
    fn acknowledge(&mut self, number: u32) -> u64 {
        let Some(next) = self.next else { return 0 };
        if (1..FARTHEST).contains(&number.wrapping_sub(next)) {
            self.next = Some(number);
            self.gaps.push((next, number));
        }
        if self.gaps.is_empty() {
            return 0;
        }
        let is_over = |&&mut (_, to): &&mut (u32, u32)| !is_after(to, number);
        let missing = self.gaps.iter_mut().filter(is_over).map(|(from, to)| to.wrapping_sub(*from));
        // The end of a connection takes a number too, and a keep-alive's byte is no data.
        let missing = missing.filter(|bytes| *bytes > 1).map(segments).sum();
        self.gaps.retain(|(_, to)| is_after(*to, number));
        missing
    }
}

/// The number of segments that carry so many bytes, as Ethernet takes them.
fn segments(bytes: u32) -> u64 {
    const MSS: u32 = 1460;
    u64::from(bytes.div_ceil(MSS))
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    /// Returns what passes packets of one connection: whether the server sends it, sequence number, acknowledgement and payload.
    fn packets() -> impl FnMut(&mut Missing, bool, u32, u32, usize) {
        |missing, is_server, seq, ack, payload| {
            let (src, dst) = if is_server { ([10, 0, 0, 2], [10, 0, 0, 1]) } else { ([10, 0, 0, 1], [10, 0, 0, 2]) };
            let ports = if is_server { (80, 40_000) } else { (40_000, 80) };
            let mut data = Vec::new();
            let builder = PacketBuilder::ipv4(src, dst, 64).tcp(ports.0, ports.1, seq, 1_000).ack(ack);
            builder.write(&mut data, &vec![0; payload]).unwrap();
            let wire_len = data.len() as u32;
            missing.observe(&Observation { time_ns: 1, interface: 0, link: 101, data: &data, wire_len });
        }
    }

    /// Of segments of 1000 bytes that cross the wrap of sequence numbers, those that `passes` says, with an acknowledgement of each
    /// fourth; returns how many are missing.
    fn missing(passes: impl Fn(u32) -> bool, acknowledges: bool) -> (u64, u64) {
        let mut missing = Missing::new(Filter::default());
        let mut pass = packets();
        let first = u32::MAX - 10_500;
        for number in 0..100 {
            let seq = first.wrapping_add(number * 1_000);
            if passes(number) {
                pass(&mut missing, true, seq, 1, 1_000);
            }
            if acknowledges && number % 4 == 3 {
                pass(&mut missing, false, 1, seq.wrapping_add(1_000), 0);
            }
        }
        (missing.count(), missing.of())
    }

    #[test]
    fn what_was_acknowledged_and_did_not_pass_is_missing() {
        assert_eq!(missing(|_| true, true), (0, 100));
        assert_eq!(missing(|number| number % 10 != 5, true), (10, 100));
        // The last one before an acknowledgement.
        assert_eq!(missing(|number| number % 20 != 3, true), (5, 100));
    }

    /// Each tenth segment is missing, in a capture that is too long to look at all of it.
    #[test]
    fn of_a_long_capture_a_part_is_looked_at() {
        let mut missing = Missing::new(Filter::default());
        let mut pass = packets();
        let (mut number, mut passed) = (0_u32, 0);
        while passed < 410_000 {
            let seq = number.wrapping_mul(1_000);
            if number % 10 != 5 {
                pass(&mut missing, true, seq, 1, 1_000);
                passed += 1;
            }
            if number % 10 == 9 {
                pass(&mut missing, false, 1, seq.wrapping_add(1_000), 0);
                passed += 1;
            }
            number += 1;
        }
        let looked_at = FIRST + 2 * OF_EACH;
        assert!((missing.of().abs_diff(looked_at)) < 20, "{}", missing.of());
        assert!((missing.count() * 10).abs_diff(looked_at) < 40, "{}", missing.count());
    }

    #[test]
    fn packets_that_are_cut_off_within_their_headers_are_counted() {
        let mut missing = Missing::new(Filter::default());
        let mut data = Vec::new();
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4);
        builder.options_raw(&[1; 12]).unwrap().write(&mut data, &[0; 100]).unwrap();
        for captured in [52, 50, 40] {
            let (data, wire_len) = (&data[..captured], data.len() as u32);
            missing.observe(&Observation { time_ns: 1, interface: 0, link: 101, data, wire_len });
        }
        assert_eq!(missing.cut(), (2, 3));
    }

    #[test]
    fn connections_of_which_one_end_alone_was_seen_are_told() {
        let mut missing = Missing::new(Filter::default());
        let mut pass = packets();
        assert_eq!(missing.one_way(), None);
        pass(&mut missing, true, 1, 1, 1_000);
        pass(&mut missing, true, 1_001, 1, 1_000);
        let one_way = missing.one_way().unwrap();
        assert_eq!((one_way.from.to_string(), one_way.to.to_string()), ("10.0.0.2:80".into(), "10.0.0.1:40000".into()));
        assert_eq!((one_way.packets, one_way.connections), (2, 1));
        pass(&mut missing, false, 1, 2_001, 0);
        assert_eq!(missing.one_way(), None);
    }

    #[test]
    fn of_one_direction_alone_nothing_is_known_to_be_missing() {
        assert_eq!(missing(|_| false, true), (0, 0));
        assert_eq!(missing(|number| number % 10 != 5, false), (0, 90));
    }
}
