//! The functions of `include/dwell.h`.
#![allow(unsafe_code)]

mod session_cell;
mod types;

use std::{ffi::CStr, sync::Arc, time::Duration};

use dwell_socket::{Bound, Error, Session, inside::CallEvent, table};
use libc::{c_int, c_void, iovec, msghdr, size_t, ssize_t};
use session_cell::SessionCell;
use types::{Config, Controller, Info};

static SESSION: SessionCell = SessionCell::empty();

/// Starts the session of the process.
///
/// # Safety
/// `config` is NULL or points to a `struct dwell_config`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_init(config: *const Config) -> c_int {
    // SAFETY: the caller's promise.
    let config = match unsafe { types::config(config) } {
        Some(config) => config,
        None => return failed(libc::EINVAL),
    };
    if SESSION.get().is_some() {
        return failed(libc::EALREADY);
    }
    match Session::start(&config) {
        Ok(started) => {
            // Another thread may have been faster.
            if SESSION.set(Arc::new(started)) { 0 } else { failed(libc::EALREADY) }
        }
        Err(error) => failed(number(&error)),
    }
}

/// Ends the session of the process.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_close() {
    // A thread that waits holds a reference too, and drops it once it is woken.
    if let Some(session) = SESSION.take() {
        session.end();
    }
}

/// The wrapped calls of libc. A thread may be cancelled in each of them, which unwinds it.
mod libc_calls {
    use libc::{c_int, c_void, iovec, msghdr, size_t, ssize_t};

    unsafe extern "C-unwind" {
        pub fn send(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t;
        pub fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        pub fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t;
        pub fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
        pub fn recv(fd: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
        pub fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
        pub fn read(fd: c_int, bytes: *mut c_void, count: size_t) -> ssize_t;
        pub fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    }
}

macro_rules! calls {
    ($($name:ident = $call:ident($($argument:ident: $type:ty),*) $direction:ident;)*) => {$(
        /// # Safety
        /// As the call that it wraps; `info` is NULL or points to a `struct dwell_info` with its size.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, $($argument: $type,)* info: *mut Info) -> ssize_t {
            if Direction::$direction == Direction::Writes {
                called(fd, CallEvent::WriteBegins);
            }
            // SAFETY: the caller's promise.
            let result = unsafe { libc_calls::$call(fd, $($argument),*) };
            // SAFETY: the caller's promise.
            unsafe { after(fd, Direction::$direction, result, info) };
            result
        }
    )*};
}

calls! {
    dwell_send = send(bytes: *const c_void, count: size_t, flags: c_int) Writes;
    dwell_sendmsg = sendmsg(message: *const msghdr, flags: c_int) Writes;
    dwell_write = write(bytes: *const c_void, count: size_t) Writes;
    dwell_writev = writev(parts: *const iovec, count: c_int) Writes;
    dwell_recv = recv(bytes: *mut c_void, count: size_t, flags: c_int) Reads;
    dwell_recvmsg = recvmsg(message: *mut msghdr, flags: c_int) Reads;
    dwell_read = read(bytes: *mut c_void, count: size_t) Reads;
    dwell_readv = readv(parts: *const iovec, count: c_int) Reads;
}

/// Returns the figures of a connection.
///
/// # Safety
/// `info` is NULL or points to a `struct dwell_info` with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_get(fd: c_int, info: *mut Info) -> c_int {
    let known = with(|session| session.info_raw(fd));
    // SAFETY: the caller's promise.
    unsafe { Info::copy_to(known.as_ref().ok(), info) };
    known.map_or_else(failed, |_| 0)
}

/// Waits until a bound is exceeded.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_wait(fd: c_int, threshold_ns: u64, timeout_ms: c_int) -> c_int {
    let threshold = Some(Duration::from_nanos(threshold_ns));
    let bound = Bound { sender_delay: threshold, jitter: threshold };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    with(|session| session.wait_raw(fd, bound, timeout)).map_or_else(failed, c_int::from)
}

/// Lets a callback of the program decide the settings of a connection.
///
/// # Safety
/// `controller` may be called with `user` from another thread as long as the connection is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_control(fd: c_int, controller: Option<types::Callback>, user: *mut c_void) -> c_int {
    let Some(callback) = controller else {
        return failed(libc::EINVAL);
    };
    let controller = Box::new(Controller::new(callback, user));
    with(|session| session.control_raw(fd, controller)).map_or_else(failed, |()| 0)
}

/// What a call does to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Writes,
    Reads,
}

/// Records a call, if there is a session.
fn called(fd: c_int, event: CallEvent) {
    let _ = with(|session| {
        session.called_raw(fd, event);
        Ok(())
    });
}

/// Runs after a call that carried data, and preserves its errno.
///
/// # Safety
/// As [`Info::copy_to`].
unsafe fn after(fd: c_int, direction: Direction, result: ssize_t, info: *mut Info) {
    // SAFETY: it points to the errno of this thread.
    let errno = unsafe { *libc::__errno_location() };
    let bytes = u64::try_from(result).unwrap_or(0);
    match direction {
        Direction::Writes => called(fd, CallEvent::WriteEnds(bytes)),
        Direction::Reads if bytes > 0 => called(fd, CallEvent::Read(bytes)),
        Direction::Reads => {}
    }
    let known = with(|session| {
        if direction == Direction::Writes && bytes > 0 {
            session.hold_raw(fd);
        }
        // A connection is watched once a caller asks for its figures.
        (!info.is_null()).then(|| session.info_raw(fd)).transpose()
    });
    // SAFETY: the caller's promise.
    unsafe { Info::copy_to(known.ok().flatten().as_ref(), info) };
    set_errno(errno);
}

fn with<T>(call: impl FnOnce(&Session) -> Result<T, Error>) -> Result<T, c_int> {
    let session = SESSION.get().ok_or(libc::EINVAL)?;
    call(&session).map_err(|error| number(&error))
}

fn number(error: &Error) -> c_int {
    match error {
        Error::Config(table::Error::Congestion { .. }) => libc::EINVAL,
        Error::Config(table::Error::Memory { source, .. }) | Error::Poller { source } => {
            source.raw_os_error().unwrap_or(libc::EAGAIN)
        }
        Error::NotTcp { .. } | Error::Ended => libc::ENOTCONN,
        Error::Full => libc::ENOSPC,
        Error::Forked => libc::EINVAL,
    }
}

fn failed(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

fn set_errno(errno: c_int) {
    // SAFETY: it points to the errno of this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Reads a string of the caller. Returns `None` if it is not UTF-8, and `Some(None)` for NULL.
///
/// # Safety
/// `pointer` is NULL, or points to a string that ends with a NUL.
unsafe fn text(pointer: *const libc::c_char) -> Option<Option<String>> {
    if pointer.is_null() {
        return Some(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(Some(text.to_str().ok()?.to_owned()))
}
