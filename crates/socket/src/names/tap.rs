//! Answers of DNS on their way into this host, copied by the kernel.
#![allow(unsafe_code)]

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use dwell_engine::observe::Observation;
use nix::{
    cmsg_space,
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt, socket,
        sockopt::{RcvBuf, RxqOvfl},
    },
};

/// Bytes of answers that wait to be read.
const BUFFER: usize = 1 << 20;
/// Answers that are read at once.
const MOST: usize = 256;
/// The longest answer that is read whole.
const LONGEST: usize = 16 << 10;
/// LINKTYPE_RAW: packets begin with the header of IP.
const RAW: u32 = 101;

/// Copies of datagrams from port 53 that come in by any device of the network namespace in which it was opened, loopback
/// too. It takes CAP_NET_RAW. All other packets that come in pass a filter of a few instructions; packets that go out pass
/// nothing.
#[derive(Debug)]
pub(super) struct Tap {
    sockets: Vec<OwnedFd>,
    /// Answers that found the buffer of each socket full.
    lost: Vec<u32>,
    buffer: Vec<u8>,
}

impl Tap {
    pub(super) fn open() -> io::Result<Tap> {
        let open = |(protocol, filter): (SockProtocol, &[libc::sock_filter])| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, protocol)?;
            attach(&socket, filter)?;
            setsockopt(&socket, RcvBuf, &BUFFER)?;
            setsockopt(&socket, RxqOvfl, &1)?;
            Ok(socket)
        };
        let families: [(SockProtocol, &[libc::sock_filter]); 2] =
            [(SockProtocol::EthIp, &V4), (SockProtocol::EthIpv6, &V6)];
        let sockets: Vec<OwnedFd> = families.into_iter().map(open).collect::<io::Result<_>>()?;
        Ok(Tap { lost: vec![0; sockets.len()], sockets, buffer: vec![0; LONGEST] })
    }

    /// Waits for an answer, for so many milliseconds at most.
    pub(super) fn wait(&self, timeout_ms: u8) {
        let mut sockets: Vec<_> =
            self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        // A signal ends the wait, which does no harm.
        let _ = poll(&mut sockets, PollTimeout::from(timeout_ms));
    }

    /// Passes the answers that are there, as many as are read at once.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Observation<'_>)) {
        for (socket, lost) in self.sockets.iter().zip(&mut self.lost) {
            for _ in 0..MOST {
                let mut control = cmsg_space!(u32);
                let mut parts = [IoSliceMut::new(&mut self.buffer)];
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
                let received = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
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
                let data = &self.buffer[..bytes.min(LONGEST)];
                each(&Observation { time_ns: 0, interface: 0, link: RAW, data, wire_len: bytes as u32 });
            }
        }
    }

    /// Returns the number of answers that were lost because they came too fast, as of the last one that was read.
    pub(super) fn lost(&self) -> u64 {
        self.lost.iter().map(|lost| u64::from(*lost)).sum()
    }
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

const fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_HALF_AFTER: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const UDP: u32 = 17;
const DOMAIN: u32 = 53;

/// UDP from port 53 over IPv4, and no later fragment.
const V4: [libc::sock_filter; 9] = [
    instruction(LOAD_BYTE, (0, 0), 9),
    instruction(IF_EQUAL, (0, 6), UDP),
    instruction(LOAD_HALF, (0, 0), 6),
    instruction(IF_BITS, (4, 0), 0x1fff),
    instruction(LOAD_HEADER_LENGTH, (0, 0), 0),
    instruction(LOAD_HALF_AFTER, (0, 0), 0),
    instruction(IF_EQUAL, (0, 1), DOMAIN),
    instruction(RETURN, (0, 0), LONGEST as u32),
    instruction(RETURN, (0, 0), 0),
];
/// UDP from port 53 over IPv6 without extension headers.
const V6: [libc::sock_filter; 6] = [
    instruction(LOAD_BYTE, (0, 0), 6),
    instruction(IF_EQUAL, (0, 3), UDP),
    instruction(LOAD_HALF, (0, 0), 40),
    instruction(IF_EQUAL, (0, 1), DOMAIN),
    instruction(RETURN, (0, 0), LONGEST as u32),
    instruction(RETURN, (0, 0), 0),
];
