//! UDP sockets whose packets have the kernel's time of arrival.
//!
//! The kernel stamps with CLOCK_REALTIME; here all is CLOCK_MONOTONIC. Both run
//! at the same rate, so their difference tells one from the other, unless
//! CLOCK_REALTIME is set meanwhile.
#![allow(unsafe_code)]

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use dwell_socket::clock::{monotonic_ns, realtime_ns};
use nix::{
    libc, setsockopt_impl, sockopt_impl,
    sys::{
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, bind,
            recvmsg, sendmsg, setsockopt, socket, sockopt,
        },
        time::TimeSpec,
    },
};

/// As far as the two clocks may seem apart by the time that it takes to read
/// them; more, and one was set.
const STEP_NS: i128 = 100_000;

/// How long the kernel takes to begin with times of arrival.
const SETTLES: Duration = Duration::from_millis(50);

/// linux/udp.h
const UDP_NO_CHECK6_TX: libc::c_int = 101;

sockopt_impl!(
    /// Leaves the checksum of IPv4 packets out.
    NoChecksum,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_NO_CHECK,
    bool
);
sockopt_impl!(
    /// Leaves the checksum of IPv6 packets out.
    NoChecksum6,
    SetOnly,
    libc::SOL_UDP,
    UDP_NO_CHECK6_TX,
    bool
);
sockopt_impl!(
    /// A BPF program that says how much of each packet is kept.
    AttachProgram,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_BPF,
    i32
);

/// A packet, and when it arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub bytes: usize,
    pub from: SocketAddr,
    /// The address that it was sent to, and the interface that it came by; where
    /// the socket was told to say.
    pub to: Option<(IpAddr, u32)>,
    /// The earliest and the latest that it may have arrived, CLOCK_MONOTONIC; none
    /// where CLOCK_REALTIME was set meanwhile.
    pub between_ns: Option<(u64, u64)>,
}

/// A UDP socket with times of arrival.
#[derive(Debug)]
pub(super) struct StampedSocket {
    socket: UdpSocket,
    apart_ns: i128,
}

impl StampedSocket {
    /// One that talks to a peer only, from an address of this host, or from any.
    pub fn connected(from: Option<IpAddr>, peer: SocketAddr) -> io::Result<StampedSocket> {
        let any = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((from.unwrap_or(any), 0))?;
        socket.connect(peer)?;
        StampedSocket::new(socket)
    }

    /// One that all may talk to, over IPv4 and, where there is IPv6, over that.
    pub fn listening(port: u16) -> io::Result<StampedSocket> {
        let socket = match dual_stack(port) {
            Ok(socket) => {
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
                socket
            }
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => return Err(error),
            Err(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?,
        };
        if socket.local_addr()?.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        let stamped = StampedSocket::new(socket)?;
        // The kernel begins to stamp a little later; until then a packet has the time
        // at which it was read, too late for an arrival.
        thread::sleep(SETTLES);
        Ok(stamped)
    }

    fn new(socket: UdpSocket) -> io::Result<StampedSocket> {
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(StampedSocket { socket, apart_ns: apart_ns().0 })
    }

    pub fn inner(&self) -> &UdpSocket {
        &self.socket
    }

    /// Only packets that a program lets pass are kept.
    pub fn filter(&self, program: &impl AsRawFd) -> io::Result<()> {
        Ok(setsockopt(&self.socket, AttachProgram, &program.as_raw_fd())?)
    }

    /// Waits for a packet; none where there was none in time.
    pub fn receive(&mut self, buffer: &mut [u8], patience: Duration) -> io::Result<Option<Arrival>> {
        // 0 would be for ever.
        let patience = patience.max(Duration::from_micros(1));
        self.socket.set_read_timeout(Some(patience))?;
        let mut space = nix::cmsg_space!(TimeSpec, libc::in6_pktinfo, libc::in_pktinfo);
        let mut slices = [IoSliceMut::new(buffer)];
        let message =
            match recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::empty())
            {
                Ok(message) => message,
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let (mut to, mut stamp) = (None, None);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(time) => stamp = Some(time),
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    let address = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    to = Some((address.into(), info.ipi_ifindex as u32));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    to = Some((address.into(), info.ipi6_ifindex));
                }
                _ => {}
            }
        }
        let (bytes, from) = (message.bytes, message.address.and_then(address_of));
        let between_ns = stamp.and_then(|stamp| self.monotonic(stamp));
        Ok(from.map(|from| Arrival { bytes, from, to, between_ns }))
    }

    /// Sends from the address that a packet had come to.
    pub fn reply(&self, bytes: &[u8], arrival: &Arrival) -> io::Result<()> {
        let slices = [IoSlice::new(bytes)];
        let to = SockaddrStorage::from(arrival.from);
        let (v4, v6);
        let control = match arrival.to {
            Some((IpAddr::V4(address), _)) => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                vec![ControlMessage::Ipv4PacketInfo(&v4)]
            }
            Some((IpAddr::V6(address), interface)) => {
                v6 = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                    // Only link-local addresses need it.
                    ipi6_ifindex: if address.is_unicast_link_local() { interface } else { 0 },
                };
                vec![ControlMessage::Ipv6PacketInfo(&v6)]
            }
            None => Vec::new(),
        };
        sendmsg(self.socket.as_raw_fd(), &slices, &control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// The bounds of a time of CLOCK_REALTIME.
    fn monotonic(&mut self, stamp: TimeSpec) -> Option<(u64, u64)> {
        let (apart, width) = apart_ns();
        let before = std::mem::replace(&mut self.apart_ns, apart);
        if (apart - before).abs() > STEP_NS + width {
            return None;
        }
        let latest = i128::from(nanoseconds(stamp)) - apart;
        Some((u64::try_from(latest - width).ok()?, u64::try_from(latest).ok()?))
    }
}

/// A socket that sends to itself over the loopback, without checksums.
pub(super) fn looped(is_ipv4: bool) -> io::Result<UdpSocket> {
    let own: IpAddr = match is_ipv4 {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv6Addr::LOCALHOST.into(),
    };
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect(socket.local_addr()?)?;
    match is_ipv4 {
        true => setsockopt(&socket, NoChecksum, &true)?,
        false => setsockopt(&socket, NoChecksum6, &true)?,
    }
    Ok(socket)
}

fn dual_stack(port: u16) -> io::Result<UdpSocket> {
    let fd = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    let any = SockaddrStorage::from(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    bind(fd.as_raw_fd(), &any)?;
    Ok(fd.into())
}

/// By how much CLOCK_REALTIME is ahead, at least; and how much more it may be. The
/// best of some tries, as one may be interrupted.
fn apart_ns() -> (i128, i128) {
    let once = || {
        let before = i128::from(monotonic_ns());
        let real = i128::from(realtime_ns());
        let after = i128::from(monotonic_ns());
        (real - before, after - before)
    };
    let tries = [once(), once(), once()];
    let (most, width) = tries.into_iter().min_by_key(|(_, width)| *width).unwrap_or_else(once);
    (most - width, width)
}

fn nanoseconds(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

fn address_of(address: SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::from((v4.ip(), v4.port())));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddr::V6((*v6).into()))
}
