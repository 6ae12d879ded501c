//! Exports of the intercepted calls that open connections, or change the rights of the program.
#![allow(unsafe_code)]

use dwell_socket::inside::{hooks, preload};
use libc::{c_char, c_int, c_long, c_ulong, gid_t, size_t, sockaddr, socklen_t, uid_t};

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

/// Options of AddressSanitizer where the program has none of its own: it would end a program that has another library loaded
/// before its own.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

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

macro_rules! changes {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// As the call of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { hooks::$name($($argument),*) }
        }
    )*};
}

dwell_socket::calls_that_change_rights!(changes);

/// prctl(2). Its variable arguments are passed as others are; those that the caller has left out are not read.
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { hooks::prctl(option, [a, b, c, d]) }
}

/// syscall(2), as prctl(2).
///
/// # Safety
/// As the call of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { hooks::syscall(number, [a, b, c, d, e, f]) }
}
