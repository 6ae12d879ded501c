//! Comparison of the clocks of two hosts: the agent's reflector, and the collector's probers. `dwell_engine::clock`
//! estimates the offset from their exchanges.
//!
//! A request leaves the collector from XDP on loopback, past the queueing discipline of the device. XDP on the agent's
//! device turns it into a reply, which XDP on the collector's device receives. Where there is no XDP, sockets with
//! timestamps of the kernel do the same, and the time that packets queue before them widens the bound.

mod devices;
mod prober;
mod reflector;
mod socket;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use dwell_engine::{abi, clock::Experiment};
use libbpf_rs::{MapHandle, Object};
use zerocopy::IntoBytes;

use crate::{Error, error::io_error, load};

pub use devices::{ClockMode, Mode, driver_obstacle};
pub use prober::{Method, Prober, Round, Station};
pub use reflector::{ReflectingDevice, Reflector, ReflectorOptions};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.bpf.o.z"));

const WHAT: &str = "the programs that compare clocks";

/// Loads the programs of some names, with the numbers of entries of some maps.
fn load_programs(wanted: &[&str], sizes: &[(&str, u32)], program: &abi::dwell_sync_program) -> Result<Object, Error> {
    let mut object = load::open(WHAT, OBJECT)?;
    for mut program in object.progs_mut() {
        let is_wanted = wanted.iter().any(|name| program.name() == *name);
        program.set_autoload(is_wanted);
    }
    let entries = |name: &str| sizes.iter().find(|(sized, _)| *sized == name).map(|(_, entries)| *entries);
    load::configure(&mut object, entries, &[(".rodata.program", program.as_bytes())])?;
    load::load(WHAT, object)
}

/// Tries to load all programs.
pub(crate) fn try_programs() -> Result<(), Error> {
    let programs = ["reflect", "admit", "depart", "arrive"];
    load_programs(&programs, &[], &Experiment::default().to_core(0)).map(drop)
}

/// A descriptor of a program, which outlives its object.
fn descriptor(object: &Object, name: &str) -> Result<OwnedFd, Error> {
    let program = load::program(object, name);
    program.as_fd().try_clone_to_owned().map_err(cannot("keep a program"))
}

/// A handle of a map, which outlives its object.
fn handle(object: &mut Object, name: &'static str) -> Result<MapHandle, Error> {
    MapHandle::try_from(&load::map(object, name)).map_err(|error| Error::Map {
        operation: "share",
        map: name,
        io: io_error(&error),
    })
}

fn cannot(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let operation = operation.into();
    move |io| Error::Clock { operation, io }
}
