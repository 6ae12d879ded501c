//! Keeps the send buffers of a cgroup's connections short in the kernel, with no library in their processes.

use std::{fs::File, io, os::fd::AsRawFd, path::PathBuf, time::Duration};

use dwell_engine::abi;
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error,
    error::io_error,
    load::{configure, load, map, open, program},
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lowat.bpf.o.z"));

/// The shortest time between two adjustments of a connection. An acknowledgement triggers the next one.
const INTERVAL: Duration = Duration::from_millis(10);

/// What to set on connections that are established from now on, in a cgroup and those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The cgroup's directory (cgroup v2).
    pub cgroup: PathBuf,
    /// How long bytes should wait in the send buffer at most; `None` leaves it as it is.
    pub target: Option<Duration>,
    /// The congestion control; `None` leaves it as it is.
    pub congestion: Option<String>,
}

/// What the program has done since it was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that were established.
    pub connections: u64,
    /// How often `TCP_NOTSENT_LOWAT` was set.
    pub settings: u64,
    /// How often the kernel refused to set it.
    pub refused: u64,
    /// Connections whose congestion control could not be set.
    pub congestion_refused: u64,
}

/// The attached program. Dropping it detaches the program; connections keep what was set last.
pub struct SendBufferLimiter {
    object: Object,
    #[expect(dead_code, reason = "held for its drop")]
    link: Link,
}

impl SendBufferLimiter {
    /// Attaches the program in addition to those that are there already.
    ///
    /// # Errors
    ///
    /// [`Error::Cgroup`] if the path is not a cgroup, [`Error::Load`] without the privilege to load programs.
    pub fn attach(options: &Options) -> Result<SendBufferLimiter, Error> {
        let unusable = |io: io::Error| Error::Cgroup { path: options.cgroup.clone(), io };
        let directory = File::open(&options.cgroup).map_err(unusable)?;
        let mut opened = open("the send buffer program", OBJECT)?;
        configure(&mut opened, |_| None, &[(".rodata.program", configuration(options).as_bytes())])?;
        let object = load("the send buffer program", opened)?;
        let link = program(&object, "watch")
            .attach_cgroup(directory.as_raw_fd())
            .map_err(|error| unusable(io_error(&error)))?;
        Ok(SendBufferLimiter { object, link })
    }

    /// Reads what the program has done.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the counters cannot be read.
    pub fn counts(&mut self) -> Result<Counts, Error> {
        let counters = map(&mut self.object, "counters");
        let cpus = counters.lookup_percpu(&[0; 4], MapFlags::ANY).map_err(|error| Error::Map {
            operation: "read",
            map: "counters",
            io: io_error(&error),
        })?;
        let mut counts = Counts::default();
        for cpu in cpus.into_iter().flatten() {
            let Ok((cpu, _)) = abi::dwell_lowat_counters::read_from_prefix(&cpu) else {
                continue;
            };
            let of = |counter: u32| cpu.value[counter as usize];
            counts.connections += of(abi::DWELL_LOWAT_CONNECTIONS);
            counts.settings += of(abi::DWELL_LOWAT_SETTINGS);
            counts.refused += of(abi::DWELL_LOWAT_REFUSED);
            counts.congestion_refused += of(abi::DWELL_LOWAT_CONGESTION);
        }
        Ok(counts)
    }
}

fn configuration(options: &Options) -> abi::dwell_lowat_program {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let mut congestion = [0; 16];
    let name = options.congestion.as_deref().unwrap_or_default();
    for (target, byte) in congestion.iter_mut().take(15).zip(name.bytes()) {
        *target = byte as std::ffi::c_char;
    }
    abi::dwell_lowat_program {
        target_us: options.target.map_or(0, micros),
        every_us: micros(INTERVAL),
        congestion,
        lowat: options.target.is_some().into(),
        reserved: 0,
    }
}
