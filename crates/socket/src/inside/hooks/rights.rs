//! Calls that change the rights of the program, or take some away. libc applies them to the threads that it knows; ours ends
//! before, and starts again with the new rights. A program that restricts itself by seccomp(2) is left alone from then on.

use libc::{c_char, c_int, c_long, c_uint, c_ulong, gid_t, size_t, uid_t};

use super::real;
use crate::inside::preload;

macro_rules! changes {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// As the call of this name.
        pub unsafe fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            change(|| unsafe { real::$name($($argument),*) })
        }
    )*};
}

/// Hands the signatures of the calls that change rights to the macro `$define`, for the hooks and for the library that exports
/// them.
#[macro_export]
macro_rules! calls_that_change_rights {
    ($define:ident) => {
        $define! {
            setuid(user: uid_t);
            seteuid(user: uid_t);
            setreuid(real: uid_t, effective: uid_t);
            setresuid(real: uid_t, effective: uid_t, saved: uid_t);
            setgid(group: gid_t);
            setegid(group: gid_t);
            setregid(real: gid_t, effective: gid_t);
            setresgid(real: gid_t, effective: gid_t, saved: gid_t);
            setgroups(count: size_t, groups: *const gid_t);
            chroot(path: *const c_char);
            unshare(flags: c_int);
            setns(fd: c_int, kind: c_int);
        }
    };
}

calls_that_change_rights!(changes);

/// prctl(2): of its options, only the one that installs a filter of system calls matters.
///
/// # Safety
/// As the call.
pub unsafe fn prctl(option: c_int, [a, b, c, d]: [c_ulong; 4]) -> c_int {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::prctl(option, a, b, c, d) };
    match option {
        libc::PR_SET_SECCOMP => restrict(call, |result| *result == 0),
        _ => call(),
    }
}

/// syscall(2), by which libseccomp installs filters.
///
/// # Safety
/// As the call of this number.
pub unsafe fn syscall(number: c_long, arguments: [c_ulong; 6]) -> c_long {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::syscall(number, arguments) };
    let [operation, flags, ..] = arguments;
    let installs = match number {
        libc::SYS_seccomp => operation as c_uint <= libc::SECCOMP_SET_MODE_FILTER,
        libc::SYS_prctl => operation as c_int == libc::PR_SET_SECCOMP,
        _ => false,
    };
    match installs {
        // With a listener, the result is its descriptor.
        true => {
            restrict(call, |result| *result == 0 || *result > 0 && flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0)
        }
        false => call(),
    }
}

fn change<T>(call: impl FnOnce() -> T) -> T {
    let Some(state) = preload::state() else {
        return call();
    };
    let is_begun = state.before_change();
    let result = call();
    state.after_change(is_begun);
    result
}

fn restrict<T>(call: impl FnOnce() -> T, has_worked: impl FnOnce(&T) -> bool) -> T {
    let Some(state) = preload::state() else {
        return call();
    };
    let is_begun = state.before_change();
    let result = call();
    // The filter of a vforked child, which shares the state, is not its parent's.
    if is_begun && has_worked(&result) {
        state.shut_in();
    }
    state.after_change(is_begun);
    result
}
