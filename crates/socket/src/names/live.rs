//! Names of live flows, found by a thread of their own. Who asks for a name may wait for a look-up of the kernel's note, and
//! once in five seconds for the folders of pods, but for no dump of sockets and no search of /proc.

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dwell_engine::{
    layers::Ends,
    measure::{Endpoint, Protocol},
    names::{EndNames, FlowNames, NameFlows, PassiveCounts, PassiveNames, Recent},
    roles::Role,
};

use super::{
    Files, RESERVE,
    kernel::KernelOwners,
    listener::Listener,
    own_addresses,
    owners::{FORGET_NS, Owners, Process},
    pods::Pods,
    reverse::{Reverse, ReverseCounts},
};
use crate::{
    clock::{monotonic_ns, thread_cpu_ns},
    outside::{Census, pace::Pace},
};

/// Sockets whose process is remembered, or that none was found.
const MAX_KNOWN: usize = 131_072;
/// Sockets that wait to be looked up.
const MAX_WANTED: usize = 16_384;
/// The share of a core that looking up may use, and the least time between two times.
const BUDGET: f64 = 0.01;
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which a socket of this host that was not found is looked up again.
const RETRY_NS: u64 = 5_000_000_000;
/// The longest wait for a packet, after which sockets are looked up.
const WAIT_MS: u8 = 50;
/// Results that are handed over at once.
const CHUNK: usize = 256;

/// A socket, by its protocol and its ends, its own first.
type SocketKey = (Protocol, Ends);

/// What looking up has cost, and what could not be named, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCounts {
    /// Dumps of all sockets.
    pub lookups: u64,
    /// Sockets that were not found: they had gone.
    pub gone: u64,
    /// Sockets that had gone, but whose process the kernel had noted.
    pub noted: u64,
    /// Connections whose process the kernel did not note, as there was no room.
    pub notes_lost: u64,
    /// How often a socket was not queued, as too many were wanted at once; and sockets that were still queued.
    pub omitted: u64,
    /// Answers of DNS that came too fast to be read.
    pub answers_lost: u64,
    /// Segments that may have had a request and came too fast to be read.
    pub requests_lost: u64,
    /// What other packets told.
    pub passive: PassiveCounts,
    /// Reverse look-ups.
    pub reverse: ReverseCounts,
}

/// Names of flows of the network namespace in which it was started.
///
/// Processes are found by sock_diag and /proc once a flow was asked about. A connection that has ended before then has the
/// process that connected it, if the kernel has noted that; a server's is named by the socket that listens at its port, without
/// a process ID. Hosts have the names of /etc/hosts, those that came in by answers of DNS since the start, or those of reverse
/// look-ups if the user asks for them. Flows have the labels of requests that passed since the start. Answers and requests take
/// CAP_NET_RAW.
#[derive(Debug)]
pub struct LiveNames {
    files: Files,
    shared: Arc<Mutex<Shared>>,
    /// `None` unless the user asks for reverse look-ups.
    reverse: Option<Reverse>,
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shared {
    passive: PassiveNames,
    known: Recent<SocketKey, Known>,
    wanted: HashSet<SocketKey>,
    /// Processes whose sockets have no other end, by protocol and port. `None` if several have one.
    ports: HashMap<(Protocol, u16), Option<Process>>,
    /// The addresses of this host, without those of loopback.
    addresses: HashSet<IpAddr>,
    kernel: Option<Arc<dyn KernelOwners>>,
    pods: Pods,
    counts: LiveCounts,
}

#[derive(Debug, Clone)]
struct Known {
    owner: Option<(u32, Process)>,
    /// Whether the socket was there. If not, another one may have its ports by now.
    is_open: bool,
    since_ns: u64,
}

impl LiveNames {
    /// Starts to look up, and to listen for answers of DNS, and for requests if it `has_labels`, where that is allowed. Asks name
    /// servers about hosts without a name if it `resolves`, and what `attach` returns about connections that are over: nothing
    /// waits for that.
    pub fn start(
        has_labels: bool,
        resolves: bool,
        attach: impl FnOnce() -> Option<Arc<dyn KernelOwners>> + Send + 'static,
    ) -> LiveNames {
        let shared = Shared { addresses: own_addresses(), ..Shared::new(has_labels) };
        let names = LiveNames {
            files: Files::load(),
            shared: Arc::new(Mutex::new(shared)),
            reverse: resolves.then(Reverse::start),
            is_over: Arc::default(),
        };
        let (shared, is_over) = (Arc::clone(&names.shared), Arc::clone(&names.is_over));
        let searcher = Searcher {
            // Without netlink or privilege, the other names are known.
            census: Census::open().ok(),
            listener: Listener::open(has_labels),
            owners: Owners::default(),
            pace: Pace::new(PAUSE, BUDGET).with_reserve(RESERVE),
            kernel: None,
            shared,
        };
        // Without a thread there are no names, and all else is measured.
        let _ = thread::Builder::new().name("dwell-names".into()).spawn(move || searcher.run(attach, &is_over));
        names
    }

