//! The processes that connect sockets, noted in the kernel: a connection that is over before anybody looks has a name, too.

mod cgroups;

use std::{
    os::linux::fs::MetadataExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cgroups::Cgroups;
use dwell_engine::{abi, balance::to_core, layers::Ends, measure::Protocol};
use dwell_socket::{
    clock::{monotonic_ns, thread_cpu_ns},
    names::{KernelOwner, KernelOwners},
};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use crate::{host::Capability, load, stack::own_namespace, vantage::read_cpus};

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
    /// Attaches the program, for sockets of this thread's network namespace. `None` where this process may not do that, or may not
    /// see the processes of other users, where the kernel has no hook for it, and in a PID namespace of its own, where processes
    /// have other IDs.
    pub fn attach() -> Option<Owners> {
        let pids = Path::new("/proc/self/ns/pid").metadata().ok()?.st_ino();
        let may_load = || Capability::missing(&[Capability::Bpf, Capability::Perfmon]).is_empty();
        if pids != INITIAL_PID_NAMESPACE || Capability::SysPtrace.held() != Some(true) || !may_load() {
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
        let now_ns = monotonic_ns();
        let Some(sought) = self.cgroups().begin_walk(now_ns) else {
            return;
        };
        // Others may ask about cgroups during the walk.
        let begun_ns = thread_cpu_ns();
        let found = cgroups::walk();
        self.cgroups().end_walk(&sought, found, (now_ns, thread_cpu_ns() - begun_ns));
    }

    fn lost(&self) -> u64 {
        let cpus: Vec<abi::dwell_owner_counters> = read_cpus(&self.counters, COUNTERS, 0).unwrap_or_default();
        cpus.iter().map(|cpu| cpu.lost).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, SocketAddrV4, TcpListener},
        os::fd::AsRawFd,
        process, thread,
    };

    use dwell_engine::measure::Endpoint;
    use dwell_socket::privilege;
    use dwell_testbed::{harness::has_kernel_pids, skip::lacks_root};
    use nix::{
        errno::Errno,
        sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, getsockname, socket},
    };

    use super::*;

    #[test]
    fn root_a_connection_that_is_refused_has_the_process_that_asked_for_it() {
        if lacks_root() || !has_kernel_pids() {
            return;
        }
        let owners = Owners::attach().unwrap();
        let SocketAddr::V4(closed) = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() else {
            unreachable!("it was asked for");
        };
        let asking = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        assert_eq!(connect(asking.as_raw_fd(), &SockaddrIn::from(closed)), Err(Errno::ECONNREFUSED));
        // It keeps its port, and no address.
        let own = SocketAddrV4::from(getsockname::<SockaddrIn>(asking.as_raw_fd()).unwrap());
        let end = |port| Endpoint { address: (*closed.ip()).into(), port };
        let owner = |port| owners.owner(Protocol::TCP, &Ends { src: end(port), dst: end(closed.port()) });
        assert_eq!(owner(own.port()).map(|owner| owner.pid), Some(process::id()));
        assert_eq!(owner(0), None);
    }

    #[test]
    fn root_processes_of_other_users_take_the_capability_that_shows_them_elsewhere() {
        if lacks_root() || !has_kernel_pids() {
            return;
        }
        let attach = || {
            privilege::keep(&[privilege::Capability::Bpf, privilege::Capability::Perfmon]).unwrap();
            Owners::attach().is_some()
        };
        assert!(Owners::attach().is_some() && !thread::spawn(attach).join().unwrap());
    }
}
