//! Hooks of calls that write, for libdwell_calls: they record times and bytes for the estimator `paper`, and delay
//! callers for the controller `element`.

use dwell_engine::socket::control::Hold;
use libc::{MSG_FASTOPEN, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::{
    super::{
        preload::{self, Mark, Opening, State},
        stamps::Stamp,
    },
    real,
};
use crate::sys;

/// write(2).
///
/// # Safety
/// As write(2).
pub unsafe fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, || unsafe { real::write(fd, bytes, count) })
}

/// writev(2).
///
/// # Safety
/// As writev(2).
pub unsafe fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, || unsafe { real::writev(fd, parts, count) })
}

/// send(2), which is sendto(2) without an address.
///
/// # Safety
/// As send(2).
pub unsafe fn send(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, || unsafe { real::sendto(fd, bytes, count, flags, std::ptr::null(), 0) })
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
    // SAFETY: the caller's promise.
    let sent = around(fd, || unsafe { real::sendto(fd, bytes, count, flags, to, length) });
    opened(fd, flags, sent);
    sent
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let sent = around(fd, || unsafe { real::sendmsg(fd, message, flags) });
    opened(fd, flags, sent);
    sent
}

/// sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
pub unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let mut sent = 0;
    around(fd, || {
        // SAFETY: the caller's promise.
        sent = unsafe { real::sendmmsg(fd, messages, count, flags) };
        let whole = usize::try_from(sent).unwrap_or(0);
        (0..whole).fold(0, |bytes: ssize_t, at| {
            // SAFETY: the kernel has written the length of each sent message.
            bytes + unsafe { (*messages.add(at)).msg_len } as ssize_t
        })
    });
    sent
}

/// sendfile(2).
///
/// # Safety
/// As sendfile(2).
pub unsafe fn sendfile(fd: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, || unsafe { real::sendfile(fd, from, offset, count) })
}

/// Wraps a call that writes and returns the number of bytes written.
#[inline]
fn around(fd: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(state) = preload::state() else {
        return call();
    };
    let began = state.mark(fd);
    let time_ns = (began.is_watched() && state.wants_stamps()).then(sys::monotonic_ns);
    let sent = call();
    if sent > 0 && began.is_watched() {
        after(state, fd, began, time_ns, sent as u64);
    }
    sent
}

fn after(state: &State, fd: c_int, began: Mark, time_ns: Option<u64>, bytes: u64) {
    if let Some(time_ns) = time_ns {
        state.wrote(Stamp { time_ns, bytes, fd, generation: began.generation() });
    }
    if let Some(wanted) = state.mark(fd).hold() {
        hold(fd, wanted);
    }
}

/// Delays the caller while too many bytes are unsent. A signal ends the delay.
pub(crate) fn hold(fd: c_int, hold: Hold) {
    let mut pause_ns = 1_000_000_u64;
    for _ in 0..hold.times {
        if sys::unsent(fd).is_none_or(|unsent| unsent <= hold.unsent_bytes) {
            return;
        }
        pause_ns = pause_ns * u64::from(hold.factor_permille) / 1000;
        if !sys::sleep(pause_ns) {
            return;
        }
    }
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
