//! A look at the connections of one target, for `dwell why`: polled as often as the budget allows, whoever has them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use dwell_engine::{
    layers::Ends,
    socket::{Reading, TcpInfo},
    why::{Connection, Evidence, Role, Target, Unseen},
};

use super::{
    Error, FEW, Scope, before_first_byte,
    diag::Diag,
    message::{SocketId, SocketReport},
    pace::Pace,
    processes::{Owner, Processes},
    tasks::Tasks,
};
use crate::clock::{monotonic_ns, thread_cpu_ns};

/// Connections that are followed at once; others are counted.
const MAX_CONNECTIONS: usize = 4096;
/// Processes that are watched; those with the most connections are found first.
const MAX_PROCESSES: usize = 16;
/// Time between two polls, between two searches for connections, and between two looks at processes, if the budget
/// allows it.
const POLL: Duration = Duration::from_millis(1);
const DISCOVERY: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(20);
/// Time between two searches for the processes that have the connections.
const SEARCH_NS: u64 = 500_000_000;
/// The share of a core that a survey may use.
const BUDGET: f64 = 0.1;

/// Whose connections are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// Connections of which one end has one of these addresses (any if there are none) and this port.
    Ends {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The port; `None` for any.
        port: Option<u16>,
    },
    /// Connections of a process and its descendants.
    Process(u32),
}

impl Selected {
    fn matches(&self, ends: &Ends) -> bool {
        let Selected::Ends { addresses, port } = self else {
            return true;
        };
        [&ends.src, &ends.dst].into_iter().any(|end| {
            (addresses.is_empty() || addresses.contains(&end.address)) && port.is_none_or(|port| port == end.port)
        })
    }
}

/// Looks at connections in the network namespace in which it was started.
pub struct Survey {
    diag: Diag,
    selected: Selected,
    processes: Processes,
    owners: HashMap<u32, Owner>,
    tasks: BTreeMap<u32, Tasks>,
    followed: HashMap<u64, Followed>,
    /// Their cookies, by their ends.
    by_ends: HashMap<Ends, u64>,
    /// Cookies of connections that are not of the target.
    others: HashSet<u64>,
    omitted: HashSet<u64>,
    /// Local ports at which programs listen.
    listening: HashSet<u16>,
    evidence: Evidence,
    /// The connection on which most time was spent: that time, its ends, role and inode.
    worst: Option<(f64, Ends, Role, u32)>,
    start_ns: u64,
    dumped_ns: Option<u64>,
    next_search_ns: u64,
    polls: Pace,
    discovery: Pace,
    looks: Pace,
}

struct Followed {
    key: SocketId,
    inode: u32,
    ends: Ends,
    role: Role,
    /// Whether the other end is followed too.
    is_paired: bool,
    connection: Connection,
}

impl Survey {
    /// Starts to look.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets, or the process cannot be watched.
    pub fn start(selected: Selected) -> Result<Survey, Error> {
        let processes = match selected {
            Selected::Process(pid) => {
                Scope::Tree(pid).check()?;
                Processes::new(Scope::Tree(pid))
            }
            Selected::Ends { .. } => Processes::of_all(),
        };
        let mut survey = Survey {
            diag: Diag::open()?,
            selected,
            processes,
            owners: HashMap::new(),
            tasks: BTreeMap::new(),
            followed: HashMap::new(),
            by_ends: HashMap::new(),
            others: HashSet::new(),
            omitted: HashSet::new(),
            listening: HashSet::new(),
            evidence: Evidence::default(),
            worst: None,
            start_ns: monotonic_ns(),
            dumped_ns: None,
            next_search_ns: 0,
            polls: Pace::new(POLL, BUDGET * 0.6),
            discovery: Pace::new(DISCOVERY, BUDGET * 0.3),
            looks: Pace::new(LOOK, BUDGET * 0.1),
        };
        survey.poll()?;
        Ok(survey)
    }

    /// Does whatever is due. Returns the time of the next call, on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel no longer answers.
    pub fn poll(&mut self) -> Result<u64, Error> {
        let now_ns = monotonic_ns();
        if now_ns >= self.next_search_ns {
            self.next_search_ns = now_ns + SEARCH_NS;
            self.search()?;
        }
        let is_dump_cheaper = self.followed.len() >= FEW;
        if self.discovery.is_due(now_ns) || (is_dump_cheaper && self.polls.is_due(now_ns)) {
            let begun = thread_cpu_ns();
            self.dump()?;
            let took = thread_cpu_ns() - begun;
            self.discovery.record(now_ns, took);
            if is_dump_cheaper {
                self.polls.record(now_ns, took);
            }
        }
        if !is_dump_cheaper && self.polls.is_due(now_ns) {
            let begun = thread_cpu_ns();
            self.query()?;
            self.polls.record(now_ns, thread_cpu_ns() - begun);
        }
        if self.looks.is_due(now_ns) {
            let begun = thread_cpu_ns();
            self.tasks.values_mut().for_each(Tasks::look);
            self.looks.record(now_ns, thread_cpu_ns() - begun);
        }
        Ok(self.polls.due_ns().min(self.discovery.due_ns()).min(self.looks.due_ns()))
    }