    /// Returns what looking up has cost, and what could not be named.
    pub fn counts(&self) -> LiveCounts {
        let shared = lock(&self.shared);
        LiveCounts {
            omitted: shared.counts.omitted + shared.wanted.len() as u64,
            notes_lost: shared.kernel.as_ref().map_or(0, |kernel| kernel.lost()),
            passive: shared.passive.counts(),
            reverse: self.reverse.as_ref().map_or_else(ReverseCounts::default, Reverse::counts),
            ..shared.counts
        }
    }

    fn end(&self, shared: &mut Shared, ends: Ends, protocol: Protocol) -> EndNames {
        let address = ends.src.address;
        let is_own = shared.is_own(address);
        let host = self.files.hosts.name(address).or_else(|| shared.passive.host(address));
        let host = host.or_else(|| self.reverse.as_ref().filter(|_| !is_own)?.name(address));
        if !is_own || !protocol.has_ports() || ends.src.port == 0 {
            return EndNames { host, ..EndNames::default() };
        }
        let (pid, process) = match shared.owner((protocol, ends)) {
            Some((pid, process)) => (Some(pid), Some(process)),
            None => (None, shared.ports.get(&(protocol, ends.src.port)).cloned().flatten()),
        };
        let names = process.map_or_else(EndNames::default, |process| process.names(pid));
        EndNames { host, ..names }
    }
}

impl NameFlows for LiveNames {
    fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowNames {
        let shared = &mut *lock(&self.shared);
        let ends = Ends { src: *src, dst: *dst };
        FlowNames {
            src_role: shared.role(&ends, protocol),
            src: self.end(shared, ends, protocol),
            dst: self.end(shared, Ends { src: *dst, dst: *src }, protocol),
            service: self.files.service(src, dst, protocol),
            label: shared.passive.label(src, dst, protocol),
        }
    }
}

impl Drop for LiveNames {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Knows nothing yet, and no address of this host but those of loopback.
    fn new(has_labels: bool) -> Shared {
        Shared {
            passive: PassiveNames::new(has_labels),
            known: Recent::new(MAX_KNOWN),
            wanted: HashSet::new(),
            ports: HashMap::new(),
            addresses: HashSet::new(),
            kernel: None,
            pods: Pods::default(),
            counts: LiveCounts::default(),
        }
    }

    /// Whether it is an address of this host.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.contains(&address)
    }

    /// Returns what the source is, if a socket listens at one of the two ends. A socket of UDP without a peer may be a client's.
    fn role(&self, ends: &Ends, protocol: Protocol) -> Option<Role> {
        let listens = |end: &Endpoint| self.ports.contains_key(&(protocol, end.port)) && self.is_own(end.address);
        if protocol == Protocol::TCP { Role::by_listeners(ends, listens) } else { None }
    }

    /// Returns the process of a socket, and wants it to be looked up if it is not known, or was long ago. Until then its process
    /// is the one that the kernel has noted.
    fn owner(&mut self, key: SocketKey) -> Option<(u32, Process)> {
        let known = self.known.get(&key);
        let (owner, since_ns) = (known.and_then(|known| known.owner.clone()), known.map(|known| known.since_ns));
        let age_ns = since_ns.map_or(u64::MAX, |since_ns| monotonic_ns().saturating_sub(since_ns));
        let is_recent = age_ns <= if owner.is_some() { FORGET_NS } else { RETRY_NS };
        if is_recent && known.is_some_and(|known| known.is_open) {
            return owner;
        }
        let noted = self.noted(&key, since_ns);
        if is_recent && noted.is_none() {
            return owner;
        }
        if !self.wanted.contains(&key) {
            match self.wanted.len() < MAX_WANTED {
                true => drop(self.wanted.insert(key)),
                false => self.counts.omitted += 1,
            }
        }
        noted.or(owner)
    }

