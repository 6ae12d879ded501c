//! Traces from packet captures: connections to a port.
//!
//! This module parses packets with etherparse and not with the engine's C core, which is written for measuring: a trace
//! needs ports and lengths only, and packets that the core skips count too.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::Path,
};

use dwell_capture::{LinkType, Packet, Reader};
use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket};

use super::{Flow, Flows, MAX_DURATION_S, TraceError};

/// Silence after which a connection is over. Later packets with the same ends belong to a new connection.
const IDLE_TIMEOUT_NS: u64 = 60_000_000_000;

/// Client address and port, server address, and whether the connection uses TCP.
type ConnectionKey = (IpAddr, u16, IpAddr, bool);

#[derive(Clone, Copy)]
struct OpenFlow {
    flow: Flow,
    last_ns: u64,
}

/// What one packet is to a trace.
enum Content {
    /// A packet to the port: its connection, the length of its IP packet, and whether the capture has only its start.
    Request { key: ConnectionKey, bytes: u64, is_cut: bool },
    /// A packet of TCP or UDP whose ports the capture does not have.
    WithoutPorts,
    /// A packet of a link type that cannot be read.
    UnknownLink,
    /// Any other packet.
    Other,
}

/// Reads the connections to a port, with the packets and IP bytes that clients sent.
pub(super) fn read(path: &Path, port: u16) -> Result<Flows, TraceError> {
    let mut reader = Reader::open(path)?;
    let (mut open, mut clients) = (HashMap::<ConnectionKey, OpenFlow>::new(), HashMap::new());
    let (mut flows, mut tally) = (Vec::new(), Tally::default());
    while let Some(packet) = reader.next_packet()? {
        let content = parse(&packet, port);
        tally.count(&content, packet.link);
        let Content::Request { key, bytes, .. } = content else {
            continue;
        };
        let time_ns = packet.time_ns;
        if let Some(open) = open.get_mut(&key)
            && time_ns.saturating_sub(open.last_ns) <= IDLE_TIMEOUT_NS
        {
            open.flow.packets = open.flow.packets.saturating_add(1);
            open.flow.bytes += bytes;
            open.last_ns = open.last_ns.max(time_ns);
            continue;
        }
        let next = clients.len() as u32;
        let flow =
            Flow { start_ns: time_ns, client: *clients.entry(key.0).or_insert(next), packets: 1, bytes, gap_ns: 0.0 };
        flows.extend(open.insert(key, OpenFlow { flow, last_ns: time_ns }).map(OpenFlow::close));
    }
    flows.extend(open.into_values().map(OpenFlow::close));
    flows.sort_by_key(|flow| (flow.start_ns, flow.client, flow.packets, flow.bytes));
    let Some(first_ns) = flows.first().map(|flow| flow.start_ns) else {
        let filter = [vec![format!(" to port {port}")], tally.omissions()].concat().join("; it has ");
        return Err(TraceError::Empty { path: path.to_owned(), filter });
    };
    let last_ns = flows.last().map_or(first_ns, |flow| flow.start_ns);
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    if seconds > MAX_DURATION_S {
        return Err(TraceError::Long { path: path.to_owned(), seconds });
    }
    for flow in &mut flows {
        flow.start_ns -= first_ns;
    }
    Ok(Flows { flows, notes: tally.notes(path, port) })
}

impl OpenFlow {
    fn close(self) -> Flow {
        let duration_ns = self.last_ns.saturating_sub(self.flow.start_ns);
        Flow { gap_ns: duration_ns as f64 / f64::from(self.flow.packets - 1).max(1.0), ..self.flow }
    }
}

/// Numbers of packets that a user has to know about.
#[derive(Default)]
struct Tally {
    cut: u64,
    without_ports: u64,
    unknown_links: BTreeMap<LinkType, u64>,
}

impl Tally {
    fn count(&mut self, content: &Content, link: LinkType) {
        match content {
            Content::Request { is_cut, .. } => self.cut += u64::from(*is_cut),
            Content::WithoutPorts => self.without_ports += 1,
            Content::UnknownLink => *self.unknown_links.entry(link).or_default() += 1,
            Content::Other => {}
        }
    }

    /// Returns what was left out, in words.
    fn omissions(&self) -> Vec<String> {
        let links = self.unknown_links.iter().map(|(link, count)| {
            format!(
                "{} of link type {link}, which cannot be read: convert the capture to Ethernet or raw IP",
                packets(*count)
            )
        });
        let ports = (self.without_ports > 0).then(|| {
            format!(
                "{} without ports, fragments or cut by the snap length: capture at least 96 bytes of each packet",
                packets(self.without_ports)
            )
        });
        links.chain(ports).collect()
    }

