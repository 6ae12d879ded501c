//! What is noted in the kernel of processes that connect sockets.

use std::{fmt, sync::Arc};

use dwell_engine::{layers::Ends, measure::Protocol};

use super::{owners::Process, pods::Pods, unit::Membership};

/// The process that connected a socket, as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelOwner {
    /// Its ID.
    pub pid: u32,
    /// Its name, of at most 15 bytes.
    pub name: Vec<u8>,
    /// The path of its cgroup of version 2, if it is known.
    pub cgroup: Option<Arc<str>>,
    /// When it connected the socket, by CLOCK_MONOTONIC.
    pub time_ns: u64,
}

/// What knows the processes that have connected sockets since it was attached.
pub trait KernelOwners: fmt::Debug + Send + Sync {
    /// Returns the process that was the last to connect a socket with these ends, its own first.
    fn owner(&self, protocol: Protocol, ends: &Ends) -> Option<KernelOwner>;

    /// Finds the paths of cgroups that are not known yet. Takes some milliseconds if there are any.
    fn find_cgroups(&self);

    /// Returns the number of connections whose process was not noted, as there was no room.
    fn lost(&self) -> u64;
}

impl KernelOwner {
    pub(super) fn process(&self, pods: &mut Pods) -> Process {
        let cgroups = self.cgroup.as_ref().map_or_else(String::new, |path| format!("0::{path}"));
        Process::new(&self.name, Membership::parse(&cgroups), pods)
    }
}
