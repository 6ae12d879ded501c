//! Messages of sock_diag (linux/netlink.h, linux/inet_diag.h), parsed in place, as there may be tens of thousands per
//! second. No length is trusted.

use std::net::IpAddr;

use dwell_engine::{layers::Ends, measure::Endpoint, socket::TcpInfo};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct inet_diag_req_v2`, and of `struct inet_diag_req`, which it replaced.
const REQUEST: usize = 56;
const OLD_REQUEST: usize = 60;
/// Length of `struct inet_diag_msg`.
const SOCKET: usize = 72;
/// Length of `struct inet_diag_sockid`: ports, addresses, interface, cookie.
const ID: usize = 48;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCPDIAG_GETSOCK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
/// NLM_F_ROOT and NLM_F_MATCH.
const NLM_F_DUMP: u16 = 0x300;
const INET_DIAG_INFO: u16 = 2;
/// The name of the congestion control.
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Where a socket's number of dropped datagrams is among its figures of memory (SK_MEMINFO_DROPS).
const DROPS: usize = 32;

/// The ESTABLISHED state, as a bit.
pub(super) const ESTABLISHED: u32 = 1 << 1;
/// The states from the handshake until both ends have closed, as bits: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT,
/// LAST_ACK, CLOSING. This excludes sockets that listen, and those that only wait for late packets.
pub(super) const CONNECTED: u32 = ESTABLISHED | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// The SYN_SENT state, as a bit.
pub(super) const OPENING: u32 = 1 << 2;
/// The LISTEN state, as a bit.
pub(super) const LISTEN: u32 = 1 << 10;

/// An address family of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Family {
    V4 = 2,
    V6 = 10,
}

/// A protocol whose sockets are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Protocol {
    Tcp = 6,
    Udp = 17,
}

/// The identity of a socket, which the kernel reports with it: addresses, ports, interface and cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketId {
    family: Family,
    id: [u8; ID],
}

impl SocketId {
    pub(super) fn cookie(&self) -> u64 {
        let half = |at| u64::from(u32_at(&self.id, at).unwrap_or_default());
        half(40) | half(44) << 32
    }

    pub(super) fn ends(&self) -> Ends {
        let port = |at: usize| u16::from_be_bytes([self.id[at], self.id[at + 1]]);
        let address = |at: usize| match self.family {
            Family::V4 => {
                let bytes = [0, 1, 2, 3].map(|byte| self.id[at + byte]);
                IpAddr::from(bytes)
            }
            Family::V6 => {
                let mut bytes = [0u8; 16];
                bytes.copy_from_slice(&self.id[at..at + 16]);
                IpAddr::from(bytes).to_canonical()
            }
        };
        let end = |address, port| Endpoint { address, port };
        Ends { src: end(address(4), port(0)), dst: end(address(20), port(2)) }
    }
}

/// What is asked of a connection.
const FIGURES: [u16; 2] = [INET_DIAG_INFO, INET_DIAG_CONG];

/// Appends a request for all sockets of TCP in one of these states; with `info`, for their TCP_INFO too. It is of the older
/// kind, which asks for IPv4 and IPv6 at once: the kernel goes through its table of connections, which has hundreds of
/// thousands of rows however few there are, once and not for each family.
pub(super) fn dump_request(states: u32, info: bool, out: &mut Vec<u8>) {
    header(TCPDIAG_GETSOCK, NLM_F_DUMP, 0, OLD_REQUEST, out);
    let wanted = if info { &FIGURES[..] } else { &[] };
    // The family is not looked at, and prefixes are of no address.
    out.extend_from_slice(&[Family::V4 as u8, 0, 0, extensions(wanted)]);
    out.extend_from_slice(&[0; ID]);
    out.extend_from_slice(&states.to_ne_bytes());
    // Tables, of which there is one.
    out.extend_from_slice(&0u32.to_ne_bytes());
}

/// Appends a request for all sockets of UDP of a family, with what they dropped.
pub(super) fn datagram_request(family: Family, out: &mut Vec<u8>) {
    request(0, NLM_F_DUMP, (Protocol::Udp, family), &[0; ID], u32::MAX, &[INET_DIAG_SKMEMINFO], out);
}

/// Appends a request for one socket and its TCP_INFO. The answer carries `number`.
pub(super) fn socket_request(number: u32, key: &SocketId, out: &mut Vec<u8>) {
    request(number, 0, (Protocol::Tcp, key.family), &key.id, u32::MAX, &FIGURES, out);
}

/// `wanted` are the extensions to report.
fn request(
    number: u32,
    flags: u16,
    (protocol, family): (Protocol, Family),
    id: &[u8; ID],
    states: u32,
    wanted: &[u16],
    out: &mut Vec<u8>,
) {
    header(SOCK_DIAG_BY_FAMILY, flags, number, REQUEST, out);
    out.extend_from_slice(&[family as u8, protocol as u8, extensions(wanted), 0]);
    out.extend_from_slice(&states.to_ne_bytes());
    out.extend_from_slice(id);
}

/// Appends the header of a request of this length.
fn header(kind: u16, flags: u16, number: u32, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&((HEADER + length) as u32).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    out.extend_from_slice(&number.to_ne_bytes());
    out.extend_from_slice(&0u32.to_ne_bytes());
}

/// The bits that ask for extensions.
fn extensions(wanted: &[u16]) -> u8 {
    wanted.iter().fold(0, |bits, wanted| bits | 1 << (wanted - 1))
}

/// The kernel's report of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketReport {
    pub key: SocketId,
    /// Inode of its file; 0 if no process has it, because it is not accepted yet or already closed.
    pub inode: u32,
    /// Readable bytes (SIOCINQ).
    pub readable: u32,
    /// Unacknowledged bytes (SIOCOUTQ).
    pub unacknowledged: u32,
    /// TCP_INFO. `None` if it was not requested, or if the socket only waits for late packets.
    pub info: Option<TcpInfo>,
    /// Datagrams that found the receive buffer full, modulo 2^32. `None` if it was not requested.
    pub drops: Option<u32>,
}

/// A message from the kernel.
#[expect(clippy::large_enum_variant, reason = "it passes by and is not kept")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Socket(SocketReport),
    /// The request of this number failed with this error number.
    Refused(u32, i32),
    /// The end of a dump, with an error number if it is incomplete.
    Done(i32),
}

/// Parses the messages in a received buffer, up to the first truncated one.
pub(super) fn answers(bytes: &[u8]) -> impl Iterator<Item = Answer> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let length = u32_at(rest, 0)? as usize;
            let message = rest.get(..length).filter(|_| length >= HEADER)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Some(answer) = answer(message) {
                return Some(answer);
            }
        }
    })
}

fn answer(message: &[u8]) -> Option<Answer> {
    let body = message.get(HEADER..)?;
    match u16_at(message, 4)? {
        SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK => socket_report(body).map(Answer::Socket),
        NLMSG_ERROR => Some(Answer::Refused(u32_at(message, 8)?, errno(body)?)),
        NLMSG_DONE => Some(Answer::Done(errno(body).unwrap_or(0))),
        _ => None,
    }
}

fn socket_report(body: &[u8]) -> Option<SocketReport> {
    let (fixed, attributes) = body.split_at_checked(SOCKET)?;
    Some(SocketReport {
        key: SocketId {
            family: match fixed[0] {
                2 => Family::V4,
                10 => Family::V6,
                _ => return None,
            },
            id: fixed.get(4..4 + ID)?.try_into().ok()?,
        },
        readable: u32_at(fixed, 56)?,
        unacknowledged: u32_at(fixed, 60)?,
        inode: u32_at(fixed, 68)?,
        info: attribute(attributes, INET_DIAG_INFO)
            .and_then(TcpInfo::parse)
            .map(|info| TcpInfo { uses_bbr: attribute(attributes, INET_DIAG_CONG) == Some(b"bbr\0"), ..info }),
        drops: attribute(attributes, INET_DIAG_SKMEMINFO).and_then(|memory| u32_at(memory, DROPS)),
    })
}

/// Returns the value of the first attribute of this type.
fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let value = rest.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Returns the error number, which the kernel sends negated.
fn errno(body: &[u8]) -> Option<i32> {
    let negative = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    Some(negative.saturating_neg())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as a kernel writes it, with an attribute before TCP_INFO.
    fn message(family: u8, info: &[u8]) -> Vec<u8> {
        let mut body = vec![family, 1, 0, 0];
        body.extend([0xad, 0x2f, 0x01, 0xbb]);
        let mut addresses = [0; 32];
        match family {
            2 => {
                addresses[..4].copy_from_slice(&[192, 0, 2, 1]);
                addresses[16..20].copy_from_slice(&[198, 51, 100, 7]);
            }
            _ => {
                addresses[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
                addresses[16..20].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
            }
        }
        body.extend(addresses);
        body.extend(3u32.to_ne_bytes());
        body.extend(7u32.to_ne_bytes());
        body.extend(1u32.to_ne_bytes());
        for field in [0u32, 11, 22, 1000, 4242] {
            body.extend(field.to_ne_bytes());
        }
        for (kind, value) in [(8u16, &b"\0"[..]), (INET_DIAG_INFO, info), (INET_DIAG_CONG, b"bbr\0")] {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        wrapped(SOCK_DIAG_BY_FAMILY, 5, &body)
    }

    fn wrapped(kind: u16, number: u32, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(2u16.to_ne_bytes());
        message.extend(number.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        message
    }

    fn info() -> [u8; 232] {
        let mut info = [0; 232];
        info[0] = 1;
        info[80..84].copy_from_slice(&10u32.to_ne_bytes());
        info
    }

    #[test]
    fn a_socket_is_read_with_its_queues_and_what_tcp_knows() {
        let bytes = message(2, &info());
        let Some(Answer::Socket(found)) = answers(&bytes).next() else {
            panic!("no socket");
        };
        assert_eq!((found.readable, found.unacknowledged, found.inode), (11, 22, 4242));
        assert_eq!(found.key.cookie(), 1 << 32 | 7);
        assert_eq!((found.info.unwrap().cwnd, found.info.unwrap().uses_bbr), (10, true));
        let ends = found.key.ends();
        assert_eq!(format!("{} {}", ends.src, ends.dst), "192.0.2.1:44335 198.51.100.7:443");
    }

    #[test]
    fn ipv4_within_ipv6_is_called_ipv4() {
        let bytes = message(10, &info());
        let Some(Answer::Socket(found)) = answers(&bytes).next() else {
            panic!("no socket");
        };
        let ends = found.key.ends();
        assert_eq!(ends.src.address, IpAddr::from([192, 0, 2, 1]));
        assert_eq!(ends.dst.to_string(), "[2001:db8::]:443");
    }

    #[test]
    fn a_socket_is_asked_for_by_what_was_said_of_it() {
        let bytes = message(2, &info());
        let Some(Answer::Socket(found)) = answers(&bytes).next() else {
            panic!("no socket");
        };
        let mut request = Vec::new();
        socket_request(17, &found.key, &mut request);
        assert_eq!(request.len(), 72);
        assert_eq!(request[8..12], 17u32.to_ne_bytes());
        assert_eq!(request[16..20], [2, 6, 2 | 8, 0]);
        assert_eq!(request[24..72], bytes[20..68]);
    }

    #[test]
    fn refusals_and_the_end_have_their_errors() {
        let mut bytes = wrapped(NLMSG_ERROR, 9, &(-2i32).to_ne_bytes());
        bytes.extend(wrapped(NLMSG_DONE, 0, &0i32.to_ne_bytes()));
        let all: Vec<_> = answers(&bytes).collect();
        assert_eq!(all, [Answer::Refused(9, 2), Answer::Done(0)]);
    }

    #[test]
    fn what_is_cut_off_or_has_wrong_lengths_is_left_out() {
        let whole = message(2, &info());
        for length in 0..whole.len() {
            assert_eq!(answers(&whole[..length]).count(), 0, "{length}");
        }
        for at in [0, 16 + 72] {
            for wrong in [0u16, 1, 3, 15, u16::MAX] {
                let mut bytes = whole.clone();
                bytes[at..at + 2].copy_from_slice(&wrong.to_ne_bytes());
                let socket = answers(&bytes).next();
                assert!(at > 0 || socket.is_none(), "a message of {wrong} bytes was taken");
                if let Some(Answer::Socket(found)) = socket {
                    assert_eq!(found.info, None, "past an attribute of {wrong} bytes");
                }
            }
        }
    }
}
