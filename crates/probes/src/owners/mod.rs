//! The processes that connect sockets, noted in the kernel: a connection that is over before anybody looks has a name, too.

mod cgroups;

use std::{
    os::linux::fs::MetadataExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cgroups::Cgroups;
use dwell_engine::{abi, balance::to_core, layers::Ends, measure::Protocol};
use dwell_socket::names::{KernelOwner, KernelOwners};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use crate::{host::Capability, load, stack::own_namespace, vantage::read_percpu};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/owners_probed.bpf.o.z"));

const WHAT: &str = "the program that notes owners of sockets";
const OWNERS: &str = "owners";
const COUNTERS: &str = "counters";

/// The inode number of the initial PID namespace (`PROC_PID_INIT_INO` of the kernel).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The attached program, which notes the TCP sockets of one network namespace. Dropping it detaches the program.
#[derive(Debug)]
pub struct Owners {
    #[expect(dead_code, reason = "held for its drop")]
    link: Link,
    owners: MapHandle,
    counters: MapHandle,
    cgroups: Mutex<Cgroups>,
}

impl Owners {
    /// Attaches the program, for sockets of this thread's network namespace. `None` where this process may not do that, where
    /// the kernel has no hook for it, and in a PID namespace of its own, where processes have other IDs.
    pub fn attach() -> Option<Owners> {
        let pids = Path::new("/proc/self/ns/pid").metadata().ok()?.st_ino();
        let may_load = || Capability::missing(&[Capability::Bpf, Capability::Perfmon]).is_empty();
        if pids != INITIAL_PID_NAMESPACE || !may_load() {
            return None;
        }
        let configuration = abi::dwell_owner_program { netns: own_namespace().ok()? };
        let mut opened = load::open(WHAT, OBJECT).ok()?;
        load::configure(&mut opened, |_| None, &[(".rodata.program", configuration.as_bytes())]).ok()?;
        let mut object = load::load(WHAT, opened).ok()?;
        let link = load::program(&object, "note_owner").attach().ok()?;
        let mut handle = |name| MapHandle::try_from(&load::map(&mut object, name)).ok();
        Some(Owners { link, owners: handle(OWNERS)?, counters: handle(COUNTERS)?, cgroups: Mutex::default() })
    }

    fn cgroups(&self) -> MutexGuard<'_, Cgroups> {
        self.cgroups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelOwners for Owners {
    fn owner(&self, protocol: Protocol, ends: &Ends) -> Option<KernelOwner> {
        let key = abi::dwell_owner_key {
            local: to_core(ends.src.address),
            remote: to_core(ends.dst.address),
            local_port: ends.src.port,
            remote_port: ends.dst.port,
            proto: protocol.0.into(),
        };
        let value = self.owners.lookup(key.as_bytes(), MapFlags::ANY).ok()??;
        let owner = abi::dwell_owner::read_from_bytes(&value).ok()?;
        let name = owner.name.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
        Some(KernelOwner {
            pid: owner.pid,
            name: name.to_vec(),
            cgroup: self.cgroups().path(owner.cgroup),
            time_ns: owner.time_ns,
        })
    }

    fn find_cgroups(&self) {
        if self.cgroups().is_due() {
            // Nobody waits for the walk.
            let found = cgroups::walk();
            self.cgroups().learn(found);
        }
    }

    fn lost(&self) -> u64 {
        let cpus = read_percpu(&self.counters, COUNTERS, 0).unwrap_or_default();
        let cpus = cpus.iter().filter_map(|cpu| abi::dwell_owner_counters::read_from_prefix(cpu).ok());
        let (mut noted, mut lost) = (0, 0);
        for (cpu, _) in cpus {
            noted += cpu.value[abi::DWELL_OWNERS_NOTED as usize];
            lost += cpu.value[abi::DWELL_OWNERS_LOST as usize];
        }
        lost + noted.saturating_sub(abi::DWELL_OWNERS.into())
    }
}
