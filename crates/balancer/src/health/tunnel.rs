//! A TCP SYN probe of the VIP through the tunnel to one backend, as packets of clients go. Its answer shows that the backend
//! takes the outer header off, has the VIP, listens there, and that its answers come back.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    time::Instant,
};

use dwell_probes::balancer::Forward;
use etherparse::{IpHeaders, IpNumber, PacketBuilder, PacketBuilderStep, TcpHeaderSlice};
use nix::sys::socket::{
    MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, getsockname, sendto, socket,
};

use super::raw;
use crate::config::Tunnel;

/// A TCP SYN to a VIP, which goes through the tunnel to one of its backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynProbe {
    /// The VIP's address, and the port that clients connect to.
    pub vip: SocketAddr,
    /// An encapsulation.
    pub forward: Forward,
    /// The senders of outer headers.
    pub tunnel: Tunnel,
}

/// Hop limit of both headers.
const HOPS: u8 = 64;
const WINDOW: u16 = 1024;
/// Source port of the outer UDP header, from the range that packets of clients have.
const GUE_SOURCE_PORT: u16 = 0xc000;

/// Sends a SYN, waits for its answer, and takes it back by an RST. Needs CAP_NET_RAW. True if the backend accepts, and
/// false if it refuses.
///
/// # Errors
///
/// If nothing comes before the deadline, or the system reports an error.
pub(super) fn syn_probe(probe: &SynProbe, backend: IpAddr, deadline: Instant) -> io::Result<bool> {
    let local = SocketAddr::new(local_address(probe.vip.ip(), backend)?, 0);
    // A port that no other socket of this host has meanwhile.
    let reserved = socket(raw::family(local.ip()), SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(reserved.as_raw_fd(), &SockaddrStorage::from(local))?;
    let local = SocketAddr::new(local.ip(), port_of(&reserved)?);
    let answers = socket(raw::family(local.ip()), SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp)?;
    bind(answers.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(local.ip(), 0)))?;
    // Nobody can answer who has not seen it, so that where answers come from does not matter.
    let sequence = RandomState::new().hash_one(local) as u32;
    send(probe, backend, local, Segment { sequence, is_syn: true })?;
    let mut buffer = [0; 256];
    loop {
        let bytes = raw::receive(&answers, local.is_ipv4(), &mut buffer, deadline)?;
        let Ok(tcp) = TcpHeaderSlice::from_slice(bytes) else { continue };
        let is_ours = (tcp.source_port(), tcp.destination_port()) == (probe.vip.port(), local.port())
            && tcp.ack()
            && tcp.acknowledgment_number() == sequence.wrapping_add(1);
        if is_ours && tcp.rst() {
            return Ok(false);
        }
        if is_ours && tcp.syn() {
            send(probe, backend, local, Segment { sequence: sequence.wrapping_add(1), is_syn: false })?;
            return Ok(true);
        }
    }
}

/// What is sent: a SYN or an RST.
#[derive(Clone, Copy)]
struct Segment {
    sequence: u32,
    is_syn: bool,
}

fn send(probe: &SynProbe, backend: IpAddr, local: SocketAddr, segment: Segment) -> io::Result<()> {
    let packet = outer(probe, backend, &inner(probe.vip, local, segment)?)?;
    // The kernel adds no header to what a socket of this protocol sends.
    let socket = socket(raw::family(backend), SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    sendto(socket.as_raw_fd(), &packet, &SockaddrStorage::from(SocketAddr::new(backend, 0)), MsgFlags::empty())?;
    Ok(())
}

fn inner(vip: SocketAddr, local: SocketAddr, segment: Segment) -> io::Result<Vec<u8>> {
    let tcp = ip(local.ip(), vip.ip())?.tcp(local.port(), vip.port(), segment.sequence, WINDOW);
    let tcp = if segment.is_syn { tcp.syn() } else { tcp.rst() };
    let mut packet = Vec::new();
    tcp.write(&mut packet, &[]).map_err(io::Error::other)?;
    Ok(packet)
}

fn outer(probe: &SynProbe, backend: IpAddr, inner: &[u8]) -> io::Result<Vec<u8>> {
    let source = match backend {
        IpAddr::V4(_) => probe.tunnel.source4.into(),
        IpAddr::V6(_) => probe.tunnel.source6.into(),
    };
    let ip = ip(source, backend)?;
    let mut packet = Vec::new();
    let written = match probe.forward {
        // Variant 1 of GUE has no header of its own.
        Forward::Gue(port) => ip.udp(GUE_SOURCE_PORT, port).write(&mut packet, inner),
        Forward::Ipip | Forward::L2 => {
            let is_v4 = inner.first().is_some_and(|first| first >> 4 == 4);
            ip.write(&mut packet, if is_v4 { IpNumber::IPV4 } else { IpNumber::IPV6 }, inner)
        }
    };
    written.map_err(io::Error::other)?;
    Ok(packet)
}

fn ip(from: IpAddr, to: IpAddr) -> io::Result<PacketBuilderStep<IpHeaders>> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok(PacketBuilder::ipv4(from.octets(), to.octets(), HOPS)),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(PacketBuilder::ipv6(from.octets(), to.octets(), HOPS)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Returns the address of this host that answers come to: the one from which it reaches the backend, or, if VIP and backend
/// are of different versions of IP, the VIP.
fn local_address(vip: IpAddr, backend: IpAddr) -> io::Result<IpAddr> {
    let to = if vip.is_ipv4() == backend.is_ipv4() { backend } else { vip };
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((to, 9))?;
    Ok(socket.local_addr()?.ip())
}

fn port_of(socket: &OwnedFd) -> io::Result<u16> {
    let name: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let v4 = name.as_sockaddr_in().map(|name| name.port());
    v4.or_else(|| name.as_sockaddr_in6().map(|name| name.port())).ok_or_else(|| io::ErrorKind::Unsupported.into())
}
