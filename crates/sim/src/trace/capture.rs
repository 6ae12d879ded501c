//! Traces from packet captures: connections to a port.
//!
//! This module parses packets with etherparse and not with the engine's C core, which is written for measuring: a trace
//! needs ports and lengths only, and packets that the core skips count too.

use std::{collections::HashMap, net::IpAddr, path::Path};

use dwell_capture::{LinkType, Reader};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::{Flow, MAX_DURATION_S, TraceError};

/// Silence after which a connection is over. Later packets with the same ends belong to a new connection.
const IDLE_TIMEOUT_NS: u64 = 60_000_000_000;

/// Client address and port, server address, and whether the connection uses TCP.
type ConnectionKey = (IpAddr, u16, IpAddr, bool);

#[derive(Clone, Copy)]
struct OpenFlow {
    flow: Flow,
    last_ns: u64,
}

/// Reads the connections to a port, with the packets and IP bytes that clients sent.
pub(super) fn read(path: &Path, port: u16) -> Result<Vec<Flow>, TraceError> {
    let mut reader = Reader::open(path)?;
    let (mut open, mut clients) = (HashMap::<ConnectionKey, OpenFlow>::new(), HashMap::new());
    let mut flows = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        let Some((key, bytes)) = parse(packet.link, packet.data, port) else {
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
        return Err(TraceError::Empty { path: path.to_owned(), filter: format!(" to port {port}") });
    };
    let last_ns = flows.last().map_or(first_ns, |flow| flow.start_ns);
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    if seconds > MAX_DURATION_S {
        return Err(TraceError::Long { path: path.to_owned(), seconds });
    }
    for flow in &mut flows {
        flow.start_ns -= first_ns;
    }
    Ok(flows)
}

impl OpenFlow {
    fn close(self) -> Flow {
        let duration_ns = self.last_ns.saturating_sub(self.flow.start_ns);
        Flow { gap_ns: duration_ns as f64 / f64::from(self.flow.packets - 1).max(1.0), ..self.flow }
    }
}

/// Returns the connection and the length of an IP packet; `None` if the packet is not to this port or cannot be parsed.
fn parse(link: LinkType, data: &[u8], port: u16) -> Option<(ConnectionKey, u64)> {
    let packet = match link {
        LinkType::EN10MB => SlicedPacket::from_ethernet(data),
        LinkType::LINUX_SLL => SlicedPacket::from_linux_sll(data),
        LinkType::RAW | LinkType::RAW_12 | LinkType::RAW_14 | LinkType::IPV4 | LinkType::IPV6 => {
            SlicedPacket::from_ip(data)
        }
        _ => return None,
    }
    .ok()?;
    let (client, server, bytes) = match packet.net? {
        NetSlice::Ipv4(ip) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            u64::from(ip.header().total_len()),
        ),
        NetSlice::Ipv6(ip) => (
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            u64::from(ip.header().payload_length()) + 40,
        ),
        NetSlice::Arp(_) => return None,
    };
    let (from, to, is_tcp) = match packet.transport? {
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port(), true),
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port(), false),
        _ => return None,
    };
    (to == port).then_some(((client, from, server, is_tcp), bytes))
}

#[cfg(test)]
mod tests {
    use dwell_capture::Writer;
    use etherparse::PacketBuilder;

    use super::*;

    /// Writes a capture of packets, given as time in ms, last octet of the client, source and destination port.
    fn capture(packets: &[(u64, u8, u16, u16)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(file.reopen().unwrap(), LinkType::EN10MB).unwrap();
        for &(ms, client, from, to) in packets {
            let builder =
                PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, client], [10, 0, 1, 1], 64).udp(from, to);
            let mut data = Vec::new();
            builder.write(&mut data, &[0; 72]).unwrap();
            writer.write(1_000_000_000 + ms * 1_000_000, &data, data.len() as u32).unwrap();
        }
        writer.finish().unwrap();
        file
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
        let flows = read(file.path(), 443).unwrap();
        let seen: Vec<_> =
            flows.iter().map(|f| (f.start_ns / 1_000_000, f.client, f.packets, f.bytes, f.gap_ns)).collect();
        assert_eq!(seen, [(0, 0, 3, 300, 15e6), (15, 1, 1, 100, 0.0), (40, 0, 1, 100, 0.0), (60_031, 0, 1, 100, 0.0)]);
        assert!(matches!(read(file.path(), 80), Err(TraceError::Empty { .. })));
    }
}
