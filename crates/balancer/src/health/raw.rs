//! Raw sockets.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::Instant,
};

use dwell_socket::deadline::time_left;
use nix::sys::{
    socket::{AddressFamily, MsgFlags, recv, setsockopt, sockopt::ReceiveTimeout},
    time::TimeVal,
};

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Waits for the next packet of a raw socket, and returns what follows the IP header, which sockets of IPv4 receive too.
pub(super) fn receive<'a>(
    socket: &OwnedFd,
    is_v4: bool,
    buffer: &'a mut [u8],
    deadline: Instant,
) -> io::Result<&'a [u8]> {
    let wait = time_left(deadline)?;
    let wait = TimeVal::new(wait.as_secs() as i64, i64::from(wait.subsec_micros().max(1)));
    setsockopt(socket, ReceiveTimeout, &wait)?;
    let count = recv(socket.as_raw_fd(), buffer, MsgFlags::empty())?;
    let skip = if is_v4 { usize::from(buffer[0] & 0xf) * 4 } else { 0 };
    Ok(buffer.get(skip..count).unwrap_or_default())
}
