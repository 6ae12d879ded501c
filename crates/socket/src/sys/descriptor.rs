//! Facts about a descriptor, and socket options.

use std::{
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use dwell_engine::{layers::Ends, measure::Endpoint, socket::TcpInfo};

use super::{Errno, call};

/// SO_BUF_LOCK (Linux 5.14), which libc lacks: bit 0 is set if the program has set SO_SNDBUF.
const SO_BUF_LOCK: i32 = 72;

/// Returns the cookie, by which the kernel identifies a socket.
pub fn cookie(fd: i32) -> Result<u64, Errno> {
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, 0_u64)
}

/// Returns true for TCP over IPv4 and IPv6.
pub fn is_tcp(fd: i32) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, 0_i32) == Ok(libc::IPPROTO_TCP)
}

/// Reads `TCP_INFO`.
pub fn info(fd: i32) -> Result<TcpInfo, Errno> {
    let mut bytes = [0_u8; TcpInfo::LONGEST];
    let length = option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    let known = bytes.get(..length).unwrap_or_default();
    TcpInfo::parse(known).ok_or(Errno(libc::EPROTO))
}

/// Returns the number of bytes that were written and are not acknowledged.
pub fn unacknowledged(fd: i32) -> Option<u64> {
    queued(fd, libc::TIOCOUTQ)
}

/// Returns the number of readable bytes.
pub fn readable(fd: i32) -> Option<u64> {
    queued(fd, libc::FIONREAD)
}

/// Returns the two ends, or `None` before the socket is connected.
pub fn ends(fd: i32) -> Option<Ends> {
    Some(Ends { src: end(fd, libc::SYS_getsockname)?, dst: end(fd, libc::SYS_getpeername)? })
}

/// Reads `TCP_NOTSENT_LOWAT`, which is 0 if nobody has set it.
pub fn notsent_lowat(fd: i32) -> Option<u32> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 0).ok()
}

/// Sets `TCP_NOTSENT_LOWAT`.
pub fn set_notsent_lowat(fd: i32, bytes: u32) -> Result<(), Errno> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Returns true if the program or dwell has set the send buffer's size. Older kernels cannot tell, and it returns
/// false.
pub fn has_set_send_buffer(fd: i32) -> bool {
    option(fd, libc::SOL_SOCKET, SO_BUF_LOCK, 0_u32).is_ok_and(|locks| locks & 1 != 0)
}

/// Reads `SO_SNDBUF`, the size of the send buffer.
pub fn send_buffer(fd: i32) -> Option<u32> {
    option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 0).ok()
}

/// Sets `SO_SNDBUF`.
pub fn set_send_buffer(fd: i32, bytes: u32) -> Result<(), Errno> {
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes.to_ne_bytes())
}

/// Reads `SO_SNDTIMEO`, how long a write waits for room. `None` if it waits for ever.
pub fn send_timeout_ns(fd: i32) -> Option<u64> {
    let [seconds, micros] = option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, [0_u64; 2]).ok()?;
    let ns = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000));
    (ns > 0).then_some(ns)
}

/// Returns true if calls at the descriptor wait for nothing (O_NONBLOCK).
pub fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: it takes no pointer.
    let flags = unsafe { call(libc::SYS_fcntl, [fd as isize as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    flags.is_ok_and(|flags| flags & libc::O_NONBLOCK as usize != 0)
}

/// Sets `TCP_CONGESTION`; `name` is padded with zeroes.
pub fn set_congestion(fd: i32, name: &[u8; 16]) -> Result<(), Errno> {
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(16);
    let name = name.get(..length).unwrap_or_default();
    set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
}

/// Reads `TCP_CONGESTION`, padded with zeroes.
pub fn congestion(fd: i32) -> Option<[u8; 16]> {
    let mut name = [0; 16];
    option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name).ok()?;
    Some(name)
}

/// Duplicates a descriptor of another process, with pidfd_getfd(2): Linux 5.6, and the privilege to trace that process.
/// ESRCH if it has ended, EBADF if it has no such descriptor.
pub fn borrow(pid: u32, fd: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: it takes no pointer.
    let process = unsafe { call(libc::SYS_pidfd_open, [pid as usize, 0, 0, 0, 0, 0]) }.map(owned)?;
    let to = [process.as_raw_fd() as usize, fd as isize as usize, 0, 0, 0, 0];
    // SAFETY: it takes no pointer.
    unsafe { call(libc::SYS_pidfd_getfd, to) }.map(owned)
}

fn owned(new: usize) -> OwnedFd {
    // SAFETY: the kernel has just opened it, and nobody else has its number.
    unsafe { OwnedFd::from_raw_fd(new as i32) }
}

fn option<T: Copy>(fd: i32, level: i32, name: i32, mut value: T) -> Result<T, Errno> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let to =
        [fd as isize as usize, level as usize, name as usize, (&raw mut value) as usize, (&raw mut length) as usize, 0];
    // SAFETY: the callers' types are integers or several of them, for which all bytes are valid, and the kernel writes at most `length`
    // bytes.
    unsafe { call(libc::SYS_getsockopt, to) }.map(|_| value)
}

