//! Queries to the kernel's sock_diag.

use std::{
    collections::HashSet,
    io::{self, ErrorKind},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use nix::libc::{ENOBUFS, ENOENT, ESTALE, MSG_DONTWAIT};

use super::{
    Error,
    message::{
        Answer, CONNECTED, ESTABLISHED, Family, LISTEN, OPENING, SocketId, SocketReport, answers, datagram_request,
        dump_request, socket_request,
    },
};
use crate::clock::monotonic_ns;

/// Largest part of a dump.
const ANSWER_BYTES: usize = 32 << 10;
/// Sockets per batch of queries: the answers must fit into the netlink socket's buffer.
const BATCH: usize = 64;

/// A netlink socket in the network namespace of the thread that opened it.
pub(super) struct Diag {
    socket: Socket,
    requests: Vec<u8>,
    answer: Box<[u8]>,
    number: u32,
}

impl Diag {
    pub(super) fn open() -> Result<Diag, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // The kernel grants as much as its limit allows. With less, some answers are lost.
            let _ = socket.set_rx_buf_sz(1u32 << 20);
            Ok(socket)
        };
        Ok(Diag {
            socket: open().map_err(Error::Open)?,
            requests: Vec::new(),
            answer: vec![0; ANSWER_BYTES].into(),
            number: 0,
        })
    }

    /// Reports every connection and the time of its reading; with `info`, its TCP_INFO too.
    pub(super) fn dump_connected(&mut self, info: bool, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.dump(CONNECTED, info, each)
    }

    /// Reports every connection with its TCP_INFO and the time of its reading, also those that are being opened here.
    pub(super) fn dump_connected_and_opening(&mut self, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.dump(CONNECTED | OPENING, true, each)
    }

    /// Reports every established connection with its TCP_INFO.
    pub(super) fn dump_established(&mut self, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.dump(ESTABLISHED, true, each)
    }

    /// Reports every socket that listens.
    pub(super) fn dump_listening(&mut self, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.dump(LISTEN, false, each)
    }

    /// Returns the ports at which sockets of TCP listen.
    pub(super) fn listening_ports(&mut self) -> Result<HashSet<u16>, Error> {
        let mut ports = HashSet::new();
        self.dump_listening(&mut |_, report| _ = ports.insert(report.key.ends().src.port))?;
        Ok(ports)
    }

    /// Reports every socket of UDP with what it dropped.
    pub(super) fn dump_datagrams(&mut self, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            self.requests.clear();
            datagram_request(family, &mut self.requests);
            self.send_dump(family, each)?;
        }
        Ok(())
    }

    fn dump(&mut self, states: u32, info: bool, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.requests.clear();
        dump_request(states, info, &mut self.requests);
        self.send_dump(Family::V4, each)
    }

    /// Sends the request, and receives all parts of its answer.
    fn send_dump(&mut self, family: Family, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<(), Error> {
        self.socket.send(&self.requests, 0).map_err(Error::Query)?;
        while !self.dump_part(family, each)? {}
        Ok(())
    }

    /// Receives one part of a dump. Returns true if it was the last.
    fn dump_part(&mut self, family: Family, each: &mut dyn FnMut(u64, &SocketReport)) -> Result<bool, Error> {
        // The kernel prepares one part while the previous one is processed.
        let time_ns = monotonic_ns();
        let length = self.receive(0).map_err(Error::Query)?;
        for answer in answers(self.answer.get(..length).unwrap_or_default()) {
            match answer {
                Answer::Socket(report) => each(time_ns, &report),
                Answer::Done(errno) | Answer::Refused(_, errno) => {
                    return end_of(family, errno).map(|()| true);
                }
            }
        }
        Ok(false)
    }

    /// Queries single sockets. Reports the time and the answer for each, which is `None` if the socket no longer
    /// exists. Sockets whose answers did not fit the buffer are not reported.
    pub(super) fn query(
        &mut self,
        keys: &[SocketId],
        each: &mut dyn FnMut(u64, &SocketId, Option<&SocketReport>),
    ) -> Result<(), Error> {
        for batch in keys.chunks(BATCH) {
            self.requests.clear();
            let first = self.number;
            for (number, key) in (first..).zip(batch) {
                socket_request(number, key, &mut self.requests);
            }
            self.number = first.checked_add(batch.len() as u32).unwrap_or(0);
            // The kernel answers before this call returns.
            self.socket.send(&self.requests, 0).map_err(Error::Query)?;
            self.replies(first, batch, each)?;
        }
        Ok(())
    }

    fn replies(
        &mut self,
        first: u32,
        batch: &[SocketId],
        each: &mut dyn FnMut(u64, &SocketId, Option<&SocketReport>),
    ) -> Result<(), Error> {
        let time_ns = monotonic_ns();
        let mut awaited = batch.len();
        while awaited > 0 {
            let length = match self.receive(MSG_DONTWAIT) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => continue,
                Err(error) => return Err(Error::Query(error)),
            };
            for answer in answers(self.answer.get(..length).unwrap_or_default()) {
                awaited = awaited.saturating_sub(1);
                match answer {
                    Answer::Socket(report) => each(time_ns, &report.key, Some(&report)),
                    Answer::Refused(number, ENOENT | ESTALE) => {
                        let index = number.wrapping_sub(first) as usize;
                        if let Some(key) = batch.get(index) {
                            each(time_ns, key, None);
                        }
                    }
                    Answer::Refused(..) | Answer::Done(_) => {}
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, flags: i32) -> io::Result<usize> {
        loop {
            match self.socket.recv(&mut &mut self.answer[..], flags) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }
}

/// Interprets the error number at the end of a dump, or 0. ENOENT means that a kernel has no IPv6, but for IPv4 that
/// the module is missing.
fn end_of(family: Family, errno: i32) -> Result<(), Error> {
    match (family, errno) {
        (_, 0) | (Family::V6, ENOENT) => Ok(()),
        _ => Err(Error::Query(io::Error::from_raw_os_error(errno))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn one_dump_has_the_connections_of_both_families_and_each_is_queried_by_what_was_said_of_it() {
        let mut diag = Diag::open().unwrap();
        let mut open = Vec::new();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may lack IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            open.push((client.local_addr().unwrap(), listener.accept().unwrap(), client));
        }
        let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        let mut keys = Vec::new();
        diag.dump_connected(true, &mut |_, report| {
            let src = report.key.ends().src;
            if open.iter().any(|(local, ..)| (local.ip(), local.port()) == (src.address, src.port)) {
                let uses_bbr = report.info.map(|info| info.uses_bbr);
                assert_eq!(uses_bbr, Some(default.trim() == "bbr"), "{src} {default}");
                keys.push(report.key);
            }
        })
        .unwrap();
        assert_eq!(keys.len(), open.len(), "{open:?}");
        // An answer is not mistaken for one of the next query.
        for _ in 0..3 {
            let mut answered = Vec::new();
            diag.query(&keys, &mut |_, key, report| answered.push((*key, report.is_some()))).unwrap();
            assert_eq!(answered, keys.iter().map(|key| (*key, true)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_kernel_may_lack_ipv6_and_not_the_modules_that_tell() {
        assert!(end_of(Family::V4, 0).is_ok() && end_of(Family::V6, ENOENT).is_ok());
        let error = end_of(Family::V4, ENOENT).unwrap_err().to_string();
        assert!(error.contains("modprobe"), "{error}");
        assert!(end_of(Family::V6, ENOBUFS).is_err());
    }
}