    fn notes(&self, path: &Path, port: u16) -> Vec<String> {
        let cut = (self.cut > 0).then(|| {
            format!(
                "'{}' has {} to port {port} that are cut by the snap length: they count with the lengths in their IP headers",
                path.display(),
                packets(self.cut)
            )
        });
        let omissions = self.omissions();
        let left_out = omissions.iter().map(|omission| format!("'{}': left out {omission}", path.display()));
        cut.into_iter().chain(left_out).collect()
    }
}

fn packets(count: u64) -> String {
    format!("{count} packet{}", if count == 1 { "" } else { "s" })
}

/// Finds out what a packet is to a trace of the connections to a port.
fn parse(packet: &Packet<'_>, port: u16) -> Content {
    let data = packet.data;
    let behind = |header: usize| data.get(header..).unwrap_or_default();
    let ether_type = |at: usize| match data.get(at..at + 2) {
        Some(bytes) => EtherType(u16::from_be_bytes([bytes[0], bytes[1]])),
        None => EtherType(0),
    };
    let sliced = match packet.link {
        LinkType::EN10MB => LaxSlicedPacket::from_ethernet(data).ok(),
        LinkType::LINUX_SLL => Some(LaxSlicedPacket::from_ether_type(ether_type(14), behind(16))),
        LinkType::LINUX_SLL2 => Some(LaxSlicedPacket::from_ether_type(ether_type(0), behind(20))),
        LinkType::NULL | LinkType::LOOP => LaxSlicedPacket::from_ip(behind(4)).ok(),
        LinkType::RAW | LinkType::RAW_12 | LinkType::RAW_14 | LinkType::IPV4 | LinkType::IPV6 => {
            LaxSlicedPacket::from_ip(data).ok()
        }
        _ => return Content::UnknownLink,
    };
    let is_cut = data.len() < packet.wire_len as usize;
    let Some(LaxSlicedPacket { net: Some(net), .. }) = &sliced else {
        let ends_early = sliced.is_none_or(|sliced| sliced.stop_err.is_some());
        return if is_cut && ends_early { Content::WithoutPorts } else { Content::Other };
    };
    let (client, server, bytes) = match net {
        LaxNetSlice::Ipv4(ip) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            u64::from(ip.header().total_len()),
        ),
        LaxNetSlice::Ipv6(ip) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            u64::from(ip.header().payload_length()) + 40,
        ),
        LaxNetSlice::Arp(_) => return Content::Other,
    };
    let Some(payload) = net.ip_payload_ref().filter(|ip| [IpNumber::TCP, IpNumber::UDP].contains(&ip.ip_number)) else {
        return Content::Other;
    };
    match *payload.payload {
        [from_high, from_low, to_high, to_low, ..] if !payload.fragmented => {
            if u16::from_be_bytes([to_high, to_low]) != port {
                return Content::Other;
            }
            let from = u16::from_be_bytes([from_high, from_low]);
            let key = (client, from, server, payload.ip_number == IpNumber::TCP);
            Content::Request { key, bytes, is_cut: is_cut && payload.incomplete }
        }
        _ => Content::WithoutPorts,
    }
}

#[cfg(test)]
mod tests {
    use dwell_capture::Writer;
    use etherparse::PacketBuilder;

    use super::*;

