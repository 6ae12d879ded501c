//! The connections of a cgroup's processes, in all of their network namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    path::{Path, PathBuf},
};

use dwell_engine::socket::Account;

use super::{
    Config, Error, Outside,
    namespace::{enter, members, number_of},
    processes::Processes,
};
use crate::{Watch, clock::monotonic_ns, table::Counts};

/// Time between two searches for new namespaces.
const SEARCH_NS: u64 = 1_000_000_000;

/// Watches the connections of a cgroup and of those below it.
pub struct Cgroup {
    path: PathBuf,
    config: Config,
    /// Watchers by the number of their network namespace.
    by_namespace: BTreeMap<u64, Outside>,
    /// Namespaces that cannot be entered, and why.
    inaccessible: BTreeMap<u64, Error>,
    next_search_ns: u64,
}

impl Cgroup {
    /// Starts watching. Network namespaces other than the calling thread's need CAP_SYS_ADMIN.
    ///
    /// # Errors
    ///
    /// If the path is not a cgroup, or the kernel reports no sockets.
    pub fn start(path: &Path, config: Config) -> Result<Cgroup, Error> {
        let mut cgroup = Cgroup {
            path: path.to_owned(),
            config,
            by_namespace: BTreeMap::new(),
            inaccessible: BTreeMap::new(),
            next_search_ns: 0,
        };
        cgroup.search()?;
        // dwell's BPF program sets the options of all connections that begin from now on, in new namespaces too.
        cgroup.config.options = None;
        Ok(cgroup)
    }

    /// Does whatever is due. Returns the time of the next call, on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel no longer answers.
    pub fn poll(&mut self) -> Result<u64, Error> {
        if monotonic_ns() >= self.next_search_ns {
            self.search()?;
        }
        let mut due_ns = self.next_search_ns;
        for outside in self.by_namespace.values_mut() {
            due_ns = due_ns.min(outside.poll()?);
        }
        Ok(due_ns)
    }

    /// Makes the next [`poll`](Cgroup::poll) poll every socket, whatever the budget.
    pub fn poll_all_next(&mut self) {
        self.next_search_ns = 0;
        for outside in self.by_namespace.values_mut() {
            outside.poll_all_next();
        }
    }

    /// Returns true if the cgroup was removed.
    pub fn has_ended(&self) -> bool {
        !self.path.join("cgroup.procs").exists()
    }

    /// Returns the numbers of network namespaces whose connections are not seen now, and why.
    pub fn inaccessible(&self) -> impl Iterator<Item = (u64, &Error)> {
        self.inaccessible.iter().map(|(number, error)| (*number, error))
    }

    /// Resets the options that were set, and sets none from now on. Returns the number of sockets that had any.
    pub fn reset_options(&mut self) -> usize {
        self.by_namespace.values_mut().map(Outside::reset_options).sum()
    }

    /// Returns what became of the options. The number of connections whose program sets them itself is unknown, and left
    /// at 0: on some that are taken for such, dwell's BPF program was faster.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for outside in self.by_namespace.values() {
            all += Counts { hands_off: 0, ..outside.counts() };
        }
        all
    }

    /// Returns processes on whose sockets no options can be set, and why.
    pub fn unreachable(&self) -> Vec<(u32, io::Error)> {
        self.by_namespace.values().flat_map(Outside::unreachable).collect()
    }

    fn search(&mut self) -> Result<(), Error> {
        self.next_search_ns = monotonic_ns() + SEARCH_NS;
        let members = members(&self.path).map_err(|io| Error::Cgroup { path: self.path.clone(), io })?;
        let own = number_of("thread-self").ok();
        let mut present = BTreeSet::new();
        for pid in members {
            let Ok(number) = number_of(&pid.to_string()) else {
                continue;
            };
            // One that could not be entered is tried again at the next search: the process may just have ended.
            if !present.insert(number) || self.by_namespace.contains_key(&number) {
                continue;
            }
            let processes = Processes::of_cgroups(vec![self.path.clone()], Some(number));
            let started = match own == Some(number) {
                true => Outside::of(processes, self.config),
                false => enter(pid, || Outside::of(processes, self.config)),
            };
            match started {
                Ok(mut outside) => {
                    // dwell's BPF program sets the options of connections that begin from now on.
                    outside.config.options = None;
                    self.inaccessible.remove(&number);
                    self.by_namespace.insert(number, outside);
                }
                Err(error @ Error::Namespace { .. }) => {
                    self.inaccessible.insert(number, error);
                }
                Err(error) => return Err(error),
            }
        }
        self.inaccessible.retain(|number, _| present.contains(number));
        // A watcher's netlink socket keeps the namespace alive. The watcher goes with the last process there.
        self.by_namespace.retain(|number, outside| present.contains(number) || !outside.sockets.is_empty());
        Ok(())
    }
}

impl Watch for Cgroup {
    type Error = Infallible;

    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Infallible> {
        for outside in self.by_namespace.values_mut() {
            outside.visit(each)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may end between the list of a cgroup and the look at its namespace.
    #[test]
    fn a_namespace_that_could_not_be_entered_is_tried_again_and_one_that_is_gone_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        // As of a cgroup of this process alone.
        std::fs::write(folder.path().join("cgroup.procs"), std::process::id().to_string()).unwrap();
        let mut cgroup = Cgroup::start(folder.path(), Config::default()).unwrap();
        let number = number_of("thread-self").unwrap();
        cgroup.by_namespace.remove(&number).expect("this process is in it");
        for number in [number, 1] {
            cgroup.inaccessible.insert(number, Error::Namespace { pid: std::process::id() });
        }
        cgroup.next_search_ns = 0;
        cgroup.poll().unwrap();
        assert!(cgroup.by_namespace.contains_key(&number));
        let still = |of: u64| cgroup.inaccessible.contains_key(&of);
        assert!(!still(number) && !still(1), "{:?}", cgroup.inaccessible);
    }
}
