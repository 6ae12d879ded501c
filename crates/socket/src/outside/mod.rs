//! Sockets of other processes, watched by sock_diag: without privilege, and whatever they are written in.

mod cgroup;
mod diag;
mod message;
mod pace;
mod processes;
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
    socket::{Account, Estimator, Meter, Observed, Peaks, Reading, Rhythm, TcpInfo, Way, control::Setting},
};

use self::{
    diag::Diag,
    message::{Found, Key},
    pace::Pace,
    processes::{Owner, Processes},
};
use crate::{
    Watch,
    clock::{monotonic_ns, thread_cpu_ns},
};

pub use self::{
    cgroup::Cgroup,
    trial::{TrialError, trial},
};

/// From so many sockets on it is looked whether a dump of all is cheaper than a question for each.
const FEW: usize = 64;
/// Sockets that nobody of the wanted has are looked for again after this time: one process can hand them to another.
const FORGET_STRANGERS_NS: u64 = 5_000_000_000;

/// Whose sockets to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Of a process and its descendants.
    Tree(u32),
    /// Of one process.
    Process(u32),
}

/// How to watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Time between two looks at a socket, if the budget allows it.
    pub poll: Duration,
    /// Time between two looks for new sockets, likewise.
    pub discovery: Duration,
    /// The share of a core that watching may take.
    pub budget: f64,
    /// How delays are estimated.
    pub estimator: Estimator,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            poll: Duration::from_millis(10),
            discovery: Duration::from_millis(50),
            budget: 0.05,
            estimator: Estimator::Exact,
        }
    }
}

/// Why sockets cannot be watched from outside.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no netlink, or no descriptor for it.
    #[error(
        "cannot ask the kernel for sockets (netlink sock_diag): {0}; the modules inet_diag and tcp_diag are needed \
         (`sudo modprobe -a inet_diag tcp_diag`)"
    )]
    Open(#[source] io::Error),
    /// The kernel does not answer.
    #[error(
        "the kernel did not tell its sockets (netlink sock_diag): {0}; the modules inet_diag and tcp_diag are needed \
         (`sudo modprobe -a inet_diag tcp_diag`)"
    )]
    Ask(#[source] io::Error),
    /// Nobody to watch.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// It belongs to somebody else.
    #[error("cannot see which sockets process {pid} has: {io}; run dwell as its user, or as root")]
    Denied {
        /// Its number.
        pid: u32,
        /// What the system said.
        io: io::Error,
    },
    /// A cgroup could not be used.
    #[error(
        "cannot use '{}' as a cgroup: {io}; name a directory of the cgroup v2 hierarchy, as in \
         /sys/fs/cgroup/system.slice/nginx.service", path.display()
    )]
    Cgroup {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
    /// Its sockets are not among those that are told here.
    #[error(
        "process {pid} is in another network namespace; go there: `sudo nsenter -t {pid} -n dwell run --attach {pid}`"
    )]
    Namespace {
        /// Its number.
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
    Diag::open()?.established(&mut |_, found| {
        if let Some(info) = &found.info {
            each(&found.key.ends(), info);
        }
    })
}

/// Watches the connections of some processes in the network namespace that it was started in.
pub struct Outside {
    diag: Diag,
    processes: Processes,
    config: Config,
    sockets: HashMap<u64, Box<Watched>>,
    /// By inode: sockets of nobody who is wanted.
    strangers: HashSet<u32>,
    strangers_since_ns: u64,
    /// By cookie: those that are watched inside their process.
    elsewhere: HashSet<u64>,
    /// By cookie: connections that the last dump told of and that are not watched.
    others: HashSet<u64>,
    /// When it began.
    dumped_ns: Option<u64>,
    /// Connections that it told of.
    told: usize,
    births: Pace,
    discovery: Pace,
    looks: Pace,
    /// Sockets that were found later than so long ago are not told yet.
    withheld_ns: u64,
}

