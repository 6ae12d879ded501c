//! The few messages of nfnetlink_queue that the emulator needs (linux/netfilter/nfnetlink_queue.h).
//!
//! Packets stay in the kernel; only their number, length and arrival time are received. A packet that segmentation
//! offload keeps whole is one message with the whole length.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, SystemTime},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, connect, recv, send, setsockopt,
        socket, sockopt,
    },
};

use crate::{Bytes, Error, Result};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const SUBSYSTEM_QUEUE: u16 = 3 << 8;
const PACKET: u16 = SUBSYSTEM_QUEUE;
const VERDICT: u16 = SUBSYSTEM_QUEUE | 1;
const CONFIG: u16 = SUBSYSTEM_QUEUE | 2;

const CONFIG_COMMAND: u16 = 1;
const CONFIG_PARAMS: u16 = 2;
const CONFIG_MAX_LENGTH: u16 = 3;
const CONFIG_MASK: u16 = 4;
const CONFIG_FLAGS: u16 = 5;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FLAG_GSO: u32 = 1 << 2;

const ATTRIBUTE_HEADER: u16 = 1;
const ATTRIBUTE_VERDICT: u16 = 2;
const ATTRIBUTE_TIMESTAMP: u16 = 4;
const ATTRIBUTE_LENGTH: u16 = 13;

/// The number of packets that the kernel may hold for a queue, and whose messages fit: ten times that of a busy test.
const MAX_HELD: u32 = 200_000;
const RECEIVE_BUFFER: usize = 64 << 20;

/// A bound queue of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Queue {
    socket: OwnedFd,
    number: u16,
    verdicts: Vec<u8>,
}

/// The kernel's message about a packet that waits for its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) id: u32,
    /// The length from the IP header on.
    pub(crate) bytes: Bytes,
    /// The timestamp of the receiving interface in whole microseconds, rounded down.
    pub(crate) arrival: Option<SystemTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Drop = 0,
    Accept = 1,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Packet(Packet),
    /// There is no message now.
    Nothing,
    /// The kernel dropped packets because the buffer was full. Its counters say how many.
    Overrun,
    /// The kernel did not know the packet of a verdict.
    Refused,
}

impl Queue {
    pub(crate) fn open(number: u16) -> Result<Self> {
        let failed = |what: &str| Error::os(format!("{what} netfilter queue {number}"));
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkNetFilter,
        )
        .map_err(failed("open"))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(failed("open"))?;
        connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(failed("open"))?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).map_err(failed("raise the buffer of"))?;
        let queue = Self { socket, number, verdicts: Vec::new() };

        let mut command = Message::new(CONFIG, NLM_F_REQUEST | NLM_F_ACK, number);
        command.attribute(CONFIG_COMMAND, &[COMMAND_BIND, 0, 0, 0]);
        queue.configure(&command.finish())?;
        let mut params = Message::new(CONFIG, NLM_F_REQUEST | NLM_F_ACK, number);
        // One byte of the packet: the kernel reports the length only of packets that it cuts, and 0 means all.
        params.attribute(CONFIG_PARAMS, &[0, 0, 0, 1, COPY_PACKET]);
        params.attribute(CONFIG_MAX_LENGTH, &MAX_HELD.to_be_bytes());
        params.attribute(CONFIG_MASK, &FLAG_GSO.to_be_bytes());
        params.attribute(CONFIG_FLAGS, &FLAG_GSO.to_be_bytes());
        queue.configure(&params.finish())?;
        Ok(queue)
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Reads the answer to a command. The kernel answers within the call that sends, unless packets arrived first.
    fn configure(&self, message: &[u8]) -> Result<()> {
        let failed = || Error::os(format!("configure netfilter queue {}", self.number));
        send(self.socket.as_raw_fd(), message, MsgFlags::empty()).map_err(failed())?;
        let mut buffer = [0; 4096];
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(failed())?;
            match error_of(&buffer[..length]) {
                Some(0) => return Ok(()),
                Some(errno) => return Err(failed()(Errno::from_raw(-errno))),
                // A packet between bind and the first read. The sender sends again.
                None => {}
            }
        }
    }

    pub(crate) fn receive(&self) -> Result<Received> {
        let mut buffer = [0; 1024];
        match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(match parse_packet(&buffer[..length]) {
                Some(packet) => Received::Packet(packet),
                None => Received::Refused,
            }),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Received::Nothing),
            Err(Errno::ENOBUFS) => Ok(Received::Overrun),
            Err(errno) => Err(Error::os(format!("read netfilter queue {}", self.number))(errno)),
        }
    }

    /// Queues a verdict for the next [`Self::flush`].
    pub(crate) fn push_verdict(&mut self, id: u32, verdict: Verdict) {
        let mut message = Message::new(VERDICT, NLM_F_REQUEST, self.number);
        let mut body = [0; 8];
        body[..4].copy_from_slice(&(verdict as u32).to_be_bytes());
        body[4..].copy_from_slice(&id.to_be_bytes());
        message.attribute(ATTRIBUTE_VERDICT, &body);
        self.verdicts.extend_from_slice(&message.finish());
    }

    /// Sends the verdicts. Accepted packets leave within this call.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.verdicts.is_empty() {
            return Ok(());
        }
        let sent = loop {
            match send(self.socket.as_raw_fd(), &self.verdicts, MsgFlags::empty()) {
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                other => break other,
            }
        };
        self.verdicts.clear();
        sent.map(drop).map_err(Error::os(format!("give verdicts to netfilter queue {}", self.number)))
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the number of packets of a queue that the kernel dropped itself, from the queue table of the calling
/// thread's namespace.
pub(crate) fn kernel_drops(number: u16) -> Option<u64> {
    // `/proc/net` is that of the process, not of the thread.
    let table = std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        (fields.next()?? == u64::from(number)).then_some(())?;
        let for_length = fields.nth(4)??;
        let for_room = fields.next()??;
        Some(for_length + for_room)
    })
}

struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16, queue: u16) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        // Family and version zero, then the queue.
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&queue.to_be_bytes());
        Self(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).expect("attributes here are a few bytes");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("messages here are a few bytes");
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

fn kind_of(message: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?))
}

fn error_of(message: &[u8]) -> Option<i32> {
    (kind_of(message)? == NLMSG_ERROR).then_some(())?;
    Some(i32::from_ne_bytes(message.get(16..20)?.try_into().ok()?))
}

fn parse_packet(message: &[u8]) -> Option<Packet> {
    (kind_of(message)? == PACKET).then_some(())?;
    let (mut id, mut length, mut arrival) = (None, None, None);
    let mut rest = message.get(20..)?;
    while rest.len() >= 4 {
        let size = usize::from(u16::from_ne_bytes(rest[..2].try_into().ok()?));
        let kind = u16::from_ne_bytes(rest[2..4].try_into().ok()?) & 0x3fff;
        let value = rest.get(4..size)?;
        match kind {
            ATTRIBUTE_HEADER => id = Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?)),
            ATTRIBUTE_LENGTH => length = Some(u32::from_be_bytes(value.try_into().ok()?)),
            ATTRIBUTE_TIMESTAMP => {
                let seconds = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
                let micros = u64::from_be_bytes(value.get(8..16)?.try_into().ok()?);
                let since_epoch = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
                arrival = SystemTime::UNIX_EPOCH.checked_add(since_epoch);
            }
            _ => {}
        }
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    // Every IP packet is longer than the one byte asked for, so the kernel reports its length.
    Some(Packet { id: id?, bytes: Bytes(u64::from(length?)), arrival })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_message() -> Vec<u8> {
        let mut message = Message::new(PACKET, 0, 1);
        message.attribute(ATTRIBUTE_HEADER, &[0, 0, 0, 9, 8, 0, 2]);
        let mut stamp = [0; 16];
        stamp[7] = 5;
        stamp[15] = 7;
        message.attribute(ATTRIBUTE_TIMESTAMP, &stamp);
        message.attribute(10, &[0x45]);
        message.attribute(ATTRIBUTE_LENGTH, &65_000u32.to_be_bytes());
        message.finish()
    }

    #[test]
    fn a_packet_message_tells_number_length_and_arrival() {
        let arrival = SystemTime::UNIX_EPOCH + Duration::from_micros(5_000_007);
        let expected = Packet { id: 9, bytes: Bytes(65_000), arrival: Some(arrival) };
        assert_eq!(parse_packet(&packet_message()), Some(expected));
    }

    #[test]
    fn a_cut_message_is_no_packet() {
        let message = packet_message();
        for length in 0..message.len() {
            assert_eq!(parse_packet(&message[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_zero_length_attribute_ends_the_parse() {
        let mut message = packet_message();
        message[20..22].copy_from_slice(&0u16.to_ne_bytes());
        assert_eq!(parse_packet(&message), None);
    }
}
