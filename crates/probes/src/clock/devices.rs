//! How a program is attached to XDP of a device, and for how long.
//!
//! By default the network stack runs it, and copies large packets for it. It is therefore attached only while clocks are
//! compared, some milliseconds per minute. A driver that runs it may reset the device when it is attached or removed, so
//! that happens on demand only, and it then stays attached. With a program in the driver of a veth, the peer no longer
//! passes on large segments, at a fourth of the throughput.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs, io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    attach::{self, XdpMode},
    host::native_xdp,
    next_hop::{self, Device},
};

/// What runs a program at XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The driver. The program stays attached.
    Native,
    /// The network stack. The program is attached while it is needed.
    Generic,
}

/// What may take the timestamps of clock requests at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockMode {
    /// Sockets alone: nothing is attached to any device.
    Socket,
    /// A program that the network stack runs while clocks are compared; sockets where that is not possible.
    #[default]
    Generic,
    /// A program in the driver, where that can run one and the device does not carry a default route.
    Driver,
    /// The same, whatever routes the device carries.
    DriverForced,
}

impl ClockMode {
    /// Returns what runs the program at a device, which its driver may still refuse; or why nothing does.
    pub(super) fn at(self, index: u32, device: &Device) -> Result<Mode, String> {
        let is_native = || native_xdp(index) == Some(true);
        match self {
            ClockMode::Socket => Err("only sockets are wanted".into()),
            ClockMode::DriverForced if is_native() => Ok(Mode::Native),
            ClockMode::Driver if is_native() && carries_default_route(&device.name) == Ok(false) => Ok(Mode::Native),
            _ => Ok(Mode::Generic),
        }
    }
}

/// Says why a program must not go into the driver of the device that leads to an address: it carries a default route, or
/// that is not known. `None` if nothing speaks against it, or there is no route.
pub fn driver_obstacle(to: IpAddr) -> Option<String> {
    let (_, device) = next_hop::route_and_device(to.to_canonical(), None).ok()?;
    let device = device.ok()?;
    match carries_default_route(&device.name) {
        Ok(false) => None,
        Ok(true) => Some(format!("'{}' carries a default route", device.name)),
        Err(error) => Some(format!("it is not known whether '{}' carries a default route: {error}", device.name)),
    }
}

/// Whether a route to everywhere leaves by a device of this thread's network namespace. Fails if the routes cannot be read.
fn carries_default_route(device: &str) -> Result<bool, String> {
    let read = |path: &str| match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("cannot read {path}: {error}")),
    };
    let v4 = read("/proc/thread-self/net/route")?;
    let v6 = read("/proc/thread-self/net/ipv6_route")?;
    Ok(has_default_route(&v4, &v6, device))
}

/// The same from the texts of /proc/net/route and /proc/net/ipv6_route.
fn has_default_route(v4: &str, v6: &str, device: &str) -> bool {
    let is_v4 = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.first() == Some(&device) && words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
    };
    let is_v6 = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.last() == Some(&device) && words.get(1) == Some(&"00") && words[0].bytes().all(|digit| digit == b'0')
    };
    v4.lines().any(is_v4) || v6.lines().any(is_v6)
}

/// A program that is attached to devices on request. Requests for the same device share it.
#[derive(Debug)]
pub(super) struct SharedProgram {
    program: OwnedFd,
    /// By interface.
    attached: Mutex<HashMap<u32, Attached>>,
}

#[derive(Debug)]
struct Attached {
    mode: Mode,
    users: usize,
    _link: OwnedFd,
}

/// A request for a program at a device. The program may be detached when the last one is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    program: Arc<SharedProgram>,
    interface: u32,
    mode: Mode,
}

impl SharedProgram {
    pub fn new(program: OwnedFd) -> Arc<SharedProgram> {
        Arc::new(SharedProgram { program, attached: Mutex::default() })
    }

    /// Attaches the program unless it is attached; to the network stack where the driver refuses it. A program of
    /// somebody else is never replaced.
    pub fn lease(self: &Arc<SharedProgram>, interface: u32, mode: Mode) -> io::Result<Lease> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let here = match attached.entry(interface) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(self.attach(interface, mode)?),
        };
        here.users += 1;
        let mode = here.mode;
        Ok(Lease { program: Arc::clone(self), interface, mode })
    }

    fn attach(&self, interface: u32, mode: Mode) -> io::Result<Attached> {
        let attach = |mode| {
            let link = link(&self.program, interface, mode)?;
            Ok(Attached { mode, users: 0, _link: link })
        };
        match attach(mode) {
            Err(error) if mode == Mode::Native && !is_occupied(&error) => attach(Mode::Generic),
            result => result,
        }
    }

    fn release(&self, interface: u32) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = attached.get_mut(&interface) {
            here.users -= 1;
            if here.users == 0 && here.mode == Mode::Generic {
                attached.remove(&interface);
            }
        }
    }
}

impl Lease {
    /// What runs the program.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.program.release(self.interface);
    }
}

/// Describes for people why a program cannot be attached to a device.
pub(super) fn refusal(interface: u32, error: &io::Error) -> String {
    let name = next_hop::device(interface).map_or_else(|_| interface.to_string(), |it| it.name);
    match is_occupied(error) {
        true => format!("another XDP program occupies '{name}'"),
        false => format!("no XDP program can be attached to '{name}': {error}"),
    }
}

fn is_occupied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists)
}

fn link(program: &OwnedFd, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    let mode = match mode {
        Mode::Native => XdpMode::Native,
        Mode::Generic => XdpMode::Generic,
    };
    attach::xdp(program.as_fd(), interface, mode)
}

#[cfg(test)]
mod tests {
    use super::has_default_route;

    #[test]
    fn a_default_route_is_known_by_its_prefix_and_its_device() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            eth1\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000080\t0\t0\t0\n\
            eth2\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        let zeros = "0".repeat(32);
        let route = |length: &str, device: &str| {
            format!(
                "{zeros} {length} {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 {device}\n"
            )
        };
        let v6 = [route("00", "eth3"), route("60", "eth4")].concat();
        let all = ["eth0", "eth1", "eth2", "eth3", "eth4", "eth"];
        let with: Vec<_> = all.into_iter().filter(|device| has_default_route(v4, &v6, device)).collect();
        assert_eq!(with, ["eth0", "eth3"]);
    }
}
