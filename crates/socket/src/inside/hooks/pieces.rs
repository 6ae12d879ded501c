//! Writes in pieces.
//!
//! The kernel compares the unsent bytes with TCP_NOTSENT_LOWAT when it starts a new packet buffer, which with segmentation
//! offload holds 64 KB: a program that writes much at once gets that much more than the limit into the send buffer.
//! MSG_EOR completes a packet buffer early. The stream is therefore cut into pieces of one size, whatever the sizes of
//! the program's writes, and the kernel makes the program wait, or refuses the rest, at a cut. A write that is not longer
//! than a piece is not cut, so that a piece has up to twice its size.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{MSG_DONTWAIT, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, POLLOUT, c_int, iovec, msghdr, pollfd, ssize_t, timespec};

use super::{super::mark::Order, errno, real};
use crate::sys;

/// Flags of calls that may be cut. The kernel does something else for each call with another flag, which only has its turn.
const KNOWN: c_int = MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL | MSG_EOR;

/// Most parts of a piece. With more parts a piece is shorter than it could be.
const PARTS: usize = 16;

/// What is known of the stream at a descriptor.
#[derive(Debug, Default)]
pub struct Stream {
    /// Bytes since the last piece was complete.
    filled: AtomicU32,
    /// The thread that writes, and [`IS_AWAITED`]; 0 if none does.
    writer: AtomicU32,
}

/// Set if another thread waits for its turn to write.
const IS_AWAITED: u32 = 1 << 31;

/// How long a thread waits for its turn, in rounds of this length. A thread that was cancelled while it wrote never ends its turn.
const TURN_NS: u64 = 1_000_000;
const TURN_ROUNDS: u32 = 10_000;
/// The most rounds that a call with MSG_DONTWAIT waits.
const SHORT_ROUNDS: u32 = 20;

/// How long a call waits before it tries again where the kernel has too little memory for all sockets together.
const SCARCE_NS: u64 = 1_000_000;

/// The right to write to a stream, until it is dropped. A write that is cut takes several calls, and those of other
/// threads must not come between them: programs rely on it that the kernel keeps the bytes of one call together.
struct Turn<'a> {
    stream: &'a Stream,
    thread: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let writer = &self.stream.writer;
        // Whoever has waited for too long has taken the turn.
        let free = |word: u32| (word & !IS_AWAITED == self.thread).then_some(0);
        if writer.fetch_update(Release, Relaxed, free).is_ok_and(|word| word & IS_AWAITED != 0) {
            sys::wake(writer);
        }
    }
}

impl Stream {
    /// Waits until no other thread writes. `None` if the calling thread writes already, as it is in a handler of a signal, or if
    /// another one still does after fewer than [`TURN_ROUNDS`].
    fn turn(&self, rounds: u32) -> Option<Turn<'_>> {
        let thread = thread();
        for _ in 0..rounds {
            match self.writer.compare_exchange(0, thread, Acquire, Relaxed) {
                Ok(_) => return Some(Turn { stream: self, thread }),
                Err(writer) if writer & !IS_AWAITED == thread => return None,
                Err(writer) => {
                    let awaited = writer | IS_AWAITED;
                    if self.writer.compare_exchange(writer, awaited, Relaxed, Relaxed).is_ok() {
                        sys::wait(&self.writer, awaited, TURN_NS);
                    }
                }
            }
        }
        if rounds < TURN_ROUNDS {
            return None;
        }
        self.writer.swap(thread, Acquire);
        Some(Turn { stream: self, thread })
    }

    /// Forgets what a former connection at the descriptor has left.
    pub fn reset(&self) {
        self.filled.store(0, Relaxed);
        self.writer.store(0, Release);
    }
}

/// Returns a number of this thread, not 0, from the address of its `errno`: a system call might be forbidden by a filter. Two
/// threads share one only if their storage is a multiple of 16 GiB apart.
fn thread() -> u32 {
    // SAFETY: the address of this thread's errno, which is not read.
    let address = unsafe { libc::__errno_location() } as usize;
    (address >> 3) as u32 & !IS_AWAITED | 1
}

/// A cut stream, and the size of its pieces, which is not 0.
pub struct Pieces<'a> {
    bytes: u32,
    stream: &'a Stream,
}

