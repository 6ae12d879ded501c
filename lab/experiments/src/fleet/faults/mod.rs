//! What can go wrong between agents and their collector, fault by fault: what of the agents' measurements is stored then.
//!
//! The collector is `dwell collect`, as it ships. Agents are those of `dwell-lab fleet`, with certificates, and some that are
//! processes of their own, so that they can be killed, and can have disks and clocks that are not those of this host.

mod acts;
mod authority;
mod clock;
mod disk;
mod figures;
mod members;
mod peers;
mod scene;
mod twisted;
mod verb;

use std::{path::Path, sync::Arc, time::Duration};

use dwell_testbed::{Namespace, Result, error::find_program, signals::Signals};

use self::{figures::Figures, scene::Scene};
use super::{agents::ADDRESSES, raise_descriptors};
use crate::{Programs, failure::Failure, print::folders};

pub(super) use self::{
    members::Member,
    verb::{Faults, run},
};

/// A fault.
#[derive(Debug, Clone, Copy)]
struct Fault {
    /// Its name, as `--fault` takes it.
    name: &'static str,
    /// What it is, for people.
    what: &'static str,
    /// A program that it needs beside the usual ones.
    needs: Option<&'static str>,
    act: fn(&Scene<'_>) -> Result<Figures>,
}

/// All of them.
const FAULTS: [Fault; 17] = [
    fault("collector-killed", "SIGKILL of the collector", acts::collector_killed),
    fault("agents-killed", "SIGKILL of agents", acts::agents_killed),
    Fault { needs: SERVER, ..fault("server-killed", "SIGKILL of ClickHouse", acts::server_killed) },
    fault("agent-disk-full", "disk of agents full", acts::agent_disk_full),
    fault("store-disk-full", "disk of the store full", acts::store_disk_full),
    Fault { needs: SERVER, ..fault("spool-disk-full", "disk of the spool full", acts::spool_disk_full) },
    fault("network-cut", "network cut", acts::network_cut),
    fault("network-cut-long", "network cut beyond the buffer", acts::network_cut_long),
    Fault { needs: COMPILER, ..fault("agent-clock", "clock of agents off by an hour", acts::agent_clock) },
    Fault { needs: COMPILER, ..fault("collector-clock", "clock of the collector off", acts::collector_clock) },
    fault("certificates-expire", "certificates expire", acts::certificates_expire),
    fault("garbage", "garbage", acts::garbage),
    fault("versions", "unknown versions", acts::other_versions),
    fault("batches-twisted", "batches twice and out of order", acts::batches_twisted),
    fault("long-frames", "frames of 8 MiB for ever", acts::long_frames),
    fault("one-byte-per-second", "one byte per second", acts::one_byte_a_second),
    fault("silence", "connections that never speak", acts::silence),
];

const SERVER: Option<&str> = Some("clickhouse-server");
const COMPILER: Option<&str> = Some("cc");

const fn fault(name: &'static str, what: &'static str, act: fn(&Scene<'_>) -> Result<Figures>) -> Fault {
    Fault { name, what, needs: None, act }
}

impl Fault {
    /// Returns the program that it needs and this host has not.
    fn lacks(&self) -> Option<&'static str> {
        self.needs.filter(|program| find_program(program).is_none())
    }

    /// Makes it happen to a new collector, with agents that report for a time.
    fn run(
        &self,
        duration: Duration,
        seed: u64,
        programs: &Programs,
        signals: &Signals,
    ) -> std::result::Result<Figures, Failure> {
        let folder = folders("dwell-faults-", None)?;
        let figures = self.run_in(folder.path(), duration, seed, programs, signals)?;
        Ok(Figures { fault: self.name, ..figures })
    }

    fn run_in(
        &self,
        folder: &Path,
        duration: Duration,
        seed: u64,
        programs: &Programs,
        signals: &Signals,
    ) -> Result<Figures> {
        raise_descriptors();
        let namespace = Arc::new(Namespace::create("faults")?);
        namespace.ip(&format!("route add local {ADDRESSES} dev lo\n"))?;
        (self.act)(&Scene::new(&namespace, folder, programs, signals, duration, seed)?)
    }
}
