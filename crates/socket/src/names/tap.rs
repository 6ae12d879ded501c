//! Packets that the kernel copies.
#![allow(unsafe_code)]

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd},
};

use dwell_engine::observe::Observation;
use nix::{
    cmsg_space,
    errno::Errno,
    libc,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt, socket,
        sockopt::{RcvBuf, RcvBufForce, RxqOvfl},
    },
};

use super::filter::{ANSWERS_V4, ANSWERS_V6, LONGEST_ANSWER, requests};

/// Bytes of packets that wait to be read, as the kernel counts them: those of requests with the buffers that they are in,
/// which are long where the device gathers segments.
const ANSWERS_BUFFER: usize = 1 << 20;
const REQUESTS_BUFFER: usize = 4 << 20;
/// Packets that are read at once.
const MOST: usize = 256;
/// LINKTYPE_RAW: packets begin with the header of IP.
const RAW: u32 = 101;

/// Copies of packets that pass the network namespace in which it was opened, by any device, loopback too. It takes
/// CAP_NET_RAW. All other packets pass a filter, of nine instructions for answers and of 55 for requests; the kernel clones the
/// descriptor of each outgoing packet for the latter.
#[derive(Debug)]
pub(super) struct Tap {
    sockets: Vec<OwnedFd>,
    /// Packets that found the buffer of each socket full.
    lost: Vec<u32>,
    buffer: Vec<u8>,
}

impl Tap {
    /// Copies datagrams from port 53 that come in. Packets that go out pass nothing.
    pub(super) fn of_answers() -> io::Result<Tap> {
        Tap::open([
            open(SockProtocol::EthIp, &ANSWERS_V4, ANSWERS_BUFFER)?,
            open(SockProtocol::EthIpv6, &ANSWERS_V6, ANSWERS_BUFFER)?,
        ])
    }

    /// Copies the beginnings of segments, in both directions, that a request may begin in.
    pub(super) fn of_requests() -> io::Result<Tap> {
        Tap::open([open(SockProtocol::EthAll, &requests(), REQUESTS_BUFFER)?])
    }

    fn open<const N: usize>(sockets: [OwnedFd; N]) -> io::Result<Tap> {
        Ok(Tap { sockets: sockets.into(), lost: vec![0; N], buffer: vec![0; LONGEST_ANSWER] })
    }

    /// Returns what becomes readable when there are packets.
    pub(super) fn sockets(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// Passes the packets that are there, as many as are read at once. Returns whether these were all.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Observation<'_>)) -> bool {
        let mut is_empty = true;
        for (socket, lost) in self.sockets.iter().zip(&mut self.lost) {
            let mut left = MOST;
            while left > 0 {
                let mut control = cmsg_space!(u32);
                let mut parts = [IoSliceMut::new(&mut self.buffer)];
                let received =
                    match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT) {
                        Ok(received) => received,
                        Err(Errno::EINTR) => continue,
                        Err(_) => break,
                    };
                for message in received.cmsgs().into_iter().flatten() {
                    if let ControlMessageOwned::RxqOvfl(count) = message {
                        *lost = count;
                    }
                }
                let bytes = received.bytes;
                let data = &self.buffer[..bytes.min(LONGEST_ANSWER)];
                each(&Observation { time_ns: 0, interface: 0, link: RAW, data, wire_len: wire_bytes(data) });
                left -= 1;
            }
            is_empty &= left > 0;
        }
        is_empty
    }

    /// Returns the number of packets that were lost because they came too fast, as of the last one that was read.
    pub(super) fn lost(&self) -> u64 {
        self.lost.iter().map(|lost| u64::from(*lost)).sum()
    }
}

/// Returns the length of a packet, of which the beginning may have been copied alone, as its header of IP has it.
fn wire_bytes(data: &[u8]) -> u32 {
    const V6_HEADER: u32 = 40;
    let field = |at: usize| data.get(at..at + 2).map_or(0, |field| u32::from(u16::from_be_bytes([field[0], field[1]])));
    let stated = match data.first().map(|first| first >> 4) {
        Some(4) => field(2),
        Some(6) => field(4) + V6_HEADER,
        _ => 0,
    };
    stated.max(data.len() as u32)
}

fn open(protocol: SockProtocol, filter: &[libc::sock_filter], buffer: usize) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, protocol)?;
    attach(&socket, filter)?;
    // The limit of the host is passed where that is allowed.
    setsockopt(&socket, RcvBufForce, &buffer).or_else(|_| setsockopt(&socket, RcvBuf, &buffer))?;
    setsockopt(&socket, RxqOvfl, &1)?;
    Ok(socket)
}

/// Has the kernel copy only packets for which `filter` returns a length. Packets that came before are copied whatever they
/// are.
fn attach(socket: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `program` and the instructions that it points to during the call, and writes neither.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
