//! A ping: an ICMP echo request and its reply (RFC 792, RFC 4443).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    sync::atomic::{AtomicU16, Ordering},
    time::Instant,
};

use dwell_socket::deadline::time_left;
use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, recv, send, setsockopt,
        socket, sockopt::ReceiveTimeout,
    },
    time::TimeVal,
};

/// The sequence number of the next ping: concurrent pings have different ones.
static NEXT_SEQUENCE: AtomicU16 = AtomicU16::new(1);

/// Sends an echo request and waits for its reply. Needs CAP_NET_RAW.
pub(super) fn ping(to: IpAddr, deadline: Instant) -> io::Result<()> {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8, 0),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128, 129),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    // A connected socket receives packets of that address only.
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))?;
    let (id, sequence) = (std::process::id() as u16, NEXT_SEQUENCE.fetch_add(1, Ordering::Relaxed));
    let mut packet = [request, 0, 0, 0, 0, 0, 0, 0, b'd', b'w', b'e', b'l', b'l', 0, 0, 0];
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    if to.is_ipv4() {
        // The kernel fills in the checksum of ICMPv6 itself.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    send(socket.as_raw_fd(), &packet, MsgFlags::empty())?;
    let mut answer = [0; 256];
    loop {
        let wait = time_left(deadline)?;
        let wait = TimeVal::new(wait.as_secs() as i64, i64::from(wait.subsec_micros().max(1)));
        setsockopt(&socket, ReceiveTimeout, &wait)?;
        let count = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let bytes = &answer[..count];
        // Raw IPv4 sockets receive the IP header too.
        let skip = match to {
            IpAddr::V4(_) => usize::from(bytes.first().unwrap_or(&0) & 0xf) * 4,
            IpAddr::V6(_) => 0,
        };
        let is_ours = bytes.get(skip..skip + 8).is_some_and(|icmp| icmp[0] == reply && icmp[4..8] == packet[4..8]);
        if is_ours {
            return Ok(());
        }
    }
}

/// Computes the Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}