struct Watched {
    key: Key,
    owner: Owner,
    found_ns: u64,
    ends: Ends,
    meter: Meter,
    rhythm: Rhythm,
    /// When it is to be looked at next.
    due_ns: u64,
    reading: Reading,
    observed: Observed,
    /// Since the reading that the meter has, nothing has changed.
    rested: bool,
    peaks: Peaks,
    ended: bool,
    /// The dump that is being taken has told of it.
    seen: bool,
}

impl Outside {
    /// Begins to watch. [`Whose::check`] tells whether their sockets can be known; those that cannot are not watched.
    ///
    /// # Errors
    ///
    /// If the kernel tells nothing of sockets.
    pub fn start(whose: Whose, config: Config) -> Result<Outside, Error> {
        Outside::of(Processes::new(whose), config)
    }

    fn of(processes: Processes, config: Config) -> Result<Outside, Error> {
        let half = config.budget / 2.0;
        let mut outside = Outside {
            diag: Diag::open()?,
            processes,
            config,
            sockets: HashMap::new(),
            strangers: HashSet::new(),
            strangers_since_ns: 0,
            elsewhere: HashSet::new(),
            others: HashSet::new(),
            dumped_ns: None,
            told: 0,
            births: Pace::new(config.discovery, half * 0.2),
            discovery: Pace::new(config.discovery, half * 0.8),
            looks: Pace::new(config.poll, half),
            withheld_ns: 0,
        };
        outside.poll()?;
        Ok(outside)
    }

    /// Does what is due: looks at sockets, and looks for new ones. Returns when it wants to be called again, on
    /// CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer any more.
    pub fn poll(&mut self) -> Result<u64, Error> {
        let now_ns = monotonic_ns();
        if self.births.is_due(now_ns) {
            self.look_for_processes(now_ns);
        }
        if self.many() {
            if self.looks.is_due(now_ns) {
                let begun = thread_cpu_ns();
                self.dump(true)?;
                // It does the work of both.
                let took = (thread_cpu_ns() - begun) / 2;
                self.looks.took(now_ns, took);
                self.discovery.took(now_ns, took);
            }
        } else {
            if self.discovery.is_due(now_ns) {
                let begun = thread_cpu_ns();
                self.dump(false)?;
                self.discovery.took(now_ns, thread_cpu_ns() - begun);
            }
            if self.looks.is_due(now_ns) {
                let begun = thread_cpu_ns();
                let next_ns = self.look(now_ns)?;
                self.looks.want(next_ns.saturating_sub(now_ns));
                self.looks.took(now_ns, thread_cpu_ns() - begun);
            }
        }
        Ok(self.looks.due_ns().min(self.discovery.due_ns()))
    }

    /// The next [`poll`](Outside::poll) looks at all, whatever the budget says.
    pub fn hurry(&mut self) {
        for watched in self.sockets.values_mut() {
            watched.due_ns = 0;
        }
        self.looks.hurry();
        self.discovery.hurry();
    }

    /// These cookies are watched inside their process from now on, and no others.
    pub fn leave(&mut self, elsewhere: impl IntoIterator<Item = u64>) {
        self.elsewhere.clear();
        self.elsewhere.extend(elsewhere);
        let elsewhere = &self.elsewhere;
        self.sockets.retain(|cookie, _| !elsewhere.contains(cookie));
    }

    /// A socket is told only so long after it was found, unless it has ended: until then it may turn out to be
    /// watched inside its process.
    pub fn withhold(&mut self, time: Duration) {
        self.withheld_ns = nanos(time);
    }

    /// Time between two looks at a socket, as the budget allows it now.
    pub fn interval(&self) -> Duration {
        self.looks.interval()
    }

    /// The process that was named has ended; its descendants may go on.
    pub fn has_ended(&self) -> bool {
        self.processes.has_ended()
    }

    /// Wanted processes whose sockets cannot be known, as their descriptors may not be read.
    pub fn denied(&self) -> &[u32] {
        self.processes.denied()
    }

