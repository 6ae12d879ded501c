//! A watched socket.
#![allow(unsafe_code)]

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use super::{Error, Info, session::Shared};
use crate::inside::CallEvent;

/// A connection that a [`Session`](super::Session) watches. It borrows the descriptor; the owner may do anything with
/// it.
pub struct Socket<'fd> {
    fd: BorrowedFd<'fd>,
    cookie: u64,
    shared: Arc<Shared>,
}

/// Bounds of [`Socket::wait`], which ends when any of them is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bound {
    /// Bytes waited in the send buffer for longer than this, or have been waiting there for longer.
    pub sender_delay: Option<Duration>,
    /// The mean deviation of the sender delay is larger than this.
    pub jitter: Option<Duration>,
}

impl<'fd> Socket<'fd> {
    pub(super) fn new(fd: BorrowedFd<'fd>, cookie: u64, shared: Arc<Shared>) -> Socket<'fd> {
        Socket { fd, cookie, shared }
    }

    /// Returns the figures of the last poll.
    pub fn info(&self) -> Info {
        self.shared.info(self.cookie).unwrap_or_default()
    }

    /// Waits until a bound is exceeded and returns true, or until the timeout and returns false. Without a timeout it
    /// waits forever.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn wait(&self, bound: Bound, timeout: Option<Duration>) -> Result<bool, Error> {
        self.shared.wait(self.cookie, bound, timeout)
    }

    /// Calls send(2) without flags, and returns the number of bytes with the figures after the call.
    ///
    /// # Errors
    /// As send(2).
    pub fn send(&self, bytes: &[u8]) -> io::Result<(usize, Info)> {
        let fd = self.fd.as_raw_fd();
        self.shared.called(fd, CallEvent::WriteBegins);
        // SAFETY: the kernel reads only the slice.
        let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error());
        self.shared.called(fd, CallEvent::WriteEnds(sent.as_ref().map_or(0, |&sent| sent as u64)));
        let sent = sent?;
        self.shared.hold(fd);
        Ok((sent, self.info()))
    }

    /// Calls recv(2) without flags, and returns the number of bytes with the figures after the call.
    ///
    /// # Errors
    /// As recv(2).
    pub fn recv(&self, bytes: &mut [u8]) -> io::Result<(usize, Info)> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel writes only into the slice.
        let got = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if got > 0 {
            self.shared.called(fd, CallEvent::Read(got as u64));
        }
        Ok((got, self.info()))
    }
}

impl AsFd for Socket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

impl fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("fd", &self.fd).field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

impl Bound {
    pub(super) fn is_passed(&self, info: &Info) -> bool {
        let passes = |value: Option<Duration>, bound: Option<Duration>| {
            bound.is_some_and(|bound| value.is_some_and(|value| value > bound))
        };
        passes(info.sender_delay, self.sender_delay)
            || passes(info.sender_waiting, self.sender_delay)
            || passes(info.jitter, self.jitter)
    }
}
