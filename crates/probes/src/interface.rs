//! Network interfaces of the current network namespace.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use nix::{
    libc,
    net::if_::{if_nameindex, if_nametoindex},
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use crate::Error;

nix::ioctl_read_bad!(hardware_address, libc::SIOCGIFHWADDR, libc::ifreq);

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name at the time of the lookup.
    pub name: String,
    /// The index in this network namespace.
    pub index: u32,
    hardware: u16,
}

impl Interface {
    /// Looks up an interface by name.
    pub fn find(name: &str) -> Result<Interface, Error> {
        let missing = || Error::NoInterface { name: name.into(), known: Self::names() };
        let index = if_nametoindex(name).map_err(|_| missing())?;
        let hardware = hardware_type(name).ok_or_else(missing)?;
        Ok(Interface { name: name.into(), index, hardware })
    }

    /// Whether the interface is still there, whatever its name is now.
    pub fn exists(&self) -> bool {
        if_nameindex().is_ok_and(|list| list.iter().any(|other| other.index() == self.index))
    }

    /// Whether it is a loopback device, which shows each packet twice: on send and on receive.
    pub fn is_loopback(&self) -> bool {
        self.hardware == libc::ARPHRD_LOOPBACK
    }

    /// Whether packets start with an Ethernet header, and not with an IP header.
    pub fn has_link_header(&self) -> bool {
        matches!(self.hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
    }

    fn names() -> Vec<String> {
        let Ok(list) = if_nameindex() else {
            return Vec::new();
        };
        list.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
    }
}

/// Reads the ARPHRD_* number of an interface. By ioctl, as /sys may show another namespace than this thread's.
fn hardware_type(name: &str) -> Option<u16> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .or_else(|_| socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None))
        .ok()?;
    // SAFETY: ifreq is plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: `request` is an ifreq with a terminated name, as the call requires.
    unsafe { hardware_address(any.as_raw_fd(), &mut request) }.ok()?;
    // SAFETY: the call has filled this member of the union.
    Some(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}
