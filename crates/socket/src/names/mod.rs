//! Names for the ends of flows: the process that has a socket, the service of a port, the host of an address. They come
//! from files of this host, from its kernel, and from answers of DNS that come in: nothing is asked of the network, unless the
//! user asks for reverse look-ups.

mod filter;
mod hosts;
mod kernel;
mod listener;
mod live;
mod owners;
mod pods;
mod requests;
mod reverse;
mod services;
mod tap;
mod unit;

use std::{collections::HashSet, fmt, fs::File, io::Read, net::IpAddr, path::Path, sync::Arc, time::Duration};

use dwell_engine::{
    layers::Ends,
    measure::{Endpoint, Protocol},
    names::{EndNames, PassiveNames, Pod, Recent},
    observe::Observation,
};
use nix::ifaddrs::getifaddrs;

use self::{
    hosts::Hosts,
    listener::Listener,
    owners::{MAX_PROCESSES, Owners, Process},
    reverse::Reverse,
    services::Services,
};

pub(crate) use self::requests::Requests;
pub use self::{
    kernel::{KernelOwner, KernelOwners},
    live::{LiveCounts, LiveNames},
    pods::Pods,
    reverse::ReverseCounts,
    unit::{container_id, is_id, is_uid, pod_uid},
};

/// The part of a file that is read.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Time that searches and look-ups have in reserve: what runs from the start on gets its names soon.
const RESERVE: Duration = Duration::from_secs(10);
/// Names that are kept of each file.
const MAX_NAMES: usize = 65_536;

/// Names that files of this host have.
#[derive(Debug, Default)]
struct Files {
    hosts: Hosts,
    services: Services,
}

impl Files {
    /// Reads /etc/hosts and /etc/services. A file that cannot be read has no names.
    fn load() -> Files {
        Files {
            hosts: Hosts::parse(&text(Path::new("/etc/hosts"))),
            services: Services::parse(&text(Path::new("/etc/services"))),
        }
    }

    /// Returns the service of a flow: that of the lower port.
    fn service(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        let name = || self.services.name(src.port.min(dst.port), protocol.0);
        protocol.has_ports().then(name).flatten()
    }
}

/// Returns a process with its name as the kernel keeps it, of at most 15 characters, its unit and its pod. `None` if it is
/// gone.
pub(crate) fn process(pid: u32, pods: &mut Pods) -> Option<EndNames> {
    Some(Process::read(pid, pods)?.names(Some(pid)))
}

/// What names have cost, and what could not be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Searches of all processes for sockets.
    pub searches: u64,
    /// Sockets of the last interval whose process is not known: it belongs to another user, or has ended.
    pub unknown: u64,
    /// Connections whose process the kernel did not note, as there was no room, since the start.
    pub notes_lost: u64,
    /// Sockets and processes for which there was no room, since the start.
    pub omitted: u64,
    /// Names in files that were left out, because there were too many or they were not names.
    pub left_out: u64,
    /// Reverse look-ups.
    pub reverse: ReverseCounts,
}

