//! The clocks of two hosts, compared: the agent's reflector, and the collector's
//! probers. What follows from their exchanges is for `dwell_engine::clock`.
//!
//! A request leaves the collector from XDP on the loopback, past the queueing
//! discipline of the device; XDP on the agent's device turns it into a reply, and
//! XDP on the collector's takes that. Where there is no XDP, sockets do the same
//! with times of the kernel, and what queues before them widens the bound.

mod place;
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

use crate::{Error, error::io_error, load, vantage::failed};

pub use place::Mode;
pub use prober::{Method, Prober, Round, Station};
pub use reflector::{Place, Reflector, ReflectorOptions};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.bpf.o"));

const WHAT: &str = "the programs that compare clocks";

/// Loads some of the programs, with so many entries in some of the maps.
fn load_programs(wanted: &[&str], sizes: &[(&str, u32)], program: &abi::dwell_sync_program) -> Result<Object, Error> {
    let mut object = load::open(WHAT, OBJECT)?;
    for mut program in object.progs_mut() {
        let is_wanted = wanted.iter().any(|name| program.name() == *name);
        program.set_autoload(is_wanted);
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some((_, entries)) = sizes.iter().find(|(sized, _)| *sized == name) {
            map.set_max_entries(*entries).map_err(failed("size", "sessions"))?;
        }
        if name.ends_with(".rodata.program") {
            map.set_initial_value(program.as_bytes()).map_err(failed("write", "configuration"))?;
        }
    }
    load::load(WHAT, object)
}

/// Whether the kernel takes them all.
pub(crate) fn try_programs() -> Result<(), Error> {
    let programs = ["reflect", "admit", "depart", "arrive"];
    load_programs(&programs, &[], &Experiment::default().to_core(0)).map(drop)
}

/// A program by itself, that lives on without its object.
fn descriptor(object: &Object, name: &str) -> Result<OwnedFd, Error> {
    let program = load::program(object, name);
    program.as_fd().try_clone_to_owned().map_err(cannot("keep a program"))
}

/// A map by itself.
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
