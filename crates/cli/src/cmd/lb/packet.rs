//! `dwell lb where`.

use std::{
    fmt::Write,
    iter,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::anyhow;
use dwell_balancer::api::{
    Client, FRAME_BYTES, MAX_REQUEST_BYTES, PacketRoute, Request, RouteObject, from_hex, to_hex,
};
use dwell_capture::Reader;
use etherparse::PacketBuilder;

use super::{SocketArgs, object, print};
use crate::{
    args::Format,
    exit::{Exit, Failure},
};

/// Show where a packet would be sent, and why
///
/// Runs the program in the kernel over the packet as if it had just arrived, but sends nothing and opens no
/// connection. A packet of a known connection goes where the connection is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb where 'tcp:198.51.100.7:40000>192.0.2.10:443'       its first packet (SYN)
  dwell lb where 'udp:[2001:db8::7]:5000>[2001:db8::10]:53'
  dwell lb where --read clients.pcap                            each packet of a capture
  dwell lb where --frame 0200000000010200000000020800450000...  an Ethernet frame")]
pub struct Args {
    #[command(flatten)]
    socket: SocketArgs,

    /// First packet of a connection: tcp:SOURCE:PORT>DESTINATION:PORT, or udp:
    #[arg(required_unless_present_any = ["read", "frame"], conflicts_with_all = ["read", "frame"])]
    packet: Option<Packet>,

    /// Capture to read instead, of Ethernet: pcap or pcapng, also gzipped
    #[arg(short, long, value_name = "FILE", conflicts_with = "frame")]
    read: Option<PathBuf>,

    /// Ethernet frame in hexadecimal digits
    #[arg(long, value_name = "HEX")]
    frame: Option<String>,

    /// Output format: text, or jsonl, which has the frame as it would be sent
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The greatest number of frames in a request.
const MAX_FRAMES: usize = 64;
/// The bytes of a request that are left for frames.
const MAX_FRAMES_BYTES: u64 = MAX_REQUEST_BYTES - 256;
/// The time to live of the packet.
const HOP_LIMIT: u8 = 64;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    for batch in batches(frames(args)?) {
        let batch = batch?;
        // A connection ends if it asks nothing for long, as while a pipe has no packets.
        let mut client = Client::connect(&args.socket.path)?;
        let frames = batch.iter().map(|frame| to_hex(frame)).collect();
        let routes: Vec<PacketRoute> = client.request(&Request::Where { frames })?;
        let mut text = String::new();
        for (frame, route) in batch.iter().zip(routes) {
            match args.format {
                Format::Jsonl => {
                    let time = dwell_records::now();
                    text.push_str(&object(Some(&time), &RouteObject::new(frame, route)));
                }
                Format::Text => {
                    let _ = writeln!(text, "{}", describe(&route));
                }
            }
        }
        print(&text)?;
    }
    Ok(Exit::Done)
}

/// Splits frames into batches that fit into one request each. An error comes after the frames before it.
fn batches<E>(frames: impl Iterator<Item = Result<Vec<u8>, E>>) -> impl Iterator<Item = Result<Vec<Vec<u8>>, E>> {
    // Two digits per byte, quotes and a comma.
    let json_bytes = |frame: &Vec<u8>| 2 * frame.len() as u64 + 3;
    let mut frames = frames.peekable();
    iter::from_fn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let has_room = |frame: &Vec<u8>| batch.len() < MAX_FRAMES && bytes + json_bytes(frame) <= MAX_FRAMES_BYTES;
            match frames.next_if(|next| batch.is_empty() || next.as_ref().is_ok_and(has_room)) {
                Some(Ok(frame)) => {
                    bytes += json_bytes(&frame);
                    batch.push(frame);
                }
                Some(Err(error)) => return Some(Err(error)),
                None => return (!batch.is_empty()).then_some(Ok(batch)),
            }
        }
    })
}

fn describe(route: &PacketRoute) -> String {
    let vip = route.vip.as_ref().map(|vip| format!("VIP '{vip}': ")).unwrap_or_default();
    let to = match (&route.backend, route.address) {
        (Some(backend), Some(address)) => format!(" to backend '{backend}' ({address})"),
        _ => String::new(),
    };
    format!("{vip}{}{to}: {}", route.verdict, route.reason)
}

type Frames = Box<dyn Iterator<Item = Result<Vec<u8>, Failure>>>;

fn frames(args: &Args) -> Result<Frames, Failure> {
    if let Some(path) = &args.read {
        return Ok(Box::new(captured(path)?));
    }
    let of_digits = |frame: &String| {
        from_hex(frame).ok_or_else(|| Failure::usage(anyhow!("--frame takes hexadecimal digits, two per byte")))
    };
    let frame = args.frame.as_ref().map(of_digits).transpose()?;
    Ok(Box::new(frame.or(args.packet.map(|packet| packet.frame())).into_iter().map(Ok)))
}

/// Reads a capture of Ethernet. Bytes that it has cut off are zero.
fn captured(path: &Path) -> Result<impl Iterator<Item = Result<Vec<u8>, Failure>> + use<>, Failure> {
    const ETHERNET: u32 = 1;
    let (mut reader, name) = (Reader::open(path)?, path.display().to_string());
    Ok(iter::from_fn(move || {
        let packet = match reader.next_packet() {
            Ok(packet) => packet?,
            Err(error) => return Some(Err(error.into())),
        };
        if packet.link.0 != ETHERNET {
            let error = anyhow!(
                "'{name}' has packets of another link type: only Ethernet frames can be routed, so capture at the balancer's device"
            );
            return Some(Err(Failure::usage(error)));
        }
        let mut frame = packet.data.to_vec();
        frame.resize((packet.wire_len as usize).clamp(*FRAME_BYTES.start(), *FRAME_BYTES.end()), 0);
        Some(Ok(frame))
    }))
}

