//! Hooks of calls that read, for libdwell_calls: they record times and bytes for the estimator `paper`.

use libc::{MSG_PEEK, c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{
    super::{preload, stamps::CallEvent},
    real,
};

/// read(2).
///
/// # Safety
/// As read(2).
pub unsafe fn read(fd: c_int, bytes: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, 0, || unsafe { real::read(fd, bytes, count) })
}

/// readv(2).
///
/// # Safety
/// As readv(2).
pub unsafe fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, 0, || unsafe { real::readv(fd, parts, count) })
}

/// recv(2), which is recvfrom(2) without an address.
///
/// # Safety
/// As recv(2).
pub unsafe fn recv(fd: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    let (from, length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, bytes, count, flags, from, length) }
}

/// recvfrom(2).
///
/// # Safety
/// As recvfrom(2).
pub unsafe fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    count: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, flags, || unsafe { real::recvfrom(fd, bytes, count, flags, from, length) })
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, flags, || unsafe { real::recvmsg(fd, message, flags) })
}

/// Wraps a call that reads and returns the number of bytes read.
#[inline]
fn around(fd: c_int, flags: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let read = call();
    if read > 0
        && flags & MSG_PEEK == 0
        && let Some(state) = preload::state()
    {
        let mark = state.mark(fd);
        if mark.is_watched() && state.wants_stamps() {
            state.called(fd, mark.generation(), CallEvent::Read(read as u64));
        }
    }
    read
}
