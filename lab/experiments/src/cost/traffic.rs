//! Generated captures of TCP with timestamps, as a vantage point sees it.

use std::io::{self, Write};

use dwell_capture::{LinkType, Writer};

const ETHERNET: LinkType = LinkType(1);
const HEADERS: usize = 14 + 20 + 32;
const MSS: u32 = 1448;
const REQUEST: u32 = 120;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// The properties of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of connections, all of which are open at once.
    pub flows: u32,
    /// The total number of packets.
    pub packets: u32,
    /// The number of captured bytes per packet.
    pub snap: usize,
    /// The time from one packet to the next, in nanoseconds.
    pub gap_ns: u64,
}

/// Writes the capture. Each connection opens, then has requests of one segment and answers of ten segments, every
/// second of which is acknowledged. The order of connections is random, with a fixed seed.
pub fn write<W: Write>(plan: &Plan, out: W) -> io::Result<W> {
    let mut writer = Writer::new(out, ETHERNET)?;
    let mut flows: Vec<Flow> = (0..plan.flows).map(Flow::new).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; plan.snap.max(HEADERS)];
    let mut time_ns = 1_700_000_000_000_000_000_u64;
    for n in 0..plan.packets {
        // Each in turn at first, so that all are there; by chance later.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let opening = n < 3 * plan.flows;
        let index = if opening { n / 3 } else { (random % u64::from(plan.flows)) as u32 };
        let payload = flows[index as usize].next(time_ns, &mut bytes);
        let length = HEADERS as u32 + payload;
        let kept = plan.snap.min(length as usize);
        writer.write(time_ns, &bytes[..kept], length)?;
        time_ns += plan.gap_ns;
    }
    writer.finish()
}

/// A connection. Side 0 is the client.
struct Flow {
    client: u32,
    port: u16,
    step: u32,
    seq: [u32; 2],
    tsval: [u32; 2],
    tsval_base: [u32; 2],
}

impl Flow {
    fn new(number: u32) -> Flow {
        Flow {
            client: 0x0a00_0001 + number / 8,
            port: 32768 + (number % 8) as u16 * 977,
            step: 0,
            seq: [number.wrapping_mul(0x1234_5677), number.wrapping_mul(0x7654_3211)],
            tsval: [0; 2],
            tsval_base: [number.wrapping_mul(7919), number.wrapping_mul(104_729)],
        }
    }

    /// Writes the headers of the connection's next packet. Returns the length of its payload.
    fn next(&mut self, time_ns: u64, bytes: &mut [u8]) -> u32 {
        let (side, flags, payload) = match self.step {
            0 => (0, SYN, 0),
            1 => (1, SYN | ACK, 0),
            2 => (0, ACK, 0),
            step => match (step - 3) % 16 {
                0 => (0, PSH | ACK, REQUEST),
                n if n % 3 == 0 => (0, ACK, 0),
                14 => (1, PSH | ACK, MSS),
                _ => (1, ACK, MSS),
            },
        };
        self.step += 1;
        let other = 1 - side;
        self.tsval[side] = self.tsval_base[side].wrapping_add((time_ns / 1_000_000) as u32);
        let (client, server) = (self.client, 0xc0a8_0001_u32);
        let (source, destination) = if side == 0 { (client, server) } else { (server, client) };
        let (source_port, destination_port) = if side == 0 { (self.port, 443) } else { (443, self.port) };

        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let ip = &mut bytes[14..34];
        ip.copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        ip[2..4].copy_from_slice(&(52 + payload as u16).to_be_bytes());
        ip[12..16].copy_from_slice(&source.to_be_bytes());
        ip[16..20].copy_from_slice(&destination.to_be_bytes());
        let sum: u32 = ip.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());

        let acknowledged = if flags & ACK == 0 { 0 } else { self.seq[other] };
        let echo = if flags & ACK == 0 { 0 } else { self.tsval[other] };
        let tcp = &mut bytes[34..66];
        tcp[..2].copy_from_slice(&source_port.to_be_bytes());
        tcp[2..4].copy_from_slice(&destination_port.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq[side].to_be_bytes());
        tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        tcp[12..20].copy_from_slice(&[0x80, flags, 0x10, 0, 0, 0, 0, 0]);
        tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
        tcp[24..28].copy_from_slice(&self.tsval[side].to_be_bytes());
        tcp[28..32].copy_from_slice(&echo.to_be_bytes());
        self.seq[side] = self.seq[side].wrapping_add(payload + u32::from(flags & SYN != 0));
        payload
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        observe::Observation,
        rtt::{Config, Counter, Tracker},
    };

    use super::*;

    #[test]
    fn every_packet_is_read_and_many_are_matched() {
        let plan = Plan { flows: 10, packets: 10_000, snap: 100, gap_ns: 50_000 };
        let capture = write(&plan, Vec::new()).unwrap();
        let mut reader = dwell_capture::Reader::from_read("made", Box::new(io::Cursor::new(capture))).unwrap();
        let mut tracker = Tracker::new(&Config::default());
        while let Some(packet) = reader.next_packet().unwrap() {
            let observation = Observation {
                time_ns: packet.time_ns,
                interface: packet.interface,
                link: packet.link.0,
                data: packet.data,
                wire_len: packet.wire_len,
            };
            tracker.observe(&observation, drop);
        }
        let counters = tracker.counters();
        assert_eq!(counters.get(Counter::Packets), 10_000);
        assert_eq!(counters.get(Counter::FlowsOpened), 10);
        assert!(counters.get(Counter::Samples) > 3_000, "{counters:?}");
        for reason in [Counter::Malformed, Counter::Truncated, Counter::OtherProtocol] {
            assert_eq!(counters.get(reason), 0, "{reason:?}");
        }
    }
}
