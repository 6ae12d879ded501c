//! Sockets of other processes, watched by sock_diag: without privilege, and whatever language the programs are written
//! in.

mod census;
mod cgroup;
mod diag;
mod message;
pub mod namespace;
pub(crate) mod pace;
mod processes;
mod remote;
mod survey;
mod tasks;
mod trial;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    io,
    path::PathBuf,
    time::Duration,
};

use dwell_engine::{
    layers::Ends,
    socket::{Account, Delays, Estimator, Meter, Peaks, PollPacer, Reading, TcpInfo, Viewpoint, control::Setting},
    units::nanos,
};

use self::{
    diag::Diag,
    message::{SocketId, SocketReport},
    pace::Pace,
    processes::{Owner, Processes},
    remote::{Outcomes, Remote},
};
use crate::{
    Watch,
    clock::{monotonic_ns, thread_cpu_ns},
    table::RawConfig,
};

pub use self::{
    census::{Census, PolledSocket},
    cgroup::Cgroup,
    processes::{has_library, maps, uses_library},
    remote::remedy,
    survey::{Elsewhere, OtherNamespace, Selection, Survey},
    trial::{TrialError, trial},
};

/// Number of sockets from which a dump of all may be cheaper than a query for each.
const FEW: usize = 64;
/// Time after which sockets of unwanted processes are examined again, because a process can pass a socket to another
/// one.
const FORGET_UNWANTED_NS: u64 = 5_000_000_000;

/// The processes whose sockets are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A process and its descendants.
    Tree(u32),
    /// One process.
    Process(u32),
}

/// How sockets are watched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Time between two polls of a socket, if the budget allows it.
    pub poll: Duration,
    /// Time between two searches for new sockets, if the budget allows it.
    pub discovery: Duration,
    /// Share of a core that watching may use.
    pub budget: f64,
    /// The method of estimating delays.
    pub estimator: Estimator,
    /// Options to set on the sockets: the controller `Lowat` and the congestion control. They are reset in the end.
    pub options: Option<RawConfig>,
    /// Sets no options in processes that have loaded libdwell, which sets them itself.
    pub spares_library: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            poll: Duration::from_millis(10),
            discovery: Duration::from_millis(50),
            budget: 0.05,
            estimator: Estimator::Exact,
            options: None,
            spares_library: false,
        }
    }
}

/// Why sockets cannot be watched from outside.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Netlink is not available, or there is no descriptor for it.
    #[error(
        "cannot ask the kernel for sockets (netlink sock_diag): {0}; the modules inet_diag and tcp_diag are needed \
         (`sudo modprobe -a inet_diag tcp_diag`)"
    )]
    Open(#[source] io::Error),
    /// The kernel does not answer.
    #[error(
        "the kernel did not report its sockets (netlink sock_diag): {0}; the modules inet_diag and tcp_diag are needed \
         (`sudo modprobe -a inet_diag tcp_diag`)"
    )]
    Query(#[source] io::Error),
    /// The process does not exist.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Process ID.
        pid: u32,
    },
    /// The process belongs to another user.
    #[error("cannot see which sockets process {pid} has: {io}; run dwell as its user, or as root")]
    Denied {
        /// Process ID.
        pid: u32,
        /// Error of the system.
        io: io::Error,
    },
    /// A cgroup could not be used.
    #[error(
        "cannot use '{}' as a cgroup: {io}; name a directory of the cgroup v2 hierarchy, as in \
         /sys/fs/cgroup/system.slice/nginx.service", path.display()
    )]
    Cgroup {
        /// Path of the cgroup.
        path: PathBuf,
        /// Error of the system.
        io: io::Error,
    },
    /// A cgroup has no process.
    #[error("no process is in the cgroup '{}', nor in one below it; what it holds may have ended", path.display())]
    NoMembers {
        /// Path of the cgroup.
        path: PathBuf,
    },
    /// Options cannot be set on a process's sockets.
    #[error("cannot set options on the connections of process {pid} (pidfd_getfd): {io}{}", remedy(io))]
    Options {
        /// Process ID.
        pid: u32,
        /// Error of the system.
        io: io::Error,
    },
    /// The process's sockets cannot be seen from this network namespace.
    #[error(
        "process {pid} is in another network namespace; go there: `sudo nsenter -t {pid} -n dwell run --pid {pid}`"
    )]
    Namespace {
        /// Process ID.
        pid: u32,
    },
}