    /// To ask for one socket costs as much as two in a dump.
    fn many(&self) -> bool {
        self.sockets.len() >= FEW && self.sockets.len() * 2 >= self.told
    }

    /// Looks at all sockets of the namespace: for new ones, and with `info` at those that are watched.
    fn dump(&mut self, info: bool) -> Result<(), Error> {
        let begun_ns = monotonic_ns();
        let mut told = 0;
        let mut new = Vec::new();
        let before = std::mem::take(&mut self.others);
        let (sockets, others) = (&mut self.sockets, &mut self.others);
        let (elsewhere, strangers) = (&self.elsewhere, &self.strangers);
        self.diag.all(info, &mut |time_ns, found| {
            told += 1;
            let cookie = found.key.cookie();
            if let Some(watched) = sockets.get_mut(&cookie) {
                watched.seen = true;
                if let Some(info) = found.info {
                    watched.look(time_ns, found, info);
                }
                return;
            }
            others.insert(cookie);
            let has_file = found.inode != 0;
            if has_file && !strangers.contains(&found.inode) && !elsewhere.contains(&cookie) {
                new.push((time_ns, *found));
            }
        })?;
        self.told = told;
        self.admit(&new, &before);
        self.dumped_ns = Some(begun_ns);
        self.ask_for_the_unseen()
    }

    /// Where a process ends before its children were seen, nobody knows any more whose they are.
    fn look_for_processes(&mut self, now_ns: u64) {
        let begun = thread_cpu_ns();
        self.processes.refresh();
        if self.processes.has_grown() {
            // What they have may have been told of before they were known.
            self.strangers.clear();
        }
        self.births.took(now_ns, thread_cpu_ns() - begun);
    }

    /// Finds whose they are, and watches those that are wanted. Those that were not there `before` have begun since.
    fn admit(&mut self, new: &[(u64, Found)], before: &HashSet<u64>) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.strangers_since_ns) > FORGET_STRANGERS_NS {
            self.strangers.clear();
            self.strangers_since_ns = now_ns;
        }
        if new.is_empty() {
            return;
        }
        let owners = self.processes.sockets();
        for (time_ns, found) in new {
            let Some(owner) = owners.get(&found.inode) else {
                self.strangers.insert(found.inode);
                continue;
            };
            let cookie = found.key.cookie();
            let mut watched = Watched::new(found.key, *owner, now_ns, self.config.estimator);
            if let Some(dumped_ns) = self.dumped_ns.filter(|_| !before.contains(&cookie)) {
                watched.meter.observe(&unbegun(dumped_ns));
            }
            watched.seen = true;
            if let Some(info) = found.info {
                watched.look(*time_ns, found, info);
            }
            self.sockets.insert(cookie, Box::new(watched));
        }
        self.looks.hurry();
    }

    /// What a dump does not tell has ended, or was passed over.
    fn ask_for_the_unseen(&mut self) -> Result<(), Error> {
        let unseen = self.sockets.values_mut().filter_map(|watched| {
            let seen = std::mem::take(&mut watched.seen);
            (!seen && !watched.ended).then_some(watched.key)
        });
        let unseen: Vec<Key> = unseen.collect();
        self.ask(&unseen)
    }

    /// Looks at each socket whose time has come. Returns when the next one's comes.
    fn look(&mut self, now_ns: u64) -> Result<u64, Error> {
        let poll_ns = nanos(self.config.poll);
        // A round for several whose times are near each other.
        let near_ns = now_ns + poll_ns / 10;
        let living = self.sockets.values().filter(|watched| !watched.ended);
        let due = living.filter(|watched| watched.due_ns <= near_ns);
        let due: Vec<Key> = due.map(|watched| watched.key).collect();
        self.ask(&due)?;
        let living = self.sockets.values_mut().filter(|watched| !watched.ended);
        let next_ns = living.map(|watched| {
            if watched.due_ns <= near_ns {
                watched.due_ns = now_ns + watched.rhythm.pause_ns(now_ns, poll_ns);
            }
            watched.due_ns
        });
        Ok(next_ns.min().unwrap_or(now_ns + poll_ns))
    }

    fn ask(&mut self, keys: &[Key]) -> Result<(), Error> {
        let sockets = &mut self.sockets;
        self.diag.each_of(keys, &mut |time_ns, key, found| {
            let Some(watched) = sockets.get_mut(&key.cookie()) else {
                return;
            };
            let info = found.and_then(|found| Some((found, found.info?)));
            match info.filter(|(_, info)| info.is_connected()) {
                Some((found, info)) => watched.look(time_ns, found, info),
                None => watched.ended = true,
            }
        })
    }
}

