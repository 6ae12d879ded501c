//! Connections in a capture: packets to a port.

use std::{collections::HashMap, net::IpAddr, path::Path};

use dwell_capture::{LinkType, Reader};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::{Flow, LONGEST_S, TraceError};

/// A connection that was silent for so long is over: its ends may be those of the next.
const IDLE_NS: u64 = 60_000_000_000;

/// Ends of a connection, the client's first, and whether it is of TCP.
type Ends = (IpAddr, u16, IpAddr, bool);

#[derive(Clone, Copy)]
struct Seen {
    flow: Flow,
    last_ns: u64,
}

/// Connections to a port in a capture, with packets and bytes of IP that clients sent.
pub(super) fn read(path: &Path, port: u16) -> Result<Vec<Flow>, TraceError> {
    let mut reader = Reader::open(path)?;
    let (mut open, mut clients) = (HashMap::<Ends, Seen>::new(), HashMap::new());
    let mut flows = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        let Some((ends, bytes)) = ends_of(packet.link, packet.data, port) else {
            continue;
        };
        let time_ns = packet.time_ns;
        if let Some(seen) = open.get_mut(&ends)
            && time_ns.saturating_sub(seen.last_ns) <= IDLE_NS
        {
            seen.flow.packets = seen.flow.packets.saturating_add(1);
            seen.flow.bytes += bytes;
            seen.last_ns = seen.last_ns.max(time_ns);
            continue;
        }
        let next = clients.len() as u32;
        let flow =
            Flow { start_ns: time_ns, client: *clients.entry(ends.0).or_insert(next), packets: 1, bytes, gap_ns: 0.0 };
        let seen = Seen { flow, last_ns: time_ns };
        flows.extend(open.insert(ends, seen).map(ended));
    }
    flows.extend(open.into_values().map(ended));
    flows.sort_by_key(|flow| (flow.start_ns, flow.client, flow.packets, flow.bytes));
    let Some(first_ns) = flows.first().map(|flow| flow.start_ns) else {
        return Err(TraceError::Empty { path: path.to_owned(), what: format!(" to port {port}") });
    };
    let last_ns = flows.last().map_or(first_ns, |flow| flow.start_ns);
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    if seconds > LONGEST_S {
        return Err(TraceError::Long { path: path.to_owned(), seconds });
    }
    for flow in &mut flows {
        flow.start_ns -= first_ns;
    }
    Ok(flows)
}

fn ended(seen: Seen) -> Flow {
    let lasted_ns = seen.last_ns.saturating_sub(seen.flow.start_ns);
    Flow { gap_ns: lasted_ns as f64 / f64::from(seen.flow.packets - 1).max(1.0), ..seen.flow }
}

/// None of a packet that is not to this port, or of no kind that is read here.
fn ends_of(link: LinkType, data: &[u8], port: u16) -> Option<(Ends, u64)> {
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

    /// Packets: when, in ms, of which client, from and to which port.
    fn captured(packets: &[(u64, u8, u16, u16)]) -> tempfile::NamedTempFile {
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
    fn connections_of_clocks_that_were_mixed_are_refused() {
        let file = captured(&[(0, 1, 5000, 443), (1_700_000_000_000, 2, 5000, 443)]);
        let error = read(file.path(), 443).unwrap_err().to_string();
        assert!(error.contains("start 1700000000 seconds apart"), "{error}");
    }

    #[test]
    fn connections_are_told_apart_by_ends_and_silence() {
        let file = captured(&[
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