/// Reports each established TCP connection of this thread's network namespace, with what TCP knows of it: what
/// `ss -ti` shows. Nothing is watched, and no privilege is needed.
///
/// # Errors
///
/// If the kernel does not report its sockets.
pub fn established(mut each: impl FnMut(&Ends, &TcpInfo)) -> Result<(), Error> {
    Diag::open()?.dump_established(&mut |_, report| {
        if let Some(info) = &report.info {
            each(&report.key.ends(), info);
        }
    })
}

/// Returns the process that has each socket, by the inode of the socket: for those whose descriptors may be read. Of several
/// processes that share one, the one with the lowest ID.
pub fn owners() -> HashMap<u32, u32> {
    Processes::of_all().sockets().into_iter().map(|(inode, owner)| (inode, owner.pid)).collect()
}

/// Watches the connections of some processes in the network namespace in which it was started.
pub struct Outside {
    diag: Diag,
    processes: Processes,
    config: Config,
    sockets: HashMap<u64, Box<WatchedSocket>>,
    /// Inodes of sockets that do not belong to a wanted process.
    unwanted: HashSet<u32>,
    unwanted_since_ns: u64,
    /// Cookies of sockets that are watched inside their process.
    watched_inside: HashSet<u64>,
    /// Cookies of connections in the last dump that are not watched.
    unwatched: HashSet<u64>,
    /// Start of the last dump.
    dumped_ns: Option<u64>,
    /// Number of connections in the last dump.
    dumped: usize,
    process_scan: Pace,
    discovery: Pace,
    polls: Pace,
    /// Sockets that were found less than this ago are not reported yet.
    withheld_ns: u64,
    outcomes: Outcomes,
    /// True if options are set on some of the sockets.
    has_remotes: bool,
}

struct WatchedSocket {
    key: SocketId,
    owner: Owner,
    found_ns: u64,
    ends: Ends,
    meter: Meter,
    rhythm: PollPacer,
    /// Time of the next poll.
    due_ns: u64,
    reading: Reading,
    delays: Delays,
    /// True if nothing has changed since the reading that the meter has.
    is_unchanged: bool,
    peaks: Peaks,
    ended: bool,
    /// True if the socket is in the current dump.
    in_dump: bool,
    /// What was set on it.
    remote: Option<Remote>,
    /// True if the last reading has not been acted on.
    has_news: bool,
}

impl Outside {
    /// Starts watching. [`Scope::check`] reports whether the sockets can be seen at all; sockets that cannot be seen
    /// are not watched.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets.
    pub fn start(scope: Scope, config: Config) -> Result<Outside, Error> {
        Outside::of(Processes::new(scope), config)
    }

    fn of(processes: Processes, config: Config) -> Result<Outside, Error> {
        let half = config.budget / 2.0;
        let mut outside = Outside {
            diag: Diag::open()?,
            processes,
            config,
            sockets: HashMap::new(),
            unwanted: HashSet::new(),
            unwanted_since_ns: 0,
            watched_inside: HashSet::new(),
            unwatched: HashSet::new(),
            dumped_ns: None,
            dumped: 0,
            process_scan: Pace::new(config.discovery, half * 0.2),
            discovery: Pace::new(config.discovery, half * 0.8),
            polls: Pace::new(config.poll, half),
            withheld_ns: 0,
            outcomes: Outcomes::default(),
            has_remotes: false,
        };
        outside.poll()?;
        Ok(outside)
    }

