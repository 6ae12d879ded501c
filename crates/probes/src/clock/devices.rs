//! How a program is attached to XDP of a device, and for how long.
//!
//! Where the driver runs XDP programs, it runs this one, which stays attached: attaching may reset the device. A veth is
//! an exception: with a program in its driver, its peer no longer passes on large segments, at a fourth of the
//! throughput. There, and where the driver cannot, the network stack runs the program, and copies large packets for it.
//! It is therefore attached only while clocks are compared, some milliseconds per minute.
#![allow(unsafe_code)]

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use libbpf_rs::libbpf_sys;

use crate::{
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

/// The preferred mode for a device, which its driver may still refuse.
pub(super) fn mode_for(index: u32, device: &Device) -> Mode {
    match native_xdp(index) {
        Some(true) if !device.is_veth => Mode::Native,
        _ => Mode::Generic,
    }
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
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: match mode {
            Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        },
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface as i32, libbpf_sys::BPF_XDP, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just created the descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
