//! Exports of the intercepted calls that open connections.
#![allow(unsafe_code)]

use dwell_socket::inside::{hooks, preload};
use libc::{c_int, sockaddr, socklen_t};

/// Constructor, which the dynamic linker calls before main.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    hooks::resolve();
    preload::begin();
}

/// Marks the library: see `preload::MARKER`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a C name")]
pub static dwell_library: u8 = 0;

/// connect(2).
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { hooks::connect(fd, address, length) }
}

/// accept(2).
///
/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { hooks::accept(fd, address, length) }
}

/// accept4(2).
///
/// # Safety
/// As accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { hooks::accept4(fd, address, length, flags) }
}
