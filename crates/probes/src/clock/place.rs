//! Which way into XDP a device is given, and for how long.
//!
//! Where the driver runs XDP programs itself, that is the way, and the program
//! stays: attaching may reset the device. A veth is an exception: with a program
//! in its driver its peer no longer hands over large segments, at a fourth of
//! the throughput. There, and where the driver cannot, the stack runs the program,
//! which copies packets that are large; so it is attached while clocks are being
//! compared, some milliseconds a minute, and no longer.
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

/// Who runs a program at XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The driver. The program stays.
    Native,
    /// The stack. The program is there while it is needed.
    Generic,
}

/// The way for a device, by what it is; which its driver may still refuse.
pub(super) fn mode_for(index: u32, device: &Device) -> Mode {
    match native_xdp(index) {
        Some(true) if !device.is_veth => Mode::Native,
        _ => Mode::Generic,
    }
}

/// A program of one kind on devices, each shared by all that need it.
#[derive(Debug)]
pub(super) struct Places {
    program: OwnedFd,
    /// By interface.
    held: Mutex<HashMap<u32, Held>>,
}

#[derive(Debug)]
struct Held {
    mode: Mode,
    users: usize,
    _link: OwnedFd,
}

/// The program is there while this is.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    interface: u32,
    mode: Mode,
}

impl Places {
    pub fn new(program: OwnedFd) -> Arc<Places> {
        Arc::new(Places { program, held: Mutex::default() })
    }

    /// Attaches the program unless it is there; in the stack where the driver
    /// cannot. Never in the place of another's.
    pub fn hold(self: &Arc<Places>, interface: u32, mode: Mode) -> io::Result<Place> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match held.entry(interface) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(self.attach(interface, mode)?),
        };
        place.users += 1;
        let mode = place.mode;
        Ok(Place { places: Arc::clone(self), interface, mode })
    }

    fn attach(&self, interface: u32, mode: Mode) -> io::Result<Held> {
        let attach = |mode| {
            let link = link(&self.program, interface, mode)?;
            Ok(Held { mode, users: 0, _link: link })
        };
        match attach(mode) {
            Err(error) if mode == Mode::Native && !is_taken(&error) => attach(Mode::Generic),
            result => result,
        }
    }

    fn release(&self, interface: u32) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = held.get_mut(&interface) {
            place.users -= 1;
            if place.users == 0 && place.mode == Mode::Generic {
                held.remove(&interface);
            }
        }
    }
}

impl Place {
    /// Who runs the program.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.release(self.interface);
    }
}

/// What a person is told of a device that does not take the program.
pub(super) fn refusal(interface: u32, error: &io::Error) -> String {
    let name = next_hop::device(interface).map_or_else(|_| interface.to_string(), |it| it.name);
    match is_taken(error) {
        true => format!("another XDP program holds '{name}'"),
        false => format!("no XDP program can be attached to '{name}': {error}"),
    }
}

fn is_taken(error: &io::Error) -> bool {
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
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