fn option_bytes(fd: i32, level: i32, name: i32, bytes: &mut [u8]) -> Result<usize, Errno> {
    let mut length = bytes.len() as libc::socklen_t;
    let to = [
        fd as isize as usize,
        level as usize,
        name as usize,
        bytes.as_mut_ptr() as usize,
        (&raw mut length) as usize,
        0,
    ];
    // SAFETY: the kernel writes at most `length` bytes.
    unsafe { call(libc::SYS_getsockopt, to) }.map(|_| length as usize)
}

fn set(fd: i32, level: i32, name: i32, bytes: &[u8]) -> Result<(), Errno> {
    let to = [fd as isize as usize, level as usize, name as usize, bytes.as_ptr() as usize, bytes.len(), 0];
    // SAFETY: the kernel reads only the slice.
    unsafe { call(libc::SYS_setsockopt, to) }.map(|_| ())
}

fn queued(fd: i32, request: libc::c_ulong) -> Option<u64> {
    let mut bytes = 0_i32;
    let to = [fd as isize as usize, request as usize, (&raw mut bytes) as usize, 0, 0, 0];
    // SAFETY: these requests write one int.
    unsafe { call(libc::SYS_ioctl, to) }.ok()?;
    u64::try_from(bytes).ok()
}

fn end(fd: i32, which: libc::c_long) -> Option<Endpoint> {
    let mut bytes = [0_u8; size_of::<libc::sockaddr_storage>()];
    let mut length = bytes.len() as libc::socklen_t;
    let to = [fd as isize as usize, bytes.as_mut_ptr() as usize, (&raw mut length) as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most `length` bytes.
    unsafe { call(which, to) }.ok()?;
    endpoint(&bytes)
}

/// Parses a socket address: family, port, address.
fn endpoint(bytes: &[u8]) -> Option<Endpoint> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address = match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let v6 = Ipv6Addr::from(octets);
            v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
        }
        _ => return None,
    };
    Some(Endpoint { address, port })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
    };

    use super::*;

    #[test]
    fn a_connection_is_distinguished_from_all_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let again = stream.try_clone().unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = cookie(stream.as_raw_fd()).unwrap();
        assert_eq!(cookie(again.as_raw_fd()), Ok(number));
        assert_ne!(cookie(listener.as_raw_fd()), Ok(number));
        assert!(is_tcp(stream.as_raw_fd()));
        assert!(!is_tcp(udp.as_raw_fd()));
        assert_eq!(cookie(file.as_raw_fd()), Err(Errno(libc::ENOTSOCK)));
        assert_eq!(cookie(-1), Err(Errno(libc::EBADF)));
        assert!(ends(listener.as_raw_fd()).is_none());
        assert_eq!(ends(stream.as_raw_fd()).unwrap().dst.port, listener.local_addr().unwrap().port());
    }

    #[test]
    fn bytes_that_wait_are_counted() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.write_all(&[0; 1000]).unwrap();
        other.read_exact(&mut [0; 400]).unwrap();
        assert_eq!(readable(other.as_raw_fd()), Some(600));
        assert_eq!(info(other.as_raw_fd()).unwrap().bytes_received, Some(1000));
    }

    #[test]
    fn what_is_set_is_what_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        assert_eq!(notsent_lowat(fd), Some(0));
        assert_eq!(set_notsent_lowat(fd, 12_345), Ok(()));
        assert_eq!(notsent_lowat(fd), Some(12_345));
        assert!(!has_set_send_buffer(fd));
        assert_eq!(set_send_buffer(fd, 50_000), Ok(()));
        assert_eq!(set_congestion(fd, b"reno\0\0\0\0\0\0\0\0\0\0\0\0"), Ok(()));
        let none = set_congestion(fd, b"no_such_control\0");
        assert!(matches!(none, Err(Errno(libc::ENOENT | libc::EPERM))));
    }
}
