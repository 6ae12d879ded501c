//! Hooks of calls that write, for libdwell_calls: they pass bytes in pieces for the controller `lowat`, delay callers for
//! the controller `element`, and record times and bytes for the estimator `paper`.

use std::cell::Cell;

use dwell_engine::socket::control::Element;
use libc::{MSG_FASTOPEN, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::{
    super::{
        mark::{Opening, Order},
        preload,
        stamps::CallEvent,
    },
    pieces::Pieces,
    real,
};
use crate::sys;

/// write(2).
///
/// # Safety
/// As write(2).
pub unsafe fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    let part = [iovec { iov_base: bytes.cast_mut(), iov_len: count }];
    // SAFETY: the caller's promise.
    unsafe { in_pieces(fd, &part, 0, || real::write(fd, bytes, count)) }
}

/// writev(2).
///
/// # Safety
/// As writev(2).
pub unsafe fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { in_pieces(fd, slice(parts, count.try_into().unwrap_or(0)), 0, || real::writev(fd, parts, count)) }
}

/// send(2), which is sendto(2) without an address.
///
/// # Safety
/// As send(2).
pub unsafe fn send(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendto(fd, bytes, count, flags, std::ptr::null(), 0) }
}

/// sendto(2).
///
/// # Safety
/// As sendto(2).
pub unsafe fn sendto(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    let part = [iovec { iov_base: bytes.cast_mut(), iov_len: count }];
    let parts: &[iovec] = if to.is_null() { &part } else { &[] };
    // SAFETY: the caller's promise.
    let sent = unsafe { in_pieces(fd, parts, flags, || real::sendto(fd, bytes, count, flags, to, length)) };
    opened(fd, flags, sent);
    sent
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise, unless it passes no message, which the kernel refuses.
    let parts = unsafe { message.as_ref() }
        .filter(|message| message.msg_name.is_null() && message.msg_controllen == 0)
        // SAFETY: the caller's promise.
        .map_or(&[][..], |message| unsafe { slice(message.msg_iov, message.msg_iovlen) });
    // SAFETY: the caller's promise.
    let sent = unsafe { in_pieces(fd, parts, flags, || real::sendmsg(fd, message, flags)) };
    opened(fd, flags, sent);
    sent
}

/// sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
pub unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let sent = Cell::new(0);
    let whole = || {
        // SAFETY: the caller's promise.
        sent.set(unsafe { real::sendmmsg(fd, messages, count, flags) });
        (0..usize::try_from(sent.get()).unwrap_or(0)).fold(0, |bytes: ssize_t, at| {
            // SAFETY: the kernel has written the length of each sent message.
            bytes + unsafe { (*messages.add(at)).msg_len } as ssize_t
        })
    };
    // SAFETY: the caller's promise.
    unsafe { in_pieces(fd, &[], flags, whole) };
    sent.get()
}

/// sendfile(2).
///
/// # Safety
/// As sendfile(2).
pub unsafe fn sendfile(fd: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { in_pieces(fd, &[], 0, || real::sendfile(fd, from, offset, count)) }
}

/// Returns the parts of a call; none if there are more than the kernel takes, or none.
///
/// # Safety
/// As writev(2).
unsafe fn slice<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    const UIO_MAXIOV: usize = 1024;
    if parts.is_null() || count > UIO_MAXIOV {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// Passes `parts` in pieces if a controller demands it, and makes the whole call otherwise, or if there are none; while others
/// pass pieces, it waits for its turn.
///
/// # Safety
/// As writev(2).
#[inline]
unsafe fn in_pieces(fd: c_int, parts: &[iovec], flags: c_int, whole: impl Fn() -> ssize_t) -> ssize_t {
    around(fd, |order| {
        let stream = || preload::state()?.stream(fd);
        match Pieces::of(order, stream()) {
            // SAFETY: the caller's promise.
            Some(pieces) => unsafe { pieces.write(fd, parts, flags, whole) },
            None => whole(),
        }
    })
}

/// Wraps a call that writes and returns the number of bytes written.
#[inline]
fn around(fd: c_int, call: impl FnOnce(Order) -> ssize_t) -> ssize_t {
    let Some(state) = preload::state() else {
        return call(Order::None);
    };
    let mark = state.mark(fd);
    if !mark.is_watched() {
        return call(Order::None);
    }
    let wants_stamps = state.wants_stamps();
    if wants_stamps {
        state.called(fd, mark.generation(), CallEvent::WriteBegins);
    }
    let sent = call(mark.order());
    if wants_stamps {
        state.called(fd, mark.generation(), CallEvent::WriteEnds(sent.try_into().unwrap_or(0)));
    }
    if sent > 0
        && let Order::Hold { unsent_bytes } = state.mark(fd).order()
    {
        hold(fd, unsent_bytes);
    }
    sent
}

/// Delays the caller as Algorithm 3 does after a write: while more bytes are unsent than its target, and at most as
/// often as it allows. A signal ends the delay.
pub(crate) fn hold(fd: c_int, target_bytes: u64) {
    let mut sleeps = (0..).map_while(Element::sleep_ns);
    while unsent(fd).is_some_and(|unsent| unsent > target_bytes) {
        match sleeps.next() {
            Some(pause_ns) if sys::sleep(pause_ns) => {}
            _ => return,
        }
    }
}

/// Returns seq - B_est: what the application has written, less what has left as Algorithm 1 estimates it. The
/// acknowledged bytes are part of both.
fn unsent(fd: c_int) -> Option<u64> {
    let info = sys::info(fd).ok()?;
    let flying = u64::from(info.unacked) * u64::from(info.send_mss);
    Some(sys::unacknowledged(fd)?.saturating_sub(flying))
}

/// Reports the connection that a writing call may have opened.
fn opened(fd: c_int, flags: c_int, sent: ssize_t) {
    if flags & MSG_FASTOPEN != 0
        && (sent >= 0 || super::is_in_progress())
        && let Some(state) = preload::state()
    {
        state.connected(fd, Opening::InProgress);
    }
}
