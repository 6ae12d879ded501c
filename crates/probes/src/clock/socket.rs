//! UDP sockets whose packets carry the kernel's arrival timestamp.
//!
//! The kernel's timestamps are by CLOCK_REALTIME, and all others here by CLOCK_MONOTONIC. Both run at the same rate, so
//! their difference converts one into the other, unless CLOCK_REALTIME is set meanwhile.
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

/// The change in the difference of the two clocks from which on one of them was set. Less may come from the time that it
/// takes to read them.
const STEP_NS: i128 = 100_000;

/// How long the kernel may take to start with arrival timestamps.
const TIMESTAMPS_START: Duration = Duration::from_millis(50);

/// linux/udp.h
const UDP_NO_CHECK6_TX: libc::c_int = 101;

sockopt_impl!(
    /// Sends IPv4 packets without a checksum.
    NoChecksum,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_NO_CHECK,
    bool
);
sockopt_impl!(
    /// Sends IPv6 packets without a checksum.
    NoChecksum6,
    SetOnly,
    libc::SOL_UDP,
    UDP_NO_CHECK6_TX,
    bool
);
sockopt_impl!(
    /// Attaches a BPF program that decides how much of each packet is kept.
    AttachProgram,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_BPF,
    i32
);

/// A received packet, and when it arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub bytes: usize,
    pub from: SocketAddr,
    /// The address that it was sent to and the interface by which it arrived, if the socket reports them.
    pub to: Option<(IpAddr, u32)>,
    /// The earliest and the latest arrival time by CLOCK_MONOTONIC; `None` if CLOCK_REALTIME was set meanwhile.
    pub between_ns: Option<(u64, u64)>,
}

/// A UDP socket with arrival timestamps.
#[derive(Debug)]
pub(super) struct StampedSocket {
    socket: UdpSocket,
    /// The difference of the two clocks, as it was last read.
    difference_ns: i128,
}

impl StampedSocket {
    /// Opens a socket that is connected to a peer, from an address of this host or from any.
    pub fn connected(from: Option<IpAddr>, peer: SocketAddr) -> io::Result<StampedSocket> {
        let any = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((from.unwrap_or(any), 0))?;
        socket.connect(peer)?;
        StampedSocket::new(socket)
    }

    /// Opens a socket that listens for IPv4 and, where the kernel has it, IPv6.
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
        // The kernel starts to take timestamps a little later. Until then, a packet has the time at which it was read,
        // which is too late.
        thread::sleep(TIMESTAMPS_START);
        Ok(stamped)
    }

    fn new(socket: UdpSocket) -> io::Result<StampedSocket> {
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(StampedSocket { socket, difference_ns: clock_difference_ns().0 })
    }

    pub fn inner(&self) -> &UdpSocket {
        &self.socket
    }

    /// Drops packets that a program rejects.
    pub fn filter(&self, program: &impl AsRawFd) -> io::Result<()> {
        Ok(setsockopt(&self.socket, AttachProgram, &program.as_raw_fd())?)
    }

    /// Waits for a packet; `None` if there was none in time.
    pub fn receive(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<Arrival>> {
        // 0 would mean to wait without end.
        let timeout = timeout.max(Duration::from_micros(1));
        self.socket.set_read_timeout(Some(timeout))?;
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

    /// Replies to a packet, from the address that it was sent to.
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

    /// Converts a time of CLOCK_REALTIME into bounds by CLOCK_MONOTONIC.
    fn monotonic(&mut self, stamp: TimeSpec) -> Option<(u64, u64)> {
        let (difference, width) = clock_difference_ns();
        let before = std::mem::replace(&mut self.difference_ns, difference);
        if (difference - before).abs() > STEP_NS + width {
            return None;
        }
        let latest = i128::from(nanoseconds(stamp)) - difference;
        Some((u64::try_from(latest - width).ok()?, u64::try_from(latest).ok()?))
    }
}

/// Opens a socket that sends to itself over loopback, without checksums.
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

/// Returns by how much CLOCK_REALTIME is ahead of CLOCK_MONOTONIC at least, and how much more it may be: the best of
/// three tries, as one may be interrupted.
fn clock_difference_ns() -> (i128, i128) {
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