    /// Does whatever is due: polls sockets, and searches for new ones. Returns the time of the next call, on
    /// CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel no longer answers.
    pub fn poll(&mut self) -> Result<u64, Error> {
        let now_ns = monotonic_ns();
        if self.process_scan.is_due(now_ns) {
            self.scan_processes(now_ns);
        }
        if self.is_dump_cheaper() {
            if self.polls.is_due(now_ns) {
                let begun = thread_cpu_ns();
                self.dump(true)?;
                self.set_options();
                // Such a dump serves both purposes.
                let took = (thread_cpu_ns() - begun) / 2;
                self.polls.record(now_ns, took);
                self.discovery.record(now_ns, took);
            }
        } else {
            if self.discovery.is_due(now_ns) {
                let begun = thread_cpu_ns();
                self.dump(false)?;
                self.discovery.record(now_ns, thread_cpu_ns() - begun);
            }
            if self.polls.is_due(now_ns) {
                let begun = thread_cpu_ns();
                let next_ns = self.poll_due(now_ns)?;
                self.set_options();
                self.polls.set_interval(next_ns.saturating_sub(now_ns));
                self.polls.record(now_ns, thread_cpu_ns() - begun);
            }
        }
        Ok(self.polls.due_ns().min(self.discovery.due_ns()))
    }

    /// Makes the next [`poll`](Outside::poll) poll every socket, whatever the budget.
    pub fn poll_all_next(&mut self) {
        for watched in self.sockets.values_mut() {
            watched.due_ns = 0;
        }
        self.polls.make_due();
        self.discovery.make_due();
    }

    /// Excludes the sockets with these cookies, and no others, because they are watched inside their process.
    pub fn exclude(&mut self, watched_inside: impl IntoIterator<Item = u64>) {
        self.watched_inside.clear();
        self.watched_inside.extend(watched_inside);
        let watched_inside = &self.watched_inside;
        self.sockets.retain(|cookie, _| !watched_inside.contains(cookie));
    }

    /// Reports a socket only this long after it was found, unless it has ended: until then it may turn out to be
    /// watched inside its process.
    pub fn withhold(&mut self, time: Duration) {
        self.withheld_ns = nanos(time);
    }

    /// Returns the time between two polls of a socket that the budget currently allows.
    pub fn interval(&self) -> Duration {
        self.polls.interval()
    }

    /// Returns true if the named process has ended; its descendants may still run.
    pub fn has_ended(&self) -> bool {
        self.processes.has_ended()
    }

    /// Returns wanted processes whose sockets cannot be found, because their descriptors may not be read.
    pub fn denied(&self) -> &[u32] {
        self.processes.denied()
    }

    /// Returns true if a dump costs less than single queries: a query for one socket costs as much as two in a dump.
    fn is_dump_cheaper(&self) -> bool {
        self.sockets.len() >= FEW && self.sockets.len() * 2 >= self.dumped
    }

    /// Dumps all sockets of the namespace to find new ones and, with `info`, to poll those that are watched.
    fn dump(&mut self, info: bool) -> Result<(), Error> {
        let begun_ns = monotonic_ns();
        let mut dumped = 0;
        let mut new = Vec::new();
        let before = std::mem::take(&mut self.unwatched);
        let (sockets, unwatched) = (&mut self.sockets, &mut self.unwatched);
        let (watched_inside, unwanted) = (&self.watched_inside, &self.unwanted);
        self.diag.dump_connected(info, &mut |time_ns, report| {
            dumped += 1;
            let cookie = report.key.cookie();
            if let Some(watched) = sockets.get_mut(&cookie) {
                watched.in_dump = true;
                if let Some(info) = report.info {
                    watched.record(time_ns, report, info);
                }
                return;
            }
            unwatched.insert(cookie);
            let has_file = report.inode != 0;
            if has_file && !unwanted.contains(&report.inode) && !watched_inside.contains(&cookie) {
                new.push((time_ns, *report));
            }
        })?;
        self.dumped = dumped;
        self.admit(&new, &before);
        self.dumped_ns = Some(begun_ns);
        self.query_missing()
    }

