//! Exports of the intercepted calls that write and read.
#![allow(unsafe_code)]

use dwell_socket::inside::hooks;
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

macro_rules! exports {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $hook:ident;)*) => {$(
        /// # Safety
        /// As the call of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { hooks::$hook($($argument),*) }
        }
    )*};
}

// Where off_t has 64 bits, sendfile64 equals sendfile.
exports! {
    read(fd: c_int, bytes: *mut c_void, count: size_t) -> ssize_t = read;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = readv;
    recv(fd: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t = recv;
    recvfrom(fd: c_int, bytes: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t = recvfrom;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = recvmsg;
    write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t = write;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = writev;
    send(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int) -> ssize_t = send;
    sendto(fd: c_int, bytes: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t) -> ssize_t = sendto;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = sendmsg;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = sendmmsg;
    sendfile(fd: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t = sendfile;
    sendfile64(fd: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t = sendfile;
}