impl Watched {
    fn new(key: Key, owner: Owner, found_ns: u64, estimator: Estimator) -> Watched {
        Watched {
            key,
            owner,
            found_ns,
            ends: key.ends(),
            meter: Meter::new(estimator),
            rhythm: Rhythm::default(),
            due_ns: 0,
            reading: Reading::default(),
            observed: Observed::default(),
            rested: false,
            peaks: Peaks::default(),
            ended: false,
            seen: false,
        }
    }

    fn look(&mut self, time_ns: u64, found: &Found, info: TcpInfo) {
        let reading = Reading {
            time_ns,
            info,
            unacknowledged: Some(found.unacknowledged.into()),
            readable: Some(found.readable.into()),
        };
        // Of a time in which nothing changes, the begin and the end tell all: most of many connections rest.
        if same_bytes(&self.reading, &reading) {
            self.rested = true;
        } else {
            if std::mem::take(&mut self.rested) {
                self.meter.observe(&self.reading);
            }
            self.observe(&reading);
        }
        self.reading = reading;
    }

    fn observe(&mut self, reading: &Reading) {
        let waited = self.meter.waiting_ns(self.reading.time_ns);
        let observed = self.meter.observe(reading);
        self.rhythm.observe(reading.time_ns, &observed);
        if let Some(delay) = observed.sender {
            // The oldest byte of the last look has left too, if any has.
            let longest = waited.max(Some(delay.ns));
            self.peaks.sender_ns = self.peaks.sender_ns.max(longest);
        }
        if let Some(delay) = observed.receiver {
            self.peaks.receiver_ns = self.peaks.receiver_ns.max(Some(delay.ns));
        }
        self.observed = Observed {
            sender: observed.sender.or(self.observed.sender),
            receiver: observed.receiver.or(self.observed.receiver),
        };
    }

    fn account(&mut self) -> Account {
        Account {
            cookie: self.key.cookie(),
            pid: Some(self.owner.pid),
            fd: Some(self.owner.fd),
            ends: self.ends,
            way: Way::Outside,
            estimator: self.meter.estimator(),
            reading: self.reading,
            observed: self.observed,
            peaks: std::mem::take(&mut self.peaks),
            waiting_ns: self.meter.waiting_ns(self.reading.time_ns),
            totals: *self.meter.totals(),
            setting: Setting::default(),
            ended: self.ended,
        }
    }
}

/// What a connection would have told that had not begun yet.
fn unbegun(time_ns: u64) -> Reading {
    let info = TcpInfo {
        // The SYN counts.
        bytes_acked: Some(1),
        bytes_received: Some(0),
        segments_in: Some(0),
        notsent_bytes: Some(0),
        data_segments_in: Some(0),
        bytes_sent: Some(0),
        bytes_retransmitted: Some(0),
        ..TcpInfo::default()
    };
    Reading { time_ns, info, unacknowledged: Some(0), readable: Some(0) }
}

/// True if no byte went anywhere between the two.
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
            // One that was found and not looked at yet has nothing to tell.
            if watched.reading.time_ns > 0 && (watched.ended || !is_withheld) {
                each(&watched.account());
            }
        }
        self.sockets.retain(|_, watched| !watched.ended);
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