    /// Returns true if the process of the target has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.selected, Selected::Process(_)) && self.processes.has_ended()
    }

    /// Returns the number of connections that are followed.
    pub fn connections(&self) -> usize {
        self.followed.len()
    }

    /// Ends the survey. Returns what it found of the target that the user called `name`.
    pub fn evidence(mut self, name: &str) -> Evidence {
        let followed: Vec<Followed> = self.followed.drain().map(|(_, followed)| followed).collect();
        followed.iter().for_each(|followed| self.add(followed));
        let mut evidence = self.evidence;
        evidence.observed_ns = monotonic_ns().saturating_sub(self.start_ns);
        evidence.omitted = self.omitted.len() as u64;
        if evidence.omitted > 0 {
            evidence.unseen.push(Unseen {
                what: format!(
                    "{} connections beyond the {MAX_CONNECTIONS} that are followed at once",
                    evidence.omitted
                ),
                remedy: "name fewer of them, as by HOST:PORT".into(),
            });
        }
        evidence.target = Target { name: name.to_owned(), ..Target::default() };
        let mut owner = None;
        if let Some((_, ends, role, inode)) = &self.worst {
            owner = self.owners.get(inode).map(|owner| owner.pid);
            evidence.target.peer = Some(ends.dst.address);
            evidence.target.port = Some(match role {
                Role::Client => ends.dst.port,
                Role::Server => ends.src.port,
            });
        }
        if let Selected::Process(pid) = self.selected {
            owner = owner.or(Some(pid));
        }
        evidence.target.pid = owner;
        evidence.process = owner.and_then(|pid| self.tasks.get(&pid)).and_then(Tasks::figures);
        if evidence.connections > 0 && evidence.process.is_none() {
            evidence.unseen.push(Unseen {
                what: "what the process that has the connections did".into(),
                remedy: "run dwell as root, or as the user of that process".into(),
            });
        }
        evidence
    }

    /// Finds listeners, and the processes of connections.
    fn search(&mut self) -> Result<(), Error> {
        let mut listening = HashSet::new();
        self.diag.dump_listening(&mut |_, report| {
            listening.insert(report.key.ends().src.port);
        })?;
        self.listening = listening;
        // A process may have been given a connection of another one.
        self.others.clear();
        let is_unknown = self.followed.values().any(|followed| !self.owners.contains_key(&followed.inode));
        if is_unknown {
            self.find_owners();
        }
        Ok(())
    }

    fn find_owners(&mut self) {
        let owners = self.processes.sockets();
        let inodes: Vec<u32> = self.followed.values().map(|followed| followed.inode).collect();
        for inode in inodes {
            if let Some(owner) = owners.get(&inode) {
                self.owners.insert(inode, *owner);
                self.watch(owner.pid);
            }
        }
    }

    fn watch(&mut self, pid: u32) {
        if self.tasks.len() < MAX_PROCESSES {
            self.tasks.entry(pid).or_insert_with(|| Tasks::new(pid));
        }
    }

    /// Looks for new connections and those that have ended, and polls all.
    fn dump(&mut self) -> Result<(), Error> {
        let begun_ns = monotonic_ns();
        let mut seen = HashSet::with_capacity(self.followed.len());
        let mut new = Vec::new();
        let (followed, selected) = (&mut self.followed, &self.selected);
        let (others, omitted) = (&self.others, &self.omitted);
        self.diag.dump_connected(true, &mut |time_ns, report| {
            let cookie = report.key.cookie();
            seen.insert(cookie);
            match (followed.get_mut(&cookie), report.info) {
                (Some(followed), Some(info)) => followed.connection.observe(&reading(time_ns, report, info)),
                (None, Some(info)) if !others.contains(&cookie) && !omitted.contains(&cookie) => {
                    let ends = report.key.ends();
                    if selected.matches(&ends) {
                        new.push((ends, *report, reading(time_ns, report, info)));
                    }
                }
                _ => {}
            }
        })?;
        self.others.retain(|cookie| seen.contains(cookie));
        self.end(|cookie, followed| !seen.contains(cookie) && followed.connection.last_ns() < begun_ns);
        self.admit(new);
        self.dumped_ns = Some(begun_ns);
        Ok(())
    }

    fn admit(&mut self, new: Vec<(Ends, SocketReport, Reading)>) {
        if new.is_empty() {
            return;
        }
        if matches!(self.selected, Selected::Process(_)) {
            for (inode, owner) in self.processes.sockets() {
                self.owners.insert(inode, owner);
            }
        }
        for (ends, report, now) in new {
            let cookie = report.key.cookie();
            let owner = self.owners.get(&report.inode).copied();
            if matches!(self.selected, Selected::Process(_)) {
                let Some(owner) = owner else {
                    // One that is not accepted yet may be the target's later.
                    if report.inode != 0 {
                        self.others.insert(cookie);
                    }
                    continue;
                };
                self.watch(owner.pid);
            }
            if self.followed.len() >= MAX_CONNECTIONS {
                // Of those beyond the limit, as many are told apart.
                if self.omitted.len() < MAX_CONNECTIONS {
                    self.omitted.insert(cookie);
                }
                continue;
            }
            let role = self.role(&ends);
            let connection = match self.dumped_ns.filter(|_| is_new(&now.info)) {
                Some(dumped_ns) => {
                    let mut connection = Connection::new(role, &before_first_byte(dumped_ns));
                    connection.observe(&now);
                    connection
                }
                None => Connection::new(role, &now),
            };
            let other = self.by_ends.get(&Ends { src: ends.dst, dst: ends.src });
            let other = other.and_then(|cookie| self.followed.get_mut(cookie));
            let is_paired = other.is_some();
            if let Some(other) = other {
                other.is_paired = true;
            }
            self.by_ends.insert(ends, cookie);
            let (key, inode) = (report.key, report.inode);
            self.followed.insert(cookie, Followed { key, inode, ends, role, is_paired, connection });
            self.polls.make_due();
        }
    }

    /// The end that somebody listens at is the server. Where the listener is gone, the other end has a port of those that
    /// the kernel gives to clients.
    fn role(&self, ends: &Ends) -> Role {
        const FIRST_OF_CLIENTS: u16 = 32768;
        let is_server = self.listening.contains(&ends.src.port)
            || (ends.src.port < FIRST_OF_CLIENTS && ends.dst.port >= FIRST_OF_CLIENTS);
        if is_server { Role::Server } else { Role::Client }
    }

    fn query(&mut self) -> Result<(), Error> {
        let keys: Vec<SocketId> = self.followed.values().map(|followed| followed.key).collect();
        let mut ended = HashSet::new();
        let followed = &mut self.followed;
        self.diag.query(&keys, &mut |time_ns, key, report| {
            let cookie = key.cookie();
            let info = report.and_then(|report| Some((report, report.info?)));
            match (followed.get_mut(&cookie), info.filter(|(_, info)| info.is_connected())) {
                (Some(followed), Some((report, info))) => {
                    followed.connection.observe(&reading(time_ns, report, info));
                }
                _ => {
                    ended.insert(cookie);
                }
            }
        })?;
        self.end(|cookie, _| ended.contains(cookie));
        Ok(())
    }

    /// Adds the connections that have ended to the evidence.
    fn end(&mut self, has_ended: impl Fn(&u64, &Followed) -> bool) {
        let ended: Vec<Followed> = self
            .followed
            .extract_if(|cookie, followed| has_ended(cookie, followed))
            .map(|(_, followed)| followed)
            .collect();
        ended.iter().for_each(|followed| self.add(followed));
    }

    fn add(&mut self, followed: &Followed) {
        let before = self.evidence.times.total();
        self.by_ends.remove(&followed.ends);
        self.evidence.add(&followed.connection, followed.is_paired);
        let spent = self.evidence.times.total() - before;
        if self.worst.as_ref().is_none_or(|(most, ..)| spent > *most) {
            self.worst = Some((spent, followed.ends, followed.role, followed.inode));
        }
    }
}

/// Whether a connection that was not there before has just begun: what it sent can only be counted from its first byte.
fn is_new(info: &TcpInfo) -> bool {
    const RECENT_US: u64 = 1_000_000;
    info.busy_us.is_some_and(|us| us < RECENT_US)
}

fn reading(time_ns: u64, report: &SocketReport, info: TcpInfo) -> Reading {
    Reading {
        time_ns,
        info,
        unacknowledged: Some(report.unacknowledged.into()),
        readable: Some(report.readable.into()),
    }
}
