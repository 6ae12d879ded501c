//! Writes in pieces.
//!
//! The kernel compares the unsent bytes with TCP_NOTSENT_LOWAT when it starts a new packet buffer, which with segmentation
//! offload holds 64 KB: a program that writes much at once gets that much more than the limit into the send buffer.
//! MSG_EOR completes a packet buffer early. The stream is therefore cut each so many bytes, whatever the sizes of
//! the program's writes, and the kernel makes the program wait, or refuses the rest, at a cut.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{MSG_DONTWAIT, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, c_int, iovec, msghdr, ssize_t};

use super::{super::mark::Order, errno, real};
use crate::sys;

/// Flags of calls that may be cut. The kernel does something else for each call with another flag.
const KNOWN: c_int = MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_EOR;

/// Most parts of a piece. With more parts a piece is shorter than it could be.
const PARTS: usize = 16;

/// A cut stream: the size of its pieces, which is not 0, and how many bytes of the current one the kernel has.
pub struct Pieces<'a> {
    bytes: u32,
    filled: &'a AtomicU32,
}

impl<'a> Pieces<'a> {
    /// Returns how the stream at a descriptor is to be cut, if at all.
    pub fn of(order: Order, filled: Option<&'a AtomicU32>, flags: c_int) -> Option<Pieces<'a>> {
        match (order, filled) {
            (Order::Pieces { bytes }, Some(filled)) if flags & !KNOWN == 0 => Some(Pieces { bytes, filled }),
            _ => None,
        }
    }

    /// Makes a call that writes `parts`: as it is, by `whole`, if it does not complete a piece, and cut otherwise.
    ///
    /// # Safety
    /// As writev(2).
    pub unsafe fn write(&self, fd: c_int, parts: &[iovec], flags: c_int, whole: impl Fn() -> ssize_t) -> ssize_t {
        let length = parts.iter().fold(0_usize, |length, part| length.saturating_add(part.iov_len));
        if length < self.room() {
            let sent = whole();
            self.add(usize::try_from(sent).unwrap_or(0));
            return sent;
        }
        // The program may have closed the socket, and opened something else at its descriptor.
        if !sys::is_tcp(fd) {
            return whole();
        }
        // SAFETY: the caller's promise.
        unsafe { self.send(fd, parts, flags) }.unwrap_or_else(whole)
    }

    /// Returns the number of bytes that complete the current piece. The size may have changed since it was begun.
    fn room(&self) -> usize {
        (self.bytes - self.filled.load(Relaxed) % self.bytes) as usize
    }

    /// Adds bytes that the kernel has taken, at most those that complete the piece.
    fn add(&self, bytes: usize) {
        let is_complete = bytes == self.room();
        let filled = self.filled.load(Relaxed) % self.bytes + bytes as u32;
        self.filled.store(if is_complete { 0 } else { filled }, Relaxed);
    }

    /// Sends `parts` in pieces. Returns what sendmsg(2) would: the
    /// number of bytes that the kernel took, or -1. `None` if the socket does not know MSG_EOR, and nothing was sent.
    ///
    /// # Safety
    /// As writev(2).
    unsafe fn send(&self, fd: c_int, parts: &[iovec], flags: c_int) -> Option<ssize_t> {
        let mut rest = Rest { parts, offset: 0 };
        rest.skip(0);
        let mut sent: ssize_t = 0;
        loop {
            let room = self.room();
            let mut piece = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
            let (count, length) = rest.fill(room, &mut piece);
            if length == 0 {
                return Some(sent);
            }
            let flags = if length == room { flags | MSG_EOR } else { flags };
            // SAFETY: zeroes are an empty message.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = piece.as_mut_ptr();
            message.msg_iovlen = count as _;
            // SAFETY: the parts are within those of the caller.
            let now = unsafe { real::sendmsg(fd, &raw const message, flags) };
            let Ok(taken) = usize::try_from(now) else {
                return match errno() {
                    libc::EOPNOTSUPP | libc::EINVAL if sent == 0 => None,
                    libc::EAGAIN
                    | libc::EINTR
                    | libc::EOPNOTSUPP
                    | libc::EINVAL
                    | libc::EFAULT
                    | libc::EMSGSIZE
                    | libc::ENOBUFS
                    | libc::ENOMEM
                        if sent > 0 =>
                    {
                        Some(sent)
                    }
                    // The connection has ended, and the kernel reports the reason only once.
                    _ => Some(-1),
                };
            };
            self.add(taken);
            sent += now;
            if taken < length {
                return Some(sent);
            }
            rest.skip(taken);
        }
    }
}

/// What of the caller's parts is still to be sent.
struct Rest<'a> {
    parts: &'a [iovec],
    /// Bytes of the first part that were sent.
    offset: usize,
}