    /// Builds an Ethernet frame from a client, given by the last octet of its address: 100 bytes of IPv4 and UDP.
    fn frame(client: u8, from: u16, to: u16) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, client], [10, 0, 1, 1], 64);
        let mut data = Vec::new();
        builder.udp(from, to).write(&mut data, &[0; 72]).unwrap();
        data
    }

    /// Writes a capture of packets, each with its time in ms, and its first `snap` bytes only.
    fn write(link: LinkType, snap: usize, packets: &[(u64, Vec<u8>)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(file.reopen().unwrap(), link).unwrap();
        for (ms, data) in packets {
            let kept = &data[..data.len().min(snap)];
            writer.write(1_000_000_000 + ms * 1_000_000, kept, data.len() as u32).unwrap();
        }
        writer.finish().unwrap();
        file
    }

    /// Writes a capture of packets, given as time in ms, last octet of the client, source and destination port.
    fn capture(packets: &[(u64, u8, u16, u16)]) -> tempfile::NamedTempFile {
        let frames = packets.iter().map(|&(ms, client, from, to)| (ms, frame(client, from, to)));
        write(LinkType::EN10MB, usize::MAX, &frames.collect::<Vec<_>>())
    }

    /// Packets and bytes of each connection.
    fn sizes(flows: &[Flow]) -> Vec<(u32, u64)> {
        flows.iter().map(|flow| (flow.packets, flow.bytes)).collect()
    }

    #[test]
    fn packets_cut_by_the_snap_length_count_with_their_whole_length() {
        let mut tcp = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).tcp(5000, 443, 1, 1000);
        builder.write(&mut tcp, &[0; 1000]).unwrap();
        let packets = [(0, frame(1, 5000, 443)), (1, frame(1, 5000, 443)), (2, tcp)];
        let whole = read(write(LinkType::EN10MB, usize::MAX, &packets).path(), 443).unwrap();
        assert_eq!((sizes(&whole.flows), whole.notes.len()), (vec![(2, 200), (1, 1060)], 0));
        // 58 bytes end after the ports of IPv6.
        for snap in [96, 64, 58] {
            let cut = read(write(LinkType::EN10MB, snap, &packets).path(), 443).unwrap();
            assert_eq!(cut.flows, whole.flows, "{snap}");
            assert_eq!(cut.notes.len(), 1, "{:?}", cut.notes);
            assert!(cut.notes[0].contains("has 3 packets to port 443 that are cut"), "{:?}", cut.notes);
        }
        // 50 bytes end after the ports of IPv4, and before those of IPv6.
        let cut = read(write(LinkType::EN10MB, 50, &packets).path(), 443).unwrap();
        assert_eq!(sizes(&cut.flows), [(2, 200)]);
        assert!(cut.notes.iter().any(|note| note.contains("1 packet without ports")), "{:?}", cut.notes);
        let error = read(write(LinkType::EN10MB, 30, &packets).path(), 443).unwrap_err().to_string();
        assert!(error.contains("no connection to port 443") && error.contains("3 packets without ports"), "{error}");
    }

    #[test]
    fn every_link_type_of_the_parser_is_read_and_others_are_reported() {
        let ip = frame(1, 5000, 443).split_off(14);
        let behind = |header: &[u8]| vec![(0, [header, &ip].concat())];
        let cooked = [[0; 14].as_slice(), &[8, 0]].concat();
        let cooked_2 = [[8, 0].as_slice(), &[0; 18]].concat();
        for (link, header) in [
            (LinkType::EN10MB, cooked[2..].to_vec()),
            (LinkType::LINUX_SLL, cooked),
            (LinkType::LINUX_SLL2, cooked_2),
            (LinkType::NULL, vec![2, 0, 0, 0]),
            (LinkType::LOOP, vec![0, 0, 0, 2]),
            (LinkType::RAW, vec![]),
            (LinkType::IPV4, vec![]),
        ] {
            // `cooked` without its first two bytes is an Ethernet header.
            let trace = read(write(link, usize::MAX, &behind(&header)).path(), 443).unwrap();
            assert_eq!((sizes(&trace.flows), trace.notes.len()), (vec![(1, 100)], 0), "{link}");
        }
        let file = write(LinkType::IEEE802_11, usize::MAX, &behind(&[]));
        let error = read(file.path(), 443).unwrap_err().to_string();
        assert!(error.contains("1 packet of link type IEEE802_11, which cannot be read"), "{error}");
    }

    #[test]
    fn connections_of_mixed_clocks_are_refused() {
        let file = capture(&[(0, 1, 5000, 443), (1_700_000_000_000, 2, 5000, 443)]);
        let error = read(file.path(), 443).unwrap_err().to_string();
        assert!(error.contains("start 1700000000 seconds apart"), "{error}");
    }

    #[test]
    fn connections_are_distinguished_by_ends_and_silence() {
        let file = capture(&[
            (0, 1, 5000, 443),
            (1, 1, 443, 5000),
            (10, 1, 5000, 443),
            (15, 2, 5000, 443),
            (30, 1, 5000, 443),
            (40, 1, 5001, 443),
            (60_031, 1, 5000, 443),
        ]);
        let flows = read(file.path(), 443).unwrap().flows;
        let seen: Vec<_> =
            flows.iter().map(|f| (f.start_ns / 1_000_000, f.client, f.packets, f.bytes, f.gap_ns)).collect();
        assert_eq!(seen, [(0, 0, 3, 300, 15e6), (15, 1, 1, 100, 0.0), (40, 0, 1, 100, 0.0), (60_031, 0, 1, 100, 0.0)]);
        assert!(matches!(read(file.path(), 80), Err(TraceError::Empty { .. })));
    }
}
