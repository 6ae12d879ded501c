//! The processes that have sockets, found in /proc when a socket appears that is not known.

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::Arc,
    time::Duration,
};

use dwell_engine::names::{EndNames, Pod};

use super::{Counts, RESERVE, pods::Pods, unit::Membership};
use crate::{
    clock::{monotonic_ns, thread_cpu_ns},
    outside::{owners, pace::Pace},
};

/// Sockets whose process is remembered, and sockets that are remembered to have none that can be seen.
const MAX_SOCKETS: usize = 131_072;
/// Processes whose name is remembered.
pub(super) const MAX_PROCESSES: usize = 16_384;
/// The share of a core that searches may use, and the least time between two of them.
const BUDGET: f64 = 0.01;
const PAUSE: Duration = Duration::from_millis(500);
/// Time after which sockets without a known process are searched for again: a process can pass a socket to another one.
pub(super) const FORGET_NS: u64 = 30_000_000_000;

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) name: Arc<str>,
    /// The unit of systemd or the container that it belongs to.
    pub(super) unit: Option<Arc<str>>,
    /// The pod of Kubernetes that it belongs to.
    pub(super) pod: Option<Arc<Pod>>,
}

impl Process {
    pub(super) fn read(pid: u32, pods: &mut Pods) -> Option<Process> {
        let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(Process::new(name.trim_ascii_end(), Membership::of(pid), pods))
    }

    pub(super) fn new(name: &[u8], Membership { unit, pod }: Membership, pods: &mut Pods) -> Process {
        let name = String::from_utf8_lossy(name).replace(char::is_control, "\u{fffd}");
        let pod = pod.map(|member| Arc::new(pods.name(&member, monotonic_ns())));
        Process { name: name.into(), unit: unit.map(Into::into), pod }
    }

    /// Returns its names, as those of an end.
    pub(super) fn names(self, pid: Option<u32>) -> EndNames {
        let Process { name, unit, pod } = self;
        EndNames { pid, process: Some(name), unit, pod, ..EndNames::default() }
    }
}

/// Sockets by inode, and processes by ID.
#[derive(Debug)]
pub(super) struct Owners {
    sockets: HashMap<u32, u32>,
    processes: HashMap<u32, Process>,
    pods: Pods,
    /// Sockets that no search has found.
    missing: HashSet<u32>,
    missing_since_ns: u64,
    /// Sockets that were asked for in this interval and are not known.
    wanted: HashSet<u32>,
    asked: HashSet<u32>,
    pace: Pace,
    counts: Counts,
}

impl Default for Owners {
    fn default() -> Owners {
        Owners {
            sockets: HashMap::new(),
            processes: HashMap::new(),
            pods: Pods::default(),
            missing: HashSet::new(),
            missing_since_ns: 0,
            wanted: HashSet::new(),
            asked: HashSet::new(),
            pace: Pace::new(PAUSE, BUDGET).with_reserve(RESERVE),
            counts: Counts::default(),
        }
    }
}

impl Owners {
    pub(super) fn begin_interval(&mut self) {
        // Inodes are given again: those that nobody asked about are forgotten before they are others'.
        if self.sockets.len() > 2 * self.asked.len() + 1024 {
            let asked = &self.asked;
            self.sockets.retain(|inode, _| asked.contains(inode));
        }
        self.asked.clear();
        self.wanted.clear();
        self.counts.unknown = 0;
    }

    pub(super) fn pid(&mut self, inode: u32) -> Option<u32> {
        if inode == 0 {
            // It is not accepted yet, or closed already.
            return None;
        }
        if self.asked.len() < MAX_SOCKETS {
            self.asked.insert(inode);
        }
        let pid = self.sockets.get(&inode).copied();
        if pid.is_none() {
            self.counts.unknown += 1;
            if !self.missing.contains(&inode) && self.wanted.len() < MAX_SOCKETS {
                self.wanted.insert(inode);
            }
        }
        pid
    }

    pub(super) fn search(&mut self, now_ns: u64) -> bool {
        self.forget_missing(now_ns);
        if self.wanted.is_empty() || !self.pace.is_due(now_ns) {
            return false;
        }
        let begun = thread_cpu_ns();
        self.search_now(now_ns);
        self.pace.record(now_ns, thread_cpu_ns() - begun);
        true
    }

    /// Searches for the processes of sockets that are not known, if there are any, whatever it costs.
    pub(super) fn search_now(&mut self, now_ns: u64) {
        self.forget_missing(now_ns);
        if self.wanted.is_empty() {
            return;
        }
        self.counts.searches += 1;
        let mut found = owners();
        found.retain(|inode, _| self.asked.contains(inode));
        self.missing.extend(self.wanted.drain().filter(|inode| !found.contains_key(inode)));
        if self.missing.len() > MAX_SOCKETS {
            self.missing.clear();
        }
        self.sockets = found;
        self.read_processes();
    }

    fn forget_missing(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.missing_since_ns) > FORGET_NS {
            self.missing.clear();
            self.missing_since_ns = now_ns;
        }
    }

    /// Reads the names of all processes that have sockets: IDs are given again, and programs start others.
    fn read_processes(&mut self) {
        self.processes.clear();
        for pid in self.sockets.values() {
            if self.processes.contains_key(pid) {
                continue;
            }
            if self.processes.len() >= MAX_PROCESSES {
                self.counts.omitted += 1;
                continue;
            }
            if let Some(process) = Process::read(*pid, &mut self.pods) {
                self.processes.insert(*pid, process);
            }
        }
    }

    pub(super) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        process,
    };

    use super::*;
    use crate::outside::Census;

    #[test]
    fn a_socket_has_the_process_that_opened_it_and_its_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let mut inode = 0;
        let mut census = Census::open().unwrap();
        let find = |polled: &crate::outside::PolledSocket| {
            if polled.ends.src.port == port {
                inode = polled.inode;
            }
        };
        census.poll(find).unwrap();
        let mut owners = Owners::default();
        owners.begin_interval();
        assert_eq!(owners.pid(inode), None, "nobody has searched");
        assert_eq!(owners.pid(u32::MAX), None);
        assert!(owners.search(monotonic_ns()));
        assert_eq!(owners.pid(inode), Some(process::id()));
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(&*owners.process(process::id()).unwrap().name, own.trim_end());
        assert_eq!(owners.pid(u32::MAX), None);
        // What is not there is not searched for again.
        assert!(!owners.search(monotonic_ns() + 2_000_000_000));
        assert_eq!((owners.counts().searches, owners.counts().unknown), (1, 3));
    }

    #[test]
    fn sockets_that_nobody_asks_about_are_forgotten() {
        let mut owners = Owners { sockets: (1..5000).map(|inode| (inode, 1)).collect(), ..Owners::default() };
        owners.pid(7);
        owners.begin_interval();
        assert_eq!(owners.sockets.len(), 1);
    }
}