    /// Returns the process that has connected a socket, if the kernel has noted that since the socket was last looked up: what
    /// was found then is newer. The folders of pods are read at most once every five seconds.
    fn noted(&mut self, (protocol, ends): &SocketKey, since_ns: Option<u64>) -> Option<(u32, Process)> {
        let owner = self.kernel.as_ref()?.owner(*protocol, ends)?;
        let is_new = since_ns.is_none_or(|since_ns| owner.time_ns > since_ns);
        is_new.then(|| (owner.pid, owner.process(&mut self.pods)))
    }

    /// Takes the process of a socket that was looked up; `None` if the socket was not found.
    fn learn(&mut self, key: SocketKey, found: Option<(u32, Process)>) {
        // It may have been asked about again meanwhile.
        self.wanted.remove(&key);
        let (known, is_open) = (self.known.remove(&key), found.is_some());
        let owner = match found {
            Some(owner) => Some(owner),
            None => {
                let noted = self.noted(&key, known.as_ref().map(|known| known.since_ns));
                let count = if noted.is_some() { &mut self.counts.noted } else { &mut self.counts.gone };
                *count += 1;
                noted.or_else(|| known?.owner)
            }
        };
        self.known.insert(key, Known { owner, is_open, since_ns: monotonic_ns() });
    }
}

/// What the thread has for itself.
struct Searcher {
    census: Option<Census>,
    listener: Listener,
    owners: Owners,
    pace: Pace,
    kernel: Option<Arc<dyn KernelOwners>>,
    shared: Arc<Mutex<Shared>>,
}

impl Searcher {
    fn run(mut self, attach: impl FnOnce() -> Option<Arc<dyn KernelOwners>>, is_over: &AtomicBool) {
        self.kernel = attach();
        lock(&self.shared).kernel.clone_from(&self.kernel);
        self.find_cgroups();
        // The sockets that are there at the start are all looked up: they may be asked about before the next time.
        self.look_up(None);
        while !is_over.load(Ordering::Relaxed) {
            self.listener.wait(WAIT_MS);
            {
                let shared = &mut *lock(&self.shared);
                self.listener.drain(|packet| shared.passive.observe(packet));
                (shared.counts.answers_lost, shared.counts.requests_lost) = self.listener.lost();
            }
            self.find_cgroups();
            if self.pace.is_due(monotonic_ns()) {
                let wanted = mem::take(&mut lock(&self.shared).wanted);
                if !wanted.is_empty() {
                    self.look_up(Some(wanted));
                }
            }
        }
    }

    fn find_cgroups(&self) {
        if let Some(kernel) = &self.kernel {
            kernel.find_cgroups();
        }
    }

    /// Looks up these sockets, or all.
    fn look_up(&mut self, wanted: Option<HashSet<SocketKey>>) {
        let (begun, now_ns) = (thread_cpu_ns(), monotonic_ns());
        let (mut inodes, mut ports) = (HashMap::new(), Vec::new());
        let mut take = |protocol, ends: Ends, inode| {
            if inode == 0 {
                // It is not accepted yet, or closed already.
            } else if ends.dst.port == 0 {
                ports.push(((protocol, ends.src.port), inode));
            } else if wanted.as_ref().is_none_or(|wanted| wanted.contains(&(protocol, ends)))
                && inodes.len() < MAX_KNOWN
            {
                inodes.insert((protocol, ends), inode);
            }
        };
        // What was reported before a failure counts.
        let _ = self.census.as_mut().map(|census| census.inodes(&mut take));
        self.owners.begin_interval();
        for inode in inodes.values().chain(ports.iter().map(|(_, inode)| inode)) {
            self.owners.pid(*inode);
        }
        self.owners.search_now(now_ns);
        self.hand_over(wanted, &inodes, &ports);
        self.pace.record(now_ns, thread_cpu_ns() - begun);
    }

