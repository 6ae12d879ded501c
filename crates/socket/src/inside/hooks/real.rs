//! The intercepted calls as the next library in the search order defines them.

use std::{
    ffi::{CStr, c_void},
    mem::transmute_copy,
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, gid_t, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, uid_t,
};

use super::set_errno;
use crate::sys::{self, Errno};

/// A function of the next library.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns null if no library has the function, or before the library's constructor. An allocator may call one of them
    /// then, and dlsym(3) allocates: looking it up here would never return.
    fn get(&self) -> *mut c_void {
        self.address.load(Acquire)
    }

    fn resolve(&self) {
        // SAFETY: the name ends with a NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Release);
    }
}

macro_rules! next {
    ($($number:ident $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        mod found {
            $(#[allow(non_upper_case_globals, reason = "named as the function")]
            pub(super) static $name: super::Next = {
                // The compiler checks that the name ends with a NUL and has no other.
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => super::Next::new(name),
                    Err(_) => panic!("a NUL in a name"),
                }
            };)*
        }

        /// Looks all of them up. Until then the kernel is called without libc.
        pub fn resolve() {
            $(found::$name.resolve();)*
            SYSCALL.resolve();
            SETEUID.resolve();
            SETEGID.resolve();
        }

        $(
            /// # Safety
            /// As the call.
            #[inline]
            pub unsafe fn $name($($argument: $type),*) -> $result {
                let next = found::$name.get();
                if next.is_null() {
                    // SAFETY: the caller's promise.
                    return unsafe { direct(libc::$number, &[$($argument as usize),*]) } as $result;
                }
                // SAFETY: the function of this name has this type in every libc.
                let next: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { transmute_copy(&next) };
                // SAFETY: the caller's promise.
                unsafe { next($($argument),*) }
            }
        )*
    };
}

next! {
    SYS_connect connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    SYS_accept accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    SYS_accept4 accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    SYS_write write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t;
    SYS_writev writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    SYS_sendmsg sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    SYS_sendmmsg sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    SYS_sendfile sendfile(fd: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    SYS_read read(fd: c_int, bytes: *mut c_void, count: size_t) -> ssize_t;
    SYS_readv readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    SYS_recvmsg recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    SYS_recvfrom recvfrom(fd: c_int, bytes: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    SYS_ppoll ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int;
    SYS_setuid setuid(user: uid_t) -> c_int;
    SYS_setreuid setreuid(real: uid_t, effective: uid_t) -> c_int;
    SYS_setresuid setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    SYS_setgid setgid(group: gid_t) -> c_int;
    SYS_setregid setregid(real: gid_t, effective: gid_t) -> c_int;
    SYS_setresgid setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    SYS_setgroups setgroups(count: size_t, groups: *const gid_t) -> c_int;
    SYS_chroot chroot(path: *const c_char) -> c_int;
    SYS_unshare unshare(flags: c_int) -> c_int;
    SYS_setns setns(fd: c_int, kind: c_int) -> c_int;
    SYS_prctl prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    SYS_sendto sendto(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t) -> ssize_t;
}

static SYSCALL: Next = Next::new(c"syscall");
static SETEUID: Next = Next::new(c"seteuid");
static SETEGID: Next = Next::new(c"setegid");

/// syscall(2), whatever the number of its arguments is.
///
/// # Safety
/// As the call of this number.
pub unsafe fn syscall(number: c_long, [a, b, c, d, e, f]: [c_ulong; 6]) -> c_long {
    let next = SYSCALL.get();
    if next.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { direct(number, &[a, b, c, d, e, f].map(|argument| argument as usize)) } as c_long;
    }
    type Call = unsafe extern "C-unwind" fn(c_long, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong) -> c_long;
    // SAFETY: integers are passed to its variable arguments as to others.
    let next: Call = unsafe { transmute_copy(&next) };
    // SAFETY: the caller's promise.
    unsafe { next(number, a, b, c, d, e, f) }
}

/// Makes a system call, with at most six arguments, as libc would: returns -1 and sets errno if it fails.
///
/// # Safety
/// As the call of this number.
unsafe fn direct(number: c_long, arguments: &[usize]) -> isize {
    let mut all = [0; 6];
    all.iter_mut().zip(arguments).for_each(|(to, argument)| *to = *argument);
    // SAFETY: the caller's promise.
    match unsafe { sys::call(number, all) } {
        Ok(result) => result as isize,
        Err(Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

/// seteuid(2), which is not a system call.
///
/// # Safety
/// As the call.
pub unsafe fn seteuid(user: uid_t) -> c_int {
    // SAFETY: as for the function.
    unsafe { set_effective(&SETEUID, user).unwrap_or_else(|| setresuid(uid_t::MAX, user, uid_t::MAX)) }
}

/// setegid(2), which is not a system call.
///
/// # Safety
/// As the call.
pub unsafe fn setegid(group: gid_t) -> c_int {
    // SAFETY: as for the function.
    unsafe { set_effective(&SETEGID, group).unwrap_or_else(|| setresgid(gid_t::MAX, group, gid_t::MAX)) }
}

/// `None` if no library has the function.
unsafe fn set_effective(next: &Next, number: u32) -> Option<c_int> {
    let next = next.get();
    if next.is_null() {
        return None;
    }
    // SAFETY: both functions have this type in every libc.
    let next: unsafe extern "C-unwind" fn(u32) -> c_int = unsafe { transmute_copy(&next) };
    // SAFETY: the caller's promise.
    Some(unsafe { next(number) })
}