/// Names in bounded memory, for one who polls all sockets itself.
pub struct Names {
    files: Files,
    owners: Owners,
    passive: PassiveNames,
    listener: Listener,
    /// `None` unless the user asks for reverse look-ups.
    reverse: Option<Reverse>,
    kernel: Option<Arc<dyn KernelOwners>>,
    /// Processes that the kernel has noted, as they were then.
    noted: Recent<u32, Process>,
    /// The same, by the flows that have them by notes alone: their IDs may be those of other processes by now.
    noted_flows: Recent<Ends, Process>,
    pods: Pods,
    /// Sockets of this interval whose process is known from the kernel's note alone.
    only_noted: u64,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Names {
    /// Reads /etc/hosts and /etc/services, and with `listens` from now on answers of DNS, and requests if it `has_labels`,
    /// where that is allowed.
    pub fn load(listens: bool, has_labels: bool) -> Names {
        let listener = if listens { Listener::open(has_labels) } else { Listener::default() };
        Names { files: Files::load(), listener, ..Names::of_capture(has_labels) }
    }

    /// Takes from `kernel` the processes of sockets that have none otherwise.
    pub fn with_kernel(self, kernel: Option<Arc<dyn KernelOwners>>) -> Names {
        if let Some(kernel) = &kernel {
            kernel.find_cgroups();
        }
        Names { kernel, ..self }
    }

    /// Looks up the names of hosts that have none otherwise, if it `resolves`.
    pub fn with_reverse(self, resolves: bool) -> Names {
        Names { reverse: resolves.then(Reverse::start), ..self }
    }

    /// Whether it looks up names of hosts.
    pub fn resolves(&self) -> bool {
        self.reverse.is_some()
    }

    /// Has no names but those that [`observe`](Self::observe) learns, and labels if it `has_labels`.
    pub fn of_capture(has_labels: bool) -> Names {
        Names {
            files: Files::default(),
            owners: Owners::default(),
            passive: PassiveNames::new(has_labels),
            listener: Listener::default(),
            reverse: None,
            kernel: None,
            noted: Recent::new(MAX_PROCESSES),
            noted_flows: Recent::new(MAX_PROCESSES),
            pods: Pods::default(),
            only_noted: 0,
        }
    }

    /// Learns from a packet, which may be an answer of DNS or have a request.
    pub fn observe(&mut self, packet: &Observation<'_>) {
        self.passive.observe(packet);
    }

    /// Begins an interval in which [`pid`](Self::pid) is asked about the sockets that are there.
    pub fn begin_interval(&mut self) {
        self.listener.drain(|packet| self.passive.observe(packet));
        self.owners.begin_interval();
        self.only_noted = 0;
    }

    /// Returns the process that has a socket of TCP, by the socket's inode, or else the one that connected it, if the kernel has
    /// noted that. A process that is not known yet is found by the next [`search`](Self::search).
    pub fn pid(&mut self, inode: u32, ends: &Ends) -> Option<u32> {
        if let Some(pid) = self.owners.pid(inode) {
            self.noted_flows.remove(ends);
            return Some(pid);
        }
        let owner = self.kernel.as_ref()?.owner(Protocol::TCP, ends)?;
        let process = owner.process(&mut self.pods);
        self.noted.insert(owner.pid, process.clone());
        self.noted_flows.insert(*ends, process);
        // A socket without an inode is not counted as unknown.
        self.only_noted += u64::from(inode != 0);
        Some(owner.pid)
    }

    /// Searches for the processes of sockets that are not known, if there are any and the budget allows it. Returns whether
    /// it has searched.
    pub fn search(&mut self, now_ns: u64) -> bool {
        if let Some(kernel) = &self.kernel {
            kernel.find_cgroups();
        }
        self.owners.search(now_ns)
    }

    /// Returns the process of this ID, with its name as the kernel keeps it, of at most 15 characters, its unit and its pod; of a
    /// flow, the one that [`pid`](Self::pid) has returned the ID of.
    pub fn process(&self, pid: u32, flow: Option<&Ends>) -> EndNames {
        let process = self.known(pid, flow).cloned();
        process.map_or_else(|| EndNames { pid: Some(pid), ..EndNames::default() }, |process| process.names(Some(pid)))
    }

    /// Returns the unit or container of a flow's process.
    pub fn unit(&self, pid: u32, flow: &Ends) -> Option<&Arc<str>> {
        self.known(pid, Some(flow))?.unit.as_ref()
    }

    /// Returns the pod of a flow's process.
    pub fn pod(&self, pid: u32, flow: &Ends) -> Option<&Arc<Pod>> {
        self.known(pid, Some(flow))?.pod.as_ref()
    }

    fn known(&self, pid: u32, flow: Option<&Ends>) -> Option<&Process> {
        let noted = flow.and_then(|flow| self.noted_flows.get(flow));
        noted.or_else(|| self.owners.process(pid)).or_else(|| self.noted.get(&pid))
    }

    /// Returns the name of an address in /etc/hosts, by answers of DNS, or by a reverse look-up, for which nothing waits.
    pub fn host(&self, address: IpAddr) -> Option<Arc<str>> {
        let passive = self.files.hosts.name(address).or_else(|| self.passive.host(address));
        passive.or_else(|| self.reverse.as_ref()?.name(address))
    }

    /// Returns what the latest request of a flow has asked for.
    pub fn label(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        self.passive.label(src, dst, protocol)
    }

    /// Returns the service of a flow in /etc/services.
    pub fn service(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        self.files.service(src, dst, protocol)
    }

    /// Returns what names have cost.
    pub fn counts(&self) -> Counts {
        let left_out = self.files.hosts.left_out() + self.files.services.left_out();
        let reverse = self.reverse.as_ref().map_or_else(ReverseCounts::default, Reverse::counts);
        let owners = self.owners.counts();
        let notes_lost = self.kernel.as_ref().map_or(0, |kernel| kernel.lost());
        Counts { left_out, reverse, notes_lost, unknown: owners.unknown - self.only_noted, ..owners }
    }
}

/// Returns the addresses of this host's interfaces.
pub(crate) fn own_addresses() -> HashSet<IpAddr> {
    let addresses = getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    addresses.collect()
}

fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    // What was read before a failure counts.
    let _ = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lines of a file without comments, each with its words.
fn lines(text: &str) -> impl Iterator<Item = std::str::SplitAsciiWhitespace<'_>> {
    text.lines().map(|line| line.split_once('#').map_or(line, |(line, _)| line).split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::fd::AsRawFd, os::linux::fs::MetadataExt, process};

    use super::*;
    use crate::clock::monotonic_ns;

    /// The note of one flow.
    #[derive(Debug)]
    struct Note(Ends, KernelOwner);

    impl KernelOwners for Note {
        fn owner(&self, _protocol: Protocol, ends: &Ends) -> Option<KernelOwner> {
            (self.0 == *ends).then(|| self.1.clone())
        }

        fn find_cgroups(&self) {}

        fn lost(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_flow_that_a_note_alone_names_has_the_noted_process_whoever_has_its_id_now() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = u32::try_from(file.st_ino()).unwrap();
        let ends = |port| {
            let end = |port| Endpoint { address: "127.0.0.1".parse().unwrap(), port };
            Ends { src: end(port), dst: end(80) }
        };
        let (open, gone, id) = (ends(1), ends(2), process::id());
        let owner = KernelOwner { pid: id, name: b"gone".into(), cgroup: None, time_ns: 0 };
        let mut names = Names::of_capture(false).with_kernel(Some(Arc::new(Note(gone, owner))));
        names.begin_interval();
        assert_eq!(names.pid(inode, &open), None);
        assert!(names.search(monotonic_ns()));
        assert_eq!([names.pid(inode, &open), names.pid(0, &gone)], [Some(id); 2]);
        let own = text(Path::new("/proc/self/comm"));
        for (flow, name) in [(Some(&open), own.trim_end()), (None, own.trim_end()), (Some(&gone), "gone")] {
            assert_eq!(names.process(id, flow).process.as_deref(), Some(name));
        }
        // Another socket with these ends is found where it is open.
        assert_eq!(names.pid(inode, &gone), Some(id));
        assert_eq!(names.process(id, Some(&gone)).process.as_deref(), Some(own.trim_end()));
    }
}
