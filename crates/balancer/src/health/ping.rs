//! An echo request and its reply (RFC 792, RFC 4443).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    sync::atomic::{AtomicU16, Ordering},
    time::Instant,
};

use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, recv, send, setsockopt,
        socket, sockopt::ReceiveTimeout,
    },
    time::TimeVal,
};

use super::ask::left;

/// Two pings at once are not of one number.
static NEXT: AtomicU16 = AtomicU16::new(1);

/// Asks, and waits for the reply. Needs CAP_NET_RAW.
pub(super) fn ping(to: IpAddr, deadline: Instant) -> io::Result<()> {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8, 0),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128, 129),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    // Only what comes from there is received.
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))?;
    let (id, sequence) = (std::process::id() as u16, NEXT.fetch_add(1, Ordering::Relaxed));
    let mut packet = [request, 0, 0, 0, 0, 0, 0, 0, b'd', b'w', b'e', b'l', b'l', 0, 0, 0];
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    if to.is_ipv4() {
        // The kernel fills in that of ICMPv6 itself.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    send(socket.as_raw_fd(), &packet, MsgFlags::empty())?;
    let mut answer = [0; 256];
    loop {
        let wait = left(deadline)?;
        let wait = TimeVal::new(wait.as_secs() as i64, i64::from(wait.subsec_micros().max(1)));
        setsockopt(&socket, ReceiveTimeout, &wait)?;
        let count = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let bytes = &answer[..count];
        // Raw sockets of IPv4 see the header too.
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

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}