    fn hand_over(
        &mut self,
        wanted: Option<HashSet<SocketKey>>,
        inodes: &HashMap<SocketKey, u32>,
        ports: &[((Protocol, u16), u32)],
    ) {
        let owners = &mut self.owners;
        let mut owner = |inode: u32| {
            let pid = owners.pid(inode)?;
            Some((pid, owners.process(pid)?.clone()))
        };
        let mut of_ports = HashMap::new();
        for (port, inode) in ports {
            let process = owner(*inode).map(|(_, process)| process);
            let known = of_ports.entry(*port).or_insert_with(|| process.clone());
            if *known != process {
                *known = None;
            }
        }
        let addresses = own_addresses();
        {
            let shared = &mut *lock(&self.shared);
            (shared.ports, shared.addresses) = (of_ports, addresses);
            shared.counts.lookups += 1;
        }
        let keys: Vec<SocketKey> =
            wanted.map_or_else(|| inodes.keys().copied().collect(), |wanted| wanted.into_iter().collect());
        for chunk in keys.chunks(CHUNK) {
            let shared = &mut *lock(&self.shared);
            for key in chunk {
                shared.learn(*key, inodes.get(key).and_then(|inode| owner(*inode)));
            }
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener, TcpStream},
        process,
        time::Instant,
    };

    use super::*;

    fn end(address: SocketAddr) -> Endpoint {
        Endpoint { address: address.ip(), port: address.port() }
    }

    fn eventually(names: &LiveNames, src: Endpoint, dst: Endpoint, is_there: impl Fn(&FlowNames) -> bool) -> FlowNames {
        let begun = Instant::now();
        loop {
            let found = names.names(&src, &dst, Protocol::TCP);
            if is_there(&found) || begun.elapsed() > Duration::from_secs(60) {
                return found;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn both_ends_of_a_connection_that_begins_later_have_their_process_and_a_stranger_has_none() {
        let names = LiveNames::start(true, false, || None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let (src, dst) = (end(client.local_addr().unwrap()), end(listener.local_addr().unwrap()));
        let found = eventually(&names, src, dst, |found| found.src.pid.is_some() && found.dst.pid.is_some());
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        for end in [&found.src, &found.dst] {
            assert_eq!((end.pid, end.process.as_deref()), (Some(process::id()), Some(own.trim_end())));
        }
        let stranger = Endpoint { address: "192.0.2.1".parse().unwrap(), port: 80 };
        assert!(names.names(&stranger, &stranger, Protocol::TCP).is_empty());
        assert_eq!(names.counts().omitted, 0, "nothing is looked up of it");
    }

    #[test]
    fn a_connection_of_a_server_that_is_over_has_the_process_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let names = LiveNames::start(true, false, || None);
        let gone = Endpoint { address: "127.0.0.1".parse().unwrap(), port: 1 };
        let found = eventually(&names, end(listener.local_addr().unwrap()), gone, |found| found.src.process.is_some());
        assert_eq!((found.src.pid, found.src.process.is_some()), (None, true));
        assert_eq!((found.dst.pid, found.src_role), (None, Some(Role::Server)));
        let back = names.names(&gone, &end(listener.local_addr().unwrap()), Protocol::TCP);
        assert_eq!(back.src_role, Some(Role::Client));
    }

    #[test]
    fn more_sockets_than_can_wait_are_counted() {
        let names = LiveNames {
            files: Files::load(),
            shared: Arc::new(Mutex::new(Shared::new(false))),
            reverse: None,
            is_over: Arc::default(),
        };
        let at = |port| Endpoint { address: "127.0.0.1".parse().unwrap(), port };
        let remote = Endpoint { address: "192.0.2.1".parse().unwrap(), port: 80 };
        for port in 0..=u16::MAX {
            names.names(&at(port), &remote, Protocol::TCP);
        }
        assert_eq!(lock(&names.shared).wanted.len(), MAX_WANTED);
        assert_eq!(names.counts().omitted, u64::from(u16::MAX), "port 0 is none");
    }
}
