//! The kernel, asked for sockets.

use std::io::{self, ErrorKind};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use nix::libc::{ENOBUFS, ENOENT, ESTALE, MSG_DONTWAIT};

use super::{
    Error,
    message::{Answer, CONNECTED, ESTABLISHED, Family, Found, Key, answers, ask_all, ask_one},
};
use crate::clock::monotonic_ns;

/// The kernel puts no more into one answer.
const ANSWER_BYTES: usize = 32 << 10;
/// Sockets that are asked for at once: their answers must fit into the netlink socket's buffer.
const BATCH: usize = 64;

/// A netlink socket of the network namespace that the thread is in.
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
            // As much as is allowed. Less only means that some answers are lost.
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

    /// Tells all connections, and when each was looked at; with `info`, what TCP knows of them.
    pub(super) fn all(&mut self, info: bool, each: &mut dyn FnMut(u64, &Found)) -> Result<(), Error> {
        self.dump(CONNECTED, info, each)
    }

    /// Reports all established connections with what TCP knows of them.
    pub(super) fn established(&mut self, each: &mut dyn FnMut(u64, &Found)) -> Result<(), Error> {
        self.dump(ESTABLISHED, true, each)
    }

    fn dump(&mut self, states: u32, info: bool, each: &mut dyn FnMut(u64, &Found)) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            self.requests.clear();
            ask_all(family, states, info, &mut self.requests);
            self.socket.send(&self.requests, 0).map_err(Error::Ask)?;
            while !self.part(family, each)? {}
        }
        Ok(())
    }

    /// Takes a part of a dump. True if it was the last.
    fn part(&mut self, family: Family, each: &mut dyn FnMut(u64, &Found)) -> Result<bool, Error> {
        // The kernel gathers a part while the one before is taken.
        let time_ns = monotonic_ns();
        let length = self.receive(0).map_err(Error::Ask)?;
        for answer in answers(self.answer.get(..length).unwrap_or_default()) {
            match answer {
                Answer::Socket(found) => each(time_ns, &found),
                Answer::Done(errno) | Answer::Refused(_, errno) => {
                    return end_of(family, errno).map(|()| true);
                }
            }
        }
        Ok(false)
    }

    /// Asks for each of these, and tells when it was looked at and what is said of it: nothing if there is no such
    /// socket any more. What the kernel had no room to answer is not told.
    pub(super) fn each_of(
        &mut self,
        keys: &[Key],
        tell: &mut dyn FnMut(u64, &Key, Option<&Found>),
    ) -> Result<(), Error> {
        for batch in keys.chunks(BATCH) {
            self.requests.clear();
            let first = self.number;
            for (number, key) in (first..).zip(batch) {
                ask_one(number, key, &mut self.requests);
            }
            self.number = first.checked_add(batch.len() as u32).unwrap_or(0);
            // The kernel answers before this returns.
            self.socket.send(&self.requests, 0).map_err(Error::Ask)?;
            self.replies(first, batch, tell)?;
        }
        Ok(())
    }

    fn replies(
        &mut self,
        first: u32,
        batch: &[Key],
        tell: &mut dyn FnMut(u64, &Key, Option<&Found>),
    ) -> Result<(), Error> {
        let time_ns = monotonic_ns();
        loop {
            let length = match self.receive(MSG_DONTWAIT) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => continue,
                Err(error) => return Err(Error::Ask(error)),
            };
            for answer in answers(self.answer.get(..length).unwrap_or_default()) {
                match answer {
                    Answer::Socket(found) => tell(time_ns, &found.key, Some(&found)),
                    Answer::Refused(number, ENOENT | ESTALE) => {
                        let index = number.wrapping_sub(first) as usize;
                        if let Some(key) = batch.get(index) {
                            tell(time_ns, key, None);
                        }
                    }
                    Answer::Refused(..) | Answer::Done(_) => {}
                }
            }
        }
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

/// What a dump means that ended with this errno, or 0. A kernel without IPv6 knows no such family; without IPv4 it is
/// the module that is missing.
fn end_of(family: Family, errno: i32) -> Result<(), Error> {
    match (family, errno) {
        (_, 0) | (Family::V6, ENOENT) => Ok(()),
        _ => Err(Error::Ask(io::Error::from_raw_os_error(errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_may_lack_ipv6_and_not_the_modules_that_tell() {
        assert!(end_of(Family::V4, 0).is_ok() && end_of(Family::V6, ENOENT).is_ok());
        let error = end_of(Family::V4, ENOENT).unwrap_err().to_string();
        assert!(error.contains("modprobe"), "{error}");
        assert!(end_of(Family::V6, ENOBUFS).is_err());
    }
}
