//! `dwell lb where`.

use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::anyhow;
use dwell_balancer::api::{Client, MOST_REQUEST_BYTES, Request, Went, from_hex, to_hex};
use dwell_capture::Reader;

use super::{To, print};
use crate::exit::{Exit, Failure};

/// Tell where a packet would go, and why
///
/// The program in the kernel tells, run over the packet as if it came in now; nothing is sent, and
/// no connection is opened. A packet of a connection that is known goes where that is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb where 'tcp:198.51.100.7:40000>192.0.2.10:443'       its first packet (SYN)
  dwell lb where 'udp:[2001:db8::7]:5000>[2001:db8::10]:53'
  dwell lb where --read clients.pcap                            each packet of a capture
  dwell lb where --frame 0200000000010200000000020800450000...  an Ethernet frame")]
pub struct Args {
    #[command(flatten)]
    to: To,

    /// tcp: or udp:, and SOURCE:PORT>DESTINATION:PORT
    #[arg(required_unless_present_any = ["read", "frame"], conflicts_with_all = ["read", "frame"])]
    packet: Option<Packet>,

    /// The packets of a capture of Ethernet: pcap or pcapng, also gzipped
    #[arg(short, long, value_name = "FILE", conflicts_with = "frame")]
    read: Option<PathBuf>,

    /// A frame in hex, from its Ethernet header on
    #[arg(long, value_name = "HEX")]
    frame: Option<String>,

    /// As JSON, with the frame as it would go out
    #[arg(long)]
    json: bool,
}

/// Frames that are asked about at once.
const AT_ONCE: usize = 64;
/// What is left of a request for frames, beside its other words.
const MOST_DIGITS: u64 = MOST_REQUEST_BYTES - 256;
/// The kernel runs a program over no more.
const MOST_BYTES: usize = 3_500;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let frames = frames(args)?;
    let mut client = Client::connect(&args.to.socket)?;
    for some in requests(&frames) {
        let frames = some.iter().map(|frame| to_hex(frame)).collect();
        let went: Vec<Went> = client.ask(&Request::Where { frames })?;
        let mut text = String::new();
        for went in &went {
            let line = match args.json {
                true => serde_json::to_string(went).map_err(Failure::usage)?,
                false => words(went),
            };
            let _ = writeln!(text, "{line}");
        }
        print(&text)?;
    }
    Ok(Exit::Done)
}

/// Frames in their order, as many together as one request may carry.
fn requests(frames: &[Vec<u8>]) -> Vec<&[Vec<u8>]> {
    // Two digits a byte, in quotes, with a comma.
    let written = |frame: &Vec<u8>| 2 * frame.len() as u64 + 3;
    let (mut requests, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, frame) in frames.iter().enumerate() {
        let is_full = at - begin == AT_ONCE || bytes + written(frame) > MOST_DIGITS;
        if is_full && at > begin {
            requests.push(&frames[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += written(frame);
    }
    if begin < frames.len() {
        requests.push(&frames[begin..]);
    }
    requests
}

fn words(went: &Went) -> String {
    let vip = went.vip.as_ref().map(|vip| format!("VIP '{vip}': ")).unwrap_or_default();
    let to = match (&went.backend, went.address) {
        (Some(backend), Some(address)) => format!(" to backend '{backend}' ({address})"),
        _ => String::new(),
    };
    format!("{vip}{}{to}: {}", went.verdict, went.why)
}

fn frames(args: &Args) -> Result<Vec<Vec<u8>>, Failure> {
    if let Some(packet) = &args.packet {
        return Ok(vec![packet.frame()]);
    }
    match (&args.read, &args.frame) {
        (Some(path), _) => captured(path),
        (None, Some(frame)) => from_hex(frame)
            .map(|frame| vec![frame])
            .ok_or_else(|| Failure::usage(anyhow!("--frame takes hex digits, two a byte"))),
        (None, None) => Ok(Vec::new()),
    }
}

fn captured(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    const ETHERNET: u32 = 1;
    let mut reader = Reader::open(path)?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        if packet.link.0 != ETHERNET {
            return Err(Failure::usage(anyhow!(
                "'{}' has packets that are not of Ethernet: only those can be asked about",
                path.display()
            )));
        }
        let mut frame = packet.data.to_vec();
        // What was cut off is zeros.
        frame.resize((packet.wire_len as usize).clamp(14, MOST_BYTES), 0);
        frames.push(frame);
    }
    Ok(frames)
}

/// A packet in words.
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
            false => Err("both ends have addresses of one kind".into()),
        }
    }
}

impl Packet {
    /// Its first packet: a SYN, or an empty datagram.
    fn frame(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let protocol = if self.is_tcp { 6 } else { 17 };
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let length = (20 + transport.len()) as u16;
                let mut header = vec![0x45, 0];
                header.extend(length.to_be_bytes());
                header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(header);
            }
            (from, to) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((transport.len() as u16).to_be_bytes());
                frame.extend([protocol, 64]);
                frame.extend(octets(from));
                frame.extend(octets(to));
            }
        }
        frame.extend(transport);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        match self.is_tcp {
            // Sequence, acknowledgement, header of 20 bytes, SYN, window.
            true => bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]),
            false => bytes.extend([0, 8, 0, 0]),
        }
        let mut pseudo = octets(self.from.ip());
        pseudo.extend(octets(self.to.ip()));
        pseudo.extend([0, if self.is_tcp { 6 } else { 17 }]);
        pseudo.extend((bytes.len() as u16).to_be_bytes());
        pseudo.extend(&bytes);
        let at = if self.is_tcp { 16 } else { 6 };
        let sum = match checksum(&pseudo) {
            // 0 means none in UDP.
            0 if !self.is_tcp => 0xffff,
            sum => sum,
        };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, TransportSlice};

    use super::*;

    #[test]
    fn a_packet_in_words_is_a_whole_packet() {
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
    fn what_is_asked_fits_a_request_and_nothing_is_left_out() {
        for (frames, bytes, wanted) in [
            (0, 60, vec![]),
            (64, 60, vec![64]),
            (65, 60, vec![64, 1]),
            (64, MOST_BYTES, vec![37, 27]),
            (2, 200_000, vec![1, 1]),
        ] {
            let frames: Vec<Vec<u8>> = (0..frames).map(|at| vec![at; bytes]).collect();
            let requests = requests(&frames);
            let counts: Vec<_> = requests.iter().map(|some| some.len()).collect();
            assert_eq!(counts, wanted, "{bytes} bytes");
            assert_eq!(requests.concat(), frames);
            if bytes > MOST_BYTES {
                continue;
            }
            for some in requests {
                let frames = some.iter().map(|frame| to_hex(frame)).collect();
                let line = serde_json::to_string(&Request::Where { frames }).unwrap();
                assert!((line.len() as u64) < MOST_REQUEST_BYTES, "{}", line.len());
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused_with_what_to_write() {
        for text in ["", "tcp:1.2.3.4:5", "icmp:1.2.3.4:5>1.2.3.4:6", "tcp:1.2.3.4>1.2.3.4:6"] {
            let error = text.parse::<Packet>().expect_err(text);
            assert!(error.starts_with("write tcp:SOURCE:PORT>"), "{error}");
        }
        let mixed = "tcp:1.2.3.4:5>[2001:db8::1]:6".parse::<Packet>();
        assert_eq!(mixed, Err("both ends have addresses of one kind".into()));
    }
}
