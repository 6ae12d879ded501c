//! The connections of a cgroup's processes, in all network namespaces that these are in.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
};

use dwell_engine::socket::Account;
use nix::sched::{CloneFlags, setns};

use super::{Config, Error, Outside, processes::Processes};
use crate::{Watch, clock::monotonic_ns};

/// New namespaces are looked for once in this time.
const SEARCH_NS: u64 = 1_000_000_000;

/// Watches the connections of a cgroup and those below it.
pub struct Cgroup {
    path: PathBuf,
    config: Config,
    /// By the number of the namespace.
    outsides: BTreeMap<u64, Outside>,
    /// Namespaces that cannot be looked into, and why.
    closed: BTreeMap<u64, Error>,
    next_search_ns: u64,
}

impl Cgroup {
    /// Begins to watch. Namespaces other than this thread's take privilege (CAP_SYS_ADMIN).
    ///
    /// # Errors
    ///
    /// If that is no cgroup, or the kernel tells nothing of sockets.
    pub fn start(path: &Path, config: Config) -> Result<Cgroup, Error> {
        let mut cgroup = Cgroup {
            path: path.to_owned(),
            config,
            outsides: BTreeMap::new(),
            closed: BTreeMap::new(),
            next_search_ns: 0,
        };
        cgroup.search()?;
        Ok(cgroup)
    }

    /// Does what is due. Returns when it wants to be called again, on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer any more.
    pub fn poll(&mut self) -> Result<u64, Error> {
        if monotonic_ns() >= self.next_search_ns {
            self.search()?;
        }
        let mut due_ns = self.next_search_ns;
        for outside in self.outsides.values_mut() {
            due_ns = due_ns.min(outside.poll()?);
        }
        Ok(due_ns)
    }

    /// The next [`poll`](Cgroup::poll) looks at all, whatever the budget says.
    pub fn hurry(&mut self) {
        self.next_search_ns = 0;
        for outside in self.outsides.values_mut() {
            outside.hurry();
        }
    }

    /// It was removed.
    pub fn has_ended(&self) -> bool {
        !self.path.join("cgroup.procs").exists()
    }

    /// Why connections in other namespaces are not seen, if there are such.
    pub fn closed(&self) -> impl Iterator<Item = &Error> {
        self.closed.values()
    }

    fn search(&mut self) -> Result<(), Error> {
        self.next_search_ns = monotonic_ns() + SEARCH_NS;
        let members = members(&self.path).map_err(|io| Error::Cgroup { path: self.path.clone(), io })?;
        let own = namespace("thread-self").ok();
        let mut found = BTreeSet::new();
        for pid in members {
            let Ok(number) = namespace(&pid.to_string()) else {
                continue;
            };
            found.insert(number);
            if self.outsides.contains_key(&number) || self.closed.contains_key(&number) {
                continue;
            }
            let processes = Processes::of_cgroup(self.path.clone(), number);
            let started = match own == Some(number) {
                true => Outside::of(processes, self.config),
                false => enter(pid, processes, self.config),
            };
            match started {
                Ok(outside) => {
                    self.outsides.insert(number, outside);
                }
                Err(error @ Error::Namespace { .. }) => {
                    self.closed.insert(number, error);
                }
                Err(error) => return Err(error),
            }
        }
        // A netlink socket keeps its namespace, which goes with its last process.
        self.outsides.retain(|number, outside| found.contains(number) || !outside.sockets.is_empty());
        Ok(())
    }
}

impl Watch for Cgroup {
    type Error = Infallible;

    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Infallible> {
        for outside in self.outsides.values_mut() {
            outside.visit(each)?;
        }
        Ok(())
    }
}

/// A netlink socket belongs to the namespace of the thread that makes it.
fn enter(pid: u32, processes: Processes, config: Config) -> Result<Outside, Error> {
    let closed = |_: io::Error| Error::Namespace { pid };
    let file = File::open(format!("/proc/{pid}/ns/net")).map_err(closed)?;
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| closed(errno.into()))?;
            Outside::of(processes, config)
        });
        inside.join().unwrap_or_else(|_| Err(Error::Namespace { pid }))
    })
}

/// The number of a process' network namespace.
pub(super) fn namespace(process: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/net"))?.ino())
}

/// The processes of a cgroup and those below it.
pub(super) fn members(cgroup: &Path) -> io::Result<Vec<u32>> {
    let mut members = Vec::new();
    let mut folders = vec![cgroup.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_to_string(folder.join("cgroup.procs"));
        match listed {
            Ok(pids) => members.extend(pids.lines().filter_map(|pid| pid.parse::<u32>().ok())),
            Err(error) if folder == cgroup => return Err(error),
            // It was removed meanwhile, or is a threaded one, whose processes are listed above.
            Err(_) => continue,
        }
        let below = fs::read_dir(&folder)?.flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    Ok(members)
}