    /// Searches for processes. If a process ends before its children are found, nothing shows whose children they were.
    fn scan_processes(&mut self, now_ns: u64) {
        let begun = thread_cpu_ns();
        self.processes.refresh();
        if self.processes.has_grown() {
            // Their sockets may have been examined before the processes were known.
            self.unwanted.clear();
        }
        self.process_scan.record(now_ns, thread_cpu_ns() - begun);
    }

    /// Finds the owners of new sockets, and watches those that are wanted. Sockets not in `before` have been opened
    /// since.
    fn admit(&mut self, new: &[(u64, SocketReport)], before: &HashSet<u64>) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.unwanted_since_ns) > FORGET_UNWANTED_NS {
            self.unwanted.clear();
            self.unwanted_since_ns = now_ns;
        }
        if new.is_empty() {
            return;
        }
        let owners = self.processes.sockets();
        let mut with_library = HashMap::new();
        for (time_ns, report) in new {
            let Some(owner) = owners.get(&report.inode) else {
                self.unwanted.insert(report.inode);
                continue;
            };
            let cookie = report.key.cookie();
            let mut watched = WatchedSocket::new(report.key, *owner, now_ns, self.config.estimator);
            if let Some(dumped_ns) = self.dumped_ns.filter(|_| !before.contains(&cookie)) {
                watched.meter.observe(&before_first_byte(dumped_ns));
            }
            watched.in_dump = true;
            watched.remote = self.config.options.as_ref().and_then(|options| {
                let mut is_spared = || *with_library.entry(owner.pid).or_insert_with(|| uses_library(&maps(owner.pid)));
                (!self.config.spares_library || !is_spared()).then(|| Remote::new(options))
            });
            self.has_remotes |= watched.remote.is_some();
            if let Some(info) = report.info {
                watched.record(*time_ns, report, info);
            }
            self.sockets.insert(cookie, Box::new(watched));
        }
        self.polls.make_due();
    }

    /// Queries watched sockets that are missing in a dump: they have ended, or were skipped.
    fn query_missing(&mut self) -> Result<(), Error> {
        let missing = self.sockets.values_mut().filter_map(|watched| {
            let in_dump = std::mem::take(&mut watched.in_dump);
            (!in_dump && !watched.ended).then_some(watched.key)
        });
        let missing: Vec<SocketId> = missing.collect();
        self.query(&missing)
    }

    /// Polls each socket that is due. Returns the time of the next poll.
    fn poll_due(&mut self, now_ns: u64) -> Result<u64, Error> {
        let poll_ns = nanos(self.config.poll);
        // Sockets that are due at nearly the same time share a round.
        let near_ns = now_ns + poll_ns / 10;
        let living = self.sockets.values().filter(|watched| !watched.ended);
        let due = living.filter(|watched| watched.due_ns <= near_ns);
        let due: Vec<SocketId> = due.map(|watched| watched.key).collect();
        self.query(&due)?;
        let living = self.sockets.values_mut().filter(|watched| !watched.ended);
        let next_ns = living.map(|watched| {
            if watched.due_ns <= near_ns {
                watched.due_ns = now_ns + watched.rhythm.pause_ns(now_ns, poll_ns);
            }
            watched.due_ns
        });
        Ok(next_ns.min().unwrap_or(now_ns + poll_ns))
    }

    fn query(&mut self, keys: &[SocketId]) -> Result<(), Error> {
        let sockets = &mut self.sockets;
        self.diag.query(keys, &mut |time_ns, key, report| {
            let Some(watched) = sockets.get_mut(&key.cookie()) else {
                return;
            };
            let info = report.and_then(|report| Some((report, report.info?)));
            match info.filter(|(_, info)| info.is_connected()) {
                Some((report, info)) => watched.record(time_ns, report, info),
                None => watched.ended = true,
            }
        })
    }
}

