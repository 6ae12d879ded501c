//! The intercepted calls: each makes the call and notifies the poller.
//!
//! Each sets errno like the call that it stands for, is a cancellation point where that is one, and is as safe in a
//! signal handler.
#![allow(unsafe_code)]

mod pieces;
mod reads;
mod real;
mod rights;
mod writes;

use libc::{c_int, sockaddr, socklen_t};

use super::{mark::Opening, preload};

pub use reads::{read, readv, recv, recvfrom, recvmsg};
pub use real::resolve;
pub use rights::{
    chroot, prctl, setegid, seteuid, setgid, setgroups, setns, setregid, setresgid, setresuid, setreuid, setuid,
    syscall, unshare,
};
pub use writes::{send, sendfile, sendmmsg, sendmsg, sendto, write, writev};

pub(crate) use writes::hold;

pub(super) use pieces::Stream;

/// connect(2).
///
/// # Safety
/// As connect(2).
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { real::connect(fd, address, length) };
    if let Some(state) = preload::state() {
        if result == 0 {
            state.connected(fd, Opening::Initiated);
        } else if is_in_progress() {
            state.connected(fd, Opening::InProgress);
        }
    }
    result
}

/// accept(2).
///
/// # Safety
/// As accept(2).
pub unsafe fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    accepted(unsafe { real::accept(fd, address, length) })
}

/// accept4(2).
///
/// # Safety
/// As accept4(2).
pub unsafe fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    accepted(unsafe { real::accept4(fd, address, length, flags) })
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0
        && let Some(state) = preload::state()
    {
        state.connected(fd, Opening::Accepted);
    }
    fd
}

/// Returns true if the requested connection is still being established.
fn is_in_progress() -> bool {
    matches!(errno(), libc::EINPROGRESS | libc::EINTR)
}

fn set_errno(errno: c_int) {
    // SAFETY: it points to the errno of this thread, which was started by libc.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the error of the last call.
fn errno() -> c_int {
    // SAFETY: it points to the errno of this thread, which was started by libc.
    unsafe { *libc::__errno_location() }
}
