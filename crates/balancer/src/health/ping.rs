//! A ping: an ICMP echo request and its reply (RFC 792, RFC 4443).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    sync::atomic::{AtomicU16, Ordering},
    time::Instant,
};

use nix::sys::socket::{MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, send, socket};

use super::raw;

/// The sequence number of the next ping: concurrent pings have different ones.
static NEXT_SEQUENCE: AtomicU16 = AtomicU16::new(1);

/// Sends an echo request and waits for its reply. Needs CAP_NET_RAW.
pub(super) fn ping(to: IpAddr, deadline: Instant) -> io::Result<()> {
    let (protocol, request, reply) = match to {
        IpAddr::V4(_) => (SockProtocol::Icmp, 8, 0),
        IpAddr::V6(_) => (SockProtocol::IcmpV6, 128, 129),
    };
    let socket = socket(raw::family(to), SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
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
        let icmp = raw::receive(&socket, to.is_ipv4(), &mut answer, deadline)?;
        let is_ours = icmp.len() >= 8 && icmp[0] == reply && icmp[4..8] == packet[4..8];
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