impl WatchedSocket {
    fn new(key: SocketId, owner: Owner, found_ns: u64, estimator: Estimator) -> WatchedSocket {
        WatchedSocket {
            key,
            owner,
            found_ns,
            ends: key.ends(),
            meter: Meter::new(estimator),
            rhythm: PollPacer::default(),
            due_ns: 0,
            reading: Reading::default(),
            delays: Delays::default(),
            is_unchanged: false,
            peaks: Peaks::default(),
            ended: false,
            in_dump: false,
            remote: None,
            has_news: false,
        }
    }

    fn record(&mut self, time_ns: u64, report: &SocketReport, info: TcpInfo) {
        let reading = census::reading(time_ns, report, info);
        // For a period without change the first and the last reading suffice: most of many connections are quiet.
        if same_bytes(&self.reading, &reading) {
            self.is_unchanged = true;
        } else {
            if std::mem::take(&mut self.is_unchanged) {
                self.meter.observe(&self.reading);
            }
            self.observe(&reading);
        }
        self.reading = reading;
        self.has_news = true;
    }

    fn observe(&mut self, reading: &Reading) {
        let waited = self.meter.waiting_ns(self.reading.time_ns);
        let delays = self.meter.observe(reading);
        self.rhythm.observe(reading.time_ns, &delays);
        if let Some(delay) = delays.sender {
            // If any byte has left, the oldest byte of the last poll has left too.
            let longest = waited.max(Some(delay.ns));
            self.peaks.sender_ns = self.peaks.sender_ns.max(longest);
        }
        if let Some(delay) = delays.receiver {
            self.peaks.receiver_ns = self.peaks.receiver_ns.max(Some(delay.ns));
        }
        self.delays =
            Delays { sender: delays.sender.or(self.delays.sender), receiver: delays.receiver.or(self.delays.receiver) };
    }

    fn account(&mut self) -> Account {
        Account {
            cookie: self.key.cookie(),
            pid: Some(self.owner.pid),
            fd: Some(self.owner.fd),
            ends: self.ends,
            viewpoint: Viewpoint::Outside,
            estimator: self.meter.estimator(),
            reading: self.reading,
            delays: self.delays,
            peaks: std::mem::take(&mut self.peaks),
            waiting_ns: self.meter.waiting_ns(self.reading.time_ns),
            totals: *self.meter.totals(),
            setting: self.remote.as_ref().map_or_else(Setting::default, Remote::setting),
            ended: self.ended,
        }
    }
}

/// Returns the reading that a connection would have had before it was opened.
fn before_first_byte(time_ns: u64) -> Reading {
    let info = TcpInfo {
        // The SYN counts.
        bytes_acked: Some(1),
        bytes_received: Some(0),
        segments_out: Some(0),
        segments_in: Some(0),
        notsent_bytes: Some(0),
        data_segments_in: Some(0),
        data_segments_out: Some(0),
        busy_us: Some(0),
        receiver_limited_us: Some(0),
        buffer_limited_us: Some(0),
        bytes_sent: Some(0),
        bytes_retransmitted: Some(0),
        out_of_order: Some(0),
        ..TcpInfo::default()
    };
    Reading { time_ns, info, unacknowledged: Some(0), readable: Some(0) }
}

/// Returns true if no byte moved between the two readings.
fn same_bytes(before: &Reading, after: &Reading) -> bool {
    let bytes = |reading: &Reading| {
        let info = &reading.info;
        let sent = (info.bytes_sent, info.bytes_retransmitted, info.notsent_bytes);
        let counted = (info.bytes_acked, info.bytes_received, info.segments_in, info.unacked);
        (sent, counted, reading.unacknowledged, reading.readable)
    };
    before.time_ns > 0 && bytes(before) == bytes(after)
}

impl Watch for Outside {
    type Error = Infallible;

    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Infallible> {
        let now_ns = monotonic_ns();
        for watched in self.sockets.values_mut() {
            let is_withheld = now_ns.saturating_sub(watched.found_ns) < self.withheld_ns;
            // A socket that was found and not polled yet has no figures.
            if watched.reading.time_ns > 0 && (watched.ended || !is_withheld) {
                each(&watched.account());
            }
        }
        self.sockets.retain(|_, watched| !watched.ended);
        Ok(())
    }
}