impl<'a> Pieces<'a> {
    /// Returns how the stream at a descriptor is to be cut, if at all.
    pub fn of(order: Order, stream: Option<&'a Stream>) -> Option<Pieces<'a>> {
        match (order, stream) {
            (Order::Pieces { bytes }, Some(stream)) => Some(Pieces { bytes, stream }),
            _ => None,
        }
    }

    /// Makes a call that writes `parts`: as it is, by `whole`, if it does not complete a piece, has no parts, or has another
    /// flag than those that are known; at once, if it is not longer than a piece; and cut otherwise.
    ///
    /// # Safety
    /// As writev(2).
    pub unsafe fn write(&self, fd: c_int, parts: &[iovec], flags: c_int, whole: impl Fn() -> ssize_t) -> ssize_t {
        let rounds = if flags & MSG_DONTWAIT == 0 { TURN_ROUNDS } else { SHORT_ROUNDS };
        let turn = self.stream.turn(rounds);
        let length = parts.iter().fold(0_usize, |length, part| length.saturating_add(part.iov_len));
        if length < self.room() || flags & !KNOWN != 0 || turn.is_none() {
            let sent = whole();
            self.add(usize::try_from(sent).unwrap_or(0), false);
            return sent;
        }
        // The program may have closed the socket, and opened something else at its descriptor.
        if !sys::is_tcp(fd) {
            return whole();
        }
        let sent = match length <= self.bytes as usize {
            // SAFETY: the caller's promise.
            true => unsafe { self.send_at_once(fd, parts, (flags, length)) },
            // SAFETY: the caller's promise.
            false => unsafe { self.send(fd, parts, flags) },
        };
        sent.unwrap_or_else(whole)
    }

    /// Returns the number of bytes that complete the current piece. The size may have changed since it was begun.
    fn room(&self) -> usize {
        (self.bytes - self.stream.filled.load(Relaxed) % self.bytes) as usize
    }

    /// Adds bytes that the kernel has taken, and ends the piece with them or does not.
    fn add(&self, bytes: usize, is_complete: bool) {
        let filled = (self.stream.filled.load(Relaxed) % self.bytes).saturating_add(bytes as u32);
        self.stream.filled.store(if is_complete { 0 } else { filled }, Relaxed);
    }

    /// Completes the current piece by one call, so that the kernel keeps its bytes together. Returns as [`Pieces::send`].
    ///
    /// # Safety
    /// As writev(2).
    unsafe fn send_at_once(&self, fd: c_int, parts: &[iovec], (flags, length): (c_int, usize)) -> Option<ssize_t> {
        // SAFETY: the caller's promise.
        let now = unsafe { sendmsg(fd, parts, flags | MSG_EOR) };
        if now < 0 && matches!(errno(), libc::EOPNOTSUPP | libc::EINVAL) {
            return None;
        }
        let taken = usize::try_from(now).unwrap_or(0);
        self.add(taken, taken == length);
        Some(now)
    }

    /// Sends `parts` in pieces. Returns what sendmsg(2) would: the number of bytes that the kernel took, or -1. `None` if the
    /// socket does not know MSG_EOR, and nothing was sent.
    ///
    /// # Safety
    /// As writev(2).
    unsafe fn send(&self, fd: c_int, parts: &[iovec], flags: c_int) -> Option<ssize_t> {
        let mut rest = Rest { parts, offset: 0 };
        rest.skip(0);
        let mut sent: ssize_t = 0;
        let begun_ns = sys::monotonic_ns();
        let mut patience = None;
        // The kernel would wait for each piece anew, although the call's time is over or a signal came.
        let mut has_waited = false;
        loop {
            let room = self.room();
            let mut piece = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
            let (count, length) = rest.fill(room, &mut piece);
            if length == 0 {
                return Some(sent);
            }
            let end = if length == room { MSG_EOR } else { 0 };
            let is_trial = sent > 0 && flags & MSG_DONTWAIT == 0;
            let wait = if is_trial { MSG_DONTWAIT } else { 0 };
            // SAFETY: the parts are within those of the caller.
            let now = unsafe { sendmsg(fd, &piece[..count], flags | end | wait) };
            let Ok(taken) = usize::try_from(now) else {
                return match errno() {
                    libc::EAGAIN if is_trial => {
                        if has_waited {
                            // There is room, but not in the memory of all sockets.
                            sys::wait(&AtomicU32::new(0), 0, SCARCE_NS);
                        }
                        let patience = patience.get_or_insert_with(|| Patience::of(fd, begun_ns));
                        has_waited = patience.waits_for_room(fd);
                        if has_waited {
                            continue;
                        }
                        Some(sent)
                    }
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
            self.add(taken, taken == room);
            sent += now;
            rest.skip(taken);
            if taken < length && !is_trial {
                return Some(sent);
            }
            has_waited = false;
        }
    }
}

/// For how long a call waits.
enum Patience {
    /// The socket is one whose calls do not wait.
    None,
    /// Until then, or as long as it takes.
    Until(Option<u64>),
}

impl Patience {
    /// That of a call that began at this time.
    fn of(fd: c_int, begun_ns: u64) -> Patience {
        match sys::is_nonblocking(fd) {
            true => Patience::None,
            false => Patience::Until(sys::send_timeout_ns(fd).map(|limit_ns| begun_ns.saturating_add(limit_ns))),
        }
    }

    /// Waits for room in the send buffer, or for the end of the connection. Returns false if a signal came, or if the time is over.
    fn waits_for_room(&self, fd: c_int) -> bool {
        let &Patience::Until(end_ns) = self else {
            return false;
        };
        let left_ns = end_ns.map(|end_ns| end_ns.saturating_sub(sys::monotonic_ns()));
        if left_ns == Some(0) {
            return false;
        }
        let mut left = left_ns.map(|left_ns| timespec {
            tv_sec: (left_ns / 1_000_000_000) as _,
            tv_nsec: (left_ns % 1_000_000_000) as _,
        });
        let mut polled = pollfd { fd, events: POLLOUT, revents: 0 };
        let time = left.as_mut().map_or(std::ptr::null(), |left| std::ptr::from_mut(left).cast_const());
        // SAFETY: it reads and writes one time, if any, and one descriptor.
        unsafe { real::ppoll(&raw mut polled, 1, time, std::ptr::null()) == 1 }
    }
}

/// # Safety
/// As writev(2).
unsafe fn sendmsg(fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    // SAFETY: zeroes are an empty message.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the caller's promise.
    unsafe { real::sendmsg(fd, &raw const message, flags) }
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
        let cut = Stream::default();
        let order = if piece > 0 { Order::Pieces { bytes: piece } } else { Order::None };
        let mut written = 0;
        let refused = loop {
            let (one, two) = stream[written..written + (1 << 20)].split_at(1000);
            let mut parts = vec![part(&[]); PARTS + 1];
            parts.extend([part(one), part(&[]), part(two)]);
            // SAFETY: the parts are slices.
            let whole = || unsafe { sendmsg(fd, &parts, MSG_DONTWAIT) };
            let sent = match Pieces::of(order, Some(&cut)) {
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
        let cut = Stream::default();
        let pieces = Pieces::of(Order::Pieces { bytes: 9 }, Some(&cut)).unwrap();
        let nowhere = iovec { iov_base: std::ptr::without_provenance_mut(1), iov_len: 5 };
        // SAFETY: the first part is a slice, and the kernel checks the other one.
        assert_eq!(unsafe { pieces.write(fd, &[part(b"ninebytes"), nowhere], 0, || unreachable!()) }, 9);
    }

    #[test]
    fn other_descriptors_and_other_flags_are_left_alone() {
        let cut = Stream::default();
        assert!(Pieces::of(Order::None, Some(&cut)).is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        let pieces = Pieces::of(Order::Pieces { bytes: 10 }, Some(&cut)).unwrap();
        for flags in [0, libc::MSG_OOB] {
            // SAFETY: the part is a slice.
            assert_eq!(unsafe { pieces.write(file.as_raw_fd(), &[part(&[0; 30])], flags, || 77) }, 77);
        }
    }

    #[test]
    fn what_is_not_cut_has_a_turn_too() {
        let cut = Stream::default();
        let pieces = Pieces::of(Order::Pieces { bytes: 10 }, Some(&cut)).unwrap();
        for flags in [0, libc::MSG_OOB] {
            let whole = || {
                assert_ne!(cut.writer.load(Relaxed), 0);
                5
            };
            // SAFETY: there are no parts.
            assert_eq!(unsafe { pieces.write(-1, &[], flags, whole) }, 5);
        }
        assert_eq!((cut.writer.load(Relaxed), pieces.room()), (0, 10));
    }

    #[test]
    fn small_writes_fill_a_piece_together() {
        let cut = Stream::default();
        let pieces = Pieces::of(Order::Pieces { bytes: 10 }, Some(&cut)).unwrap();
        let rooms: Vec<usize> = [4, 5, 1, 3]
            .map(|bytes| {
                pieces.add(bytes, bytes == pieces.room());
                pieces.room()
            })
            .into();
        assert_eq!(rooms, [6, 1, 10, 7]);
        // The size has changed within a piece.
        let smaller = Pieces::of(Order::Pieces { bytes: 2 }, Some(&cut)).unwrap();
        assert_eq!(smaller.room(), 1);
    }
}