/// The first packet of a connection, as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packet {
    is_tcp: bool,
    from: SocketAddr,
    to: SocketAddr,
}

impl FromStr for Packet {
    type Err = String;

    fn from_str(text: &str) -> Result<Packet, String> {
        let wanted = "write tcp:SOURCE:PORT>DESTINATION:PORT, as in \
                      tcp:198.51.100.7:40000>192.0.2.10:443 or udp:[2001:db8::7]:5000>[2001:db8::10]:53";
        let (protocol, ends) = text.split_once(':').ok_or(wanted)?;
        let (from, to) = ends.split_once('>').ok_or(wanted)?;
        let packet = Packet {
            is_tcp: match protocol {
                "tcp" => true,
                "udp" => false,
                _ => return Err(wanted.into()),
            },
            from: from.trim().parse().map_err(|_| wanted)?,
            to: to.trim().parse().map_err(|_| wanted)?,
        };
        match packet.from.is_ipv4() == packet.to.is_ipv4() {
            true => Ok(packet),
            false => Err("source and destination must both be IPv4, or both IPv6".into()),
        }
    }
}

impl Packet {
    /// Builds the packet: a SYN, or an empty datagram.
    fn frame(&self) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let ip = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), HOP_LIMIT),
            (from, to) => ethernet.ipv6(v6_octets(from), v6_octets(to), HOP_LIMIT),
        };
        let (from, to) = (self.from.port(), self.to.port());
        let mut frame = Vec::new();
        let written = match self.is_tcp {
            true => ip.tcp(from, to, 1, 0xffff).syn().write(&mut frame, &[]),
            false => ip.udp(from, to).write(&mut frame, &[]),
        };
        written.expect("a packet without payload fits its length fields");
        frame
    }
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, TransportSlice};

    use super::*;

    #[test]
    fn a_packet_in_words_becomes_a_complete_packet() {
        for (text, bytes) in [
            ("tcp:198.51.100.7:40000>192.0.2.10:443", 54),
            ("udp:[2001:db8::7]:5000>[2001:db8::10]:53", 62),
            ("udp:198.51.100.7:1 > 192.0.2.10:2", 42),
        ] {
            let packet: Packet = text.parse().expect(text);
            let frame = packet.frame();
            assert_eq!(frame.len(), bytes, "{text}");
            let parsed = etherparse::SlicedPacket::from_ethernet(&frame).expect(text);
            let (net, transport) = (parsed.net.expect(text), parsed.transport.expect(text));
            let (ports, is_right) = match (&net, &transport) {
                (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
                    let header = ip.header().to_header();
                    assert_eq!(header.calc_header_checksum(), header.header_checksum);
                    assert!(tcp.syn() && !tcp.ack());
                    let sum = tcp.to_header().calc_checksum_ipv4(&header, &[]);
                    let ports = (tcp.source_port(), tcp.destination_port());
                    (ports, sum == Ok(tcp.checksum()))
                }
                (net, TransportSlice::Udp(udp)) => {
                    let header = udp.to_header();
                    let sum = match net {
                        NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), &[]),
                        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), &[]),
                        other => panic!("{text}: {other:?}"),
                    };
                    let ports = (udp.source_port(), udp.destination_port());
                    (ports, sum == Ok(udp.checksum()))
                }
                other => panic!("{text}: {other:?}"),
            };
            assert!(is_right, "{text}");
            assert_eq!(ports, (packet.from.port(), packet.to.port()), "{text}");
        }
    }

    #[test]
    fn batches_fit_a_request_and_leave_nothing_out() {
        for (frames, bytes, wanted) in [
            (0, 60, vec![]),
            (64, 60, vec![64]),
            (65, 60, vec![64, 1]),
            (64, *FRAME_BYTES.end(), vec![37, 27]),
            (2, 200_000, vec![1, 1]),
        ] {
            let frames: Vec<Vec<u8>> = (0..frames).map(|at| vec![at; bytes]).collect();
            let batches: Vec<_> = batches(frames.iter().cloned().map(Ok::<_, Failure>)).map(Result::unwrap).collect();
            let counts: Vec<_> = batches.iter().map(|batch| batch.len()).collect();
            assert_eq!(counts, wanted, "{bytes} bytes");
            assert_eq!(batches.concat(), frames);
            if bytes > *FRAME_BYTES.end() {
                continue;
            }
            for batch in batches {
                let frames = batch.iter().map(|frame| to_hex(frame)).collect();
                let line = serde_json::to_string(&Request::Where { frames }).unwrap();
                assert!((line.len() as u64) < MAX_REQUEST_BYTES, "{}", line.len());
            }
        }
    }

    #[test]
    fn an_invalid_packet_is_refused_with_the_syntax() {
        for text in ["", "tcp:1.2.3.4:5", "icmp:1.2.3.4:5>1.2.3.4:6", "tcp:1.2.3.4>1.2.3.4:6"] {
            let error = text.parse::<Packet>().expect_err(text);
            assert!(error.starts_with("write tcp:SOURCE:PORT>"), "{error}");
        }
        let mixed = "tcp:1.2.3.4:5>[2001:db8::1]:6".parse::<Packet>();
        assert_eq!(mixed, Err("source and destination must both be IPv4, or both IPv6".into()));
    }
}