impl Rest<'_> {
    /// Describes the next bytes, at most `room` of them. Returns the number of parts and of bytes.
    fn fill(&self, room: usize, piece: &mut [iovec; PARTS]) -> (usize, usize) {
        let mut length = 0;
        let mut offset = self.offset;
        let mut count = 0;
        for (part, slot) in self.parts.iter().zip(piece) {
            let here = (part.iov_len - offset).min(room - length);
            *slot = iovec { iov_base: part.iov_base.wrapping_byte_add(offset), iov_len: here };
            length += here;
            count += 1;
            offset = 0;
            if length == room {
                break;
            }
        }
        (count, length)
    }

    /// Advances by bytes that were sent, and beyond empty parts.
    fn skip(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some((part, rest)) = self.parts.split_first() {
            let here = part.iov_len - self.offset;
            if left < here {
                self.offset += left;
                return;
            }
            left -= here;
            self.parts = rest;
            self.offset = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    use super::*;

    const LOWAT: u32 = 5600;

    fn part(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    /// Returns the number of bytes that were written and have not left (SIOCOUTQNSD).
    fn unsent(fd: c_int) -> u32 {
        let mut bytes = 0_i32;
        // SAFETY: the request writes one int.
        assert_eq!(unsafe { libc::ioctl(fd, 0x894B, &raw mut bytes) }, 0);
        bytes.try_into().unwrap()
    }

    /// Writes without blocking to an end that does not read, until the kernel refuses. Returns the number of bytes that
    /// are unsent then. What arrives must be what was written.
    fn fill(piece: u32) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let fd = client.as_raw_fd();
        sys::set_notsent_lowat(fd, LOWAT).unwrap();
        let stream: Vec<u8> = (0..1_u32 << 24).map(|byte| (byte % 251) as u8).collect();
        let filled = AtomicU32::new(0);
        let order = if piece > 0 { Order::Pieces { bytes: piece } } else { Order::None };
        let mut written = 0;
        let refused = loop {
            let (one, two) = stream[written..written + (1 << 20)].split_at(1000);
            let mut parts = vec![part(&[]); PARTS + 1];
            parts.extend([part(one), part(&[]), part(two)]);
            let whole = || {
                // SAFETY: zeroes are an empty message.
                let mut message: msghdr = unsafe { std::mem::zeroed() };
                message.msg_iov = parts.as_ptr().cast_mut();
                message.msg_iovlen = parts.len() as _;
                // SAFETY: the parts are slices.
                unsafe { real::sendmsg(fd, &raw const message, MSG_DONTWAIT) }
            };
            let sent = match Pieces::of(order, Some(&filled), MSG_DONTWAIT) {
                // SAFETY: the parts are slices.
                Some(pieces) => unsafe { pieces.write(fd, &parts, MSG_DONTWAIT, whole) },
                None => whole(),
            };
            match usize::try_from(sent) {
                Ok(sent) => written += sent,
                Err(_) => break errno(),
            }
        };
        assert_eq!(refused, libc::EAGAIN);
        let unsent = unsent(fd);
        drop(client);
        let mut read = Vec::new();
        server.read_to_end(&mut read).unwrap();
        assert!(read == stream[..written], "{} of {written}", read.len());
        unsent
    }

    #[test]
    fn large_writes_leave_no_more_than_the_limit_and_a_piece_unsent() {
        let [whole, cut] = [0, 2800].map(fill);
        assert!(cut <= LOWAT + 2800, "{cut}");
        assert!(whole > 32_768, "{whole}");
    }

    #[test]
    fn bytes_before_a_part_that_cannot_be_read_count_as_written() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = client.as_raw_fd();
        sys::set_notsent_lowat(fd, LOWAT).unwrap();
        let filled = AtomicU32::new(0);
        let pieces = Pieces::of(Order::Pieces { bytes: 10 }, Some(&filled), 0).unwrap();
        let nowhere = iovec { iov_base: std::ptr::without_provenance_mut(1), iov_len: 5 };
        // SAFETY: the first part is a slice, and the kernel checks the other one.
        assert_eq!(unsafe { pieces.write(fd, &[part(b"ten bytes."), nowhere], 0, || unreachable!()) }, 10);
    }

    #[test]
    fn other_descriptors_and_other_flags_are_left_alone() {
        let filled = AtomicU32::new(0);
        let order = Order::Pieces { bytes: 10 };
        assert!(Pieces::of(order, Some(&filled), libc::MSG_OOB).is_none());
        assert!(Pieces::of(Order::None, Some(&filled), 0).is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        let pieces = Pieces::of(order, Some(&filled), 0).unwrap();
        // SAFETY: the part is a slice.
        assert_eq!(unsafe { pieces.write(file.as_raw_fd(), &[part(&[0; 30])], 0, || 77) }, 77);
    }

    #[test]
    fn small_writes_fill_a_piece_together() {
        let filled = AtomicU32::new(0);
        let pieces = Pieces::of(Order::Pieces { bytes: 10 }, Some(&filled), 0).unwrap();
        let rooms: Vec<usize> = [4, 5, 1, 3]
            .map(|bytes| {
                pieces.add(bytes);
                pieces.room()
            })
            .into();
        assert_eq!(rooms, [6, 1, 10, 7]);
        // The size has changed within a piece.
        let smaller = Pieces::of(Order::Pieces { bytes: 2 }, Some(&filled), 0).unwrap();
        assert_eq!(smaller.room(), 1);
    }
}
