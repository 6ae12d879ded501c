//! A look at the connections of one target, for `dwell why`: polled as often as the budget allows, whoever has them, in
//! whatever network namespace its processes are.

mod attempts;
mod connections;
mod datagrams;
mod elsewhere;
mod quota;
mod tally;
mod unseen;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use dwell_engine::{
    layers::Ends,
    names::EndNames,
    units::nanos,
    why::{Cause, Evidence, Outcome, Requests, Target, decide},
};

pub use self::elsewhere::{Elsewhere, OtherNamespace};

use self::{
    connections::Connections,
    datagrams::Datagrams,
    quota::Quotas,
    tally::Tally,
    unseen::{too_many, unseen},
};
use super::{
    Error, FEW, Scope, namespace,
    pace::Pace,
    processes::{Owner, Processes, add_sockets},
    tasks::Tasks,
};
use crate::{
    clock::{monotonic_ns, thread_cpu_ns},
    names::{Pods, process},
};

/// Connections that are followed at once; others are counted.
const MAX_CONNECTIONS: usize = 4096;
/// Connections beyond these that are told apart; more are not counted.
const MAX_OMITTED: usize = 65_536;
/// Processes that are watched; those with the most connections are found first.
const MAX_PROCESSES: usize = 16;
/// Network namespaces that are looked into; others are counted.
const MAX_NAMESPACES: usize = 64;
/// How often a task of a survey is done: the time between two runs, and the share of a core that it may use. Where it costs more, it
/// runs less often.
type Budget = (Duration, f64);

/// Polls of the connections that are followed.
const POLLS: Budget = (Duration::from_millis(1), 0.009);
/// With so many connections that a poll of all takes long, those of a panel are polled in their place: at most so many that
/// this host has accepted, and so many that it has opened, in each network namespace. All are polled by searches, which then
/// have more of the budget.
const PANEL: usize = 4;
const PANEL_POLLS: f64 = 0.006;
/// Searches for new connections: seldom, and often while there are new ones. The kernel goes through its whole table.
const DISCOVERY: Budget = (Duration::from_millis(50), 0.004);
const OFTEN: Duration = Duration::from_millis(10);
/// For how long after a new one.
const OFTEN_FOR_NS: u64 = 1_000_000_000;
/// Searches for connections that the processes have opened which serve the target: more often, because these are few.
const UPSTREAM: Budget = (Duration::from_millis(100), 0.0015);
/// Looks at processes.
const LOOKS: Budget = (Duration::from_millis(50), 0.0015);
/// Checks whether the target has ended.
const ENDS: Budget = (Duration::from_millis(50), 0.001);
/// Looks at sockets of UDP.
const DATAGRAMS: Budget = (Duration::from_millis(20), 0.005);
/// Searches for the processes that have the connections.
const SEARCHES: Budget = (Duration::from_millis(500), 0.0025);

/// What a survey does again and again.
#[derive(Debug, Clone, Copy)]
enum Task {
    Searches,
    Discovery,
    Upstream,
    Polls,
    Looks,
    Ends,
    Datagrams,
}

impl Task {
    /// All tasks, in the order in which those that are due are done.
    const ALL: [Task; 7] =
        [Task::Searches, Task::Discovery, Task::Upstream, Task::Polls, Task::Looks, Task::Ends, Task::Datagrams];

    fn pace(self) -> Pace {
        let (wanted, budget) = match self {
            Task::Searches => SEARCHES,
            Task::Discovery => DISCOVERY,
            Task::Upstream => UPSTREAM,
            Task::Polls => POLLS,
            Task::Looks => LOOKS,
            Task::Ends => ENDS,
            Task::Datagrams => DATAGRAMS,
        };
        Pace::new(wanted, budget)
    }
}

/// Whose connections are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Connections of which one end has one of these addresses (any if there are none) and this port, in the network
    /// namespace of the thread that looks.
    Ends {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The port; `None` for any.
        port: Option<u16>,
    },
    /// Connections of a process and its descendants, in whatever network namespace.
    Process(u32),
    /// Connections of the processes of cgroups and of those below them, in whatever network namespace.
    Cgroups(Vec<PathBuf>),
}

impl Selection {
    fn matches(&self, ends: &Ends) -> bool {
        let Selection::Ends { addresses, port } = self else {
            return true;
        };
        [&ends.src, &ends.dst].into_iter().any(|end| {
            (addresses.is_empty() || addresses.contains(&end.address)) && port.is_none_or(|port| port == end.port)
        })
    }

    /// Returns the only address and the port that the user named.
    fn server(&self) -> (Option<IpAddr>, Option<u16>) {
        match self {
            Selection::Ends { addresses, port } => (addresses.first().copied().filter(|_| addresses.len() == 1), *port),
            Selection::Process(_) | Selection::Cgroups(_) => (None, None),
        }
    }

    /// Whether sockets belong to the target by their processes, and not by their ends.
    fn is_of_processes(&self) -> bool {
        !matches!(self, Selection::Ends { .. })
    }
}

/// Looks at the connections of a target.
pub struct Survey {
    target: Wanted,
    has_labels: bool,
    /// By the number of the network namespace.
    namespaces: HashMap<u64, Connections>,
    /// Network namespaces that cannot be looked into, with a process of each, and how many are beyond the limit.
    inaccessible: BTreeMap<u64, u32>,
    datagrams: Datagrams,
    tally: Tally,
    start_ns: u64,
    /// The processor time of this thread after the last task.
    used_ns: u64,
    /// When a new connection was last found.
    found_ns: u64,
    /// Searches for connections, after the first.
    discoveries: u64,
    has_ended: bool,
    /// Whether the target was started to end.
    may_end: bool,
    /// By the number of the [`Task`].
    paces: [Pace; Task::ALL.len()],
}

/// The target, and the processes that have its sockets.
struct Wanted {
    selected: Selection,
    processes: Processes,
    /// By the inode of the socket, which is one of the whole host.
    owners: HashMap<u32, Owner>,
    tasks: BTreeMap<u32, Tasks>,
    /// What limits their processor time.
    quotas: BTreeMap<u32, Quotas>,
    /// Names of the processes that are watched.
    names: BTreeMap<u32, EndNames>,
    pods: Pods,
    /// Processes that serve connections of the target, if it is not of processes itself: what they wait for is followed.
    serving: BTreeSet<u32>,
}

impl Wanted {
    fn watch(&mut self, pid: u32) {
        if self.tasks.len() < MAX_PROCESSES && !self.tasks.contains_key(&pid) {
            self.tasks.insert(pid, Tasks::new(pid));
            self.quotas.insert(pid, Quotas::of(pid));
            // It may be gone at the end.
            self.names.extend(process(pid, &mut self.pods).map(|names| (pid, names)));
        }
    }

    /// Whether a socket is of a process that serves the target.
    fn serves(&self, inode: u32) -> bool {
        !self.serving.is_empty() && self.owners.get(&inode).is_some_and(|owner| self.serving.contains(&owner.pid))
    }

    fn find_owners(&mut self) {
        self.owners.extend(self.processes.sockets());
    }

    /// Finds the sockets of the processes that serve the target. One that has ended has none.
    fn find_owners_serving(&mut self) {
        self.serving.iter().for_each(|pid| drop(add_sockets(*pid, &mut self.owners)));
    }
}

impl Survey {
    /// Starts to look. The evidence tells requests apart by what they ask for if it `has_labels`. Where packets may be read,
    /// those of TLS's handshake are told apart whether it has them or not.
    ///
    /// # Errors
    ///
    /// If the kernel does not report its sockets, or the process or the cgroup cannot be watched.
    pub fn start(selected: Selection, has_labels: bool) -> Result<Survey, Error> {
        let processes = match &selected {
            Selection::Process(pid) => {
                Scope::Tree(*pid).check_readable()?;
                Processes::new(Scope::Tree(*pid))
            }
            Selection::Cgroups(paths) => {
                let path = || paths.first().cloned().unwrap_or_default();
                let members = namespace::members_of(paths).map_err(|io| Error::Cgroup { path: path(), io })?;
                if members.is_empty() {
                    return Err(Error::NoMembers { path: path() });
                }
                Processes::of_cgroups(paths.clone(), None)
            }
            Selection::Ends { .. } => Processes::of_all(),
        };
        let mut survey = Survey {
            target: Wanted {
                selected,
                processes,
                owners: HashMap::new(),
                tasks: BTreeMap::new(),
                quotas: BTreeMap::new(),
                names: BTreeMap::new(),
                pods: Pods::default(),
                serving: BTreeSet::new(),
            },
            has_labels,
            namespaces: HashMap::new(),
            inaccessible: BTreeMap::new(),
            datagrams: Datagrams::default(),
            tally: Tally::default(),
            start_ns: monotonic_ns(),
            used_ns: thread_cpu_ns(),
            found_ns: 0,
            discoveries: 0,
            has_ended: false,
            may_end: false,
            paces: Task::ALL.map(Task::pace),
        };
        survey.poll()?;
        // Whom the service of a port waits for is followed from the beginning.
        survey.search()?;
        survey.dump()?;
        // The first search is not charged to the polls.
        survey.used_ns = thread_cpu_ns();
        match survey.inaccessible.first_key_value() {
            Some((_, pid)) if survey.namespaces.is_empty() => Err(Error::Namespace { pid: *pid }),
            _ => Ok(survey),
        }
    }

    /// Returns the peers of the connections of the target that are there, some several times.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> {
        self.namespaces.values().flat_map(Connections::peers)
    }

    /// Does whatever is due. Returns the time of the next call, on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// If the kernel no longer answers.
    pub fn poll(&mut self) -> Result<u64, Error> {
        let now_ns = monotonic_ns();
        let are_many = self.connections() >= FEW;
        let more = if are_many { POLLS.1 - PANEL_POLLS } else { 0.0 };
        self.pace(Task::Polls).set_budget(POLLS.1 - more);
        self.pace(Task::Discovery).set_budget(DISCOVERY.1 + more);
        for task in Task::ALL {
            if self.pace(task).is_due(now_ns) {
                self.run(task, now_ns, are_many)?;
                let cost_ns = self.spent_ns();
                self.pace(task).record(now_ns, cost_ns);
            }
        }
        Ok(self.paces.iter().map(Pace::due_ns).min().unwrap_or(now_ns))
    }

    fn pace(&mut self, task: Task) -> &mut Pace {
        &mut self.paces[task as usize]
    }

    fn run(&mut self, task: Task, now_ns: u64, are_many: bool) -> Result<(), Error> {
        match task {
            Task::Searches => self.search()?,
            Task::Discovery => self.discover(now_ns, are_many)?,
            Task::Upstream => self.find_upstream()?,
            Task::Polls => {
                for connections in self.namespaces.values_mut() {
                    connections.query(&mut self.tally, are_many)?;
                }
            }
            Task::Looks => self.target.tasks.values_mut().for_each(Tasks::look),
            Task::Ends => self.has_ended = self.is_over(),
            Task::Datagrams => self.look_at_datagrams(),
        }
        Ok(())
    }

    fn look_at_datagrams(&mut self) {
        let mut waits = Vec::new();
        for (number, connections) in &mut self.namespaces {
            waits.push(self.datagrams.look(*number, &mut connections.diag, &mut self.target));
        }
        self.datagrams.count_look(waits);
    }

    /// Looks for connections, which polls those that are followed.
    fn discover(&mut self, now_ns: u64, are_many: bool) -> Result<(), Error> {
        let has_new = self.dump()?;
        if are_many {
            self.namespaces.values_mut().for_each(|it| it.choose_panel(PANEL, &mut self.tally));
        }
        self.discoveries += 1;
        if has_new || self.namespaces.values().any(Connections::is_opening) {
            self.found_ns = now_ns;
        }
        let is_lively = now_ns.saturating_sub(self.found_ns) < OFTEN_FOR_NS;
        self.pace(Task::Discovery).set_interval(nanos(if is_lively { OFTEN } else { DISCOVERY.0 }));
        if has_new && !are_many {
            self.pace(Task::Polls).make_due();
        }
        Ok(())
    }

    /// Returns the processor time since the last task, with that of going to sleep after it and of waking up.
    fn spent_ns(&mut self) -> u64 {
        let now_ns = thread_cpu_ns();
        now_ns - std::mem::replace(&mut self.used_ns, now_ns)
    }

    /// Returns true if the process of the target has ended, or its cgroup was removed, as of the last check: one
    /// each 50 ms, or less often where that costs more than 0.1 % of a core.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes the end of the target for what is wanted of it, as of a program that was started to be looked at. Otherwise the
    /// evidence says that nothing later was seen.
    pub fn let_end(&mut self) {
        self.may_end = true;
    }

    fn is_over(&self) -> bool {
        match &self.target.selected {
            Selection::Ends { .. } => false,
            Selection::Process(_) => self.target.processes.has_ended(),
            Selection::Cgroups(paths) => !paths.iter().any(|path| path.join("cgroup.procs").exists()),
        }
    }

    /// Returns the number of connections that are followed.
    pub fn connections(&self) -> usize {
        self.namespaces.values().map(Connections::len).sum()
    }

    /// Returns true if stamps of bytes would tell more of a connection that is followed.
    pub fn calls_for_stamps(&mut self) -> bool {
        self.namespaces.values_mut().any(Connections::calls_for_stamps)
    }

    /// Ends the survey. Returns what it found of the target that the user called `name`.
    pub fn evidence(mut self, name: &str) -> Evidence {
        let has_ended = match &self.target.selected {
            // A cgroup may outlive its processes.
            Selection::Cgroups(paths) => namespace::members_of(paths).map_or(true, |members| members.is_empty()),
            _ => self.is_over() && !self.may_end,
        };
        // Those of a target that has ended are over.
        if self.datagrams.open_names().next().is_some() {
            self.look_at_datagrams();
        }
        if self.is_over() {
            // Its connections are over too, which counts for those whose last request was not seen to be answered. One that the
            // kernel does not tell of counts as it was seen last.
            self.namespaces.values_mut().for_each(|it| drop(it.query(&mut self.tally, false)));
        }
        let mut omitted = self.tally.omitted;
        for connections in self.namespaces.values_mut() {
            omitted += connections.end_all(&self.target, &mut self.tally);
        }
        let closer = self.tally.closer();
        let all = mem::take(&mut self.tally.evidence);
        let context = Context { omitted, has_ended, observed_ns: monotonic_ns().saturating_sub(self.start_ns), name };
        let mut all = self.complete(all, &context);
        let closer = closer.map(|closer| self.complete(closer, &context));
        match closer.map(|closer| (slow(&all), slow(&closer), closer)) {
            // What polls of all that are far apart cannot tell, or tell roughly, those of the panel may.
            Some((of_all, Some(of_panel), mut closer)) if of_all.is_none_or(|of_all| of_all == of_panel) => {
                closer.unseen.push(too_many(&all, &closer));
                closer.requests = all.requests;
                (closer.connections, closer.accepted) = (all.connections, all.accepted);
                closer
            }
            Some((None, None, closer)) => {
                all.unseen.push(too_many(&all, &closer));
                (all.sums.service, all.sums.answer, all.answered_polls) =
                    (closer.sums.service, closer.sums.answer, closer.answered_polls);
                all
            }
            _ => all,
        }
    }

    /// Adds to what connections have shown what is known of the target besides.
    fn complete(&mut self, mut evidence: Evidence, context: &Context<'_>) -> Evidence {
        evidence.observed_ns = context.observed_ns;
        let apart_ns = |count: u64| context.observed_ns as f64 / count.max(1) as f64;
        evidence.search_interval_ns = apart_ns(self.discoveries);
        evidence.look_interval_ns = apart_ns(self.datagrams.looks());
        evidence.omitted = context.omitted;
        let (peer, port) = self.target.selected.server();
        evidence.target = Target { name: context.name.to_owned(), peer, port, ..Target::default() };
        evidence.datagrams = self.datagrams.figures();
        self.datagrams.names().for_each(|ns| evidence.add_name(ns));
        evidence.are_names_of_service = self.datagrams.are_of_service;
        evidence.open_names = self.datagrams.open_names().count() as u64;
        if !self.has_labels {
            evidence.requests = Requests::default();
        }
        evidence.is_of_processes = self.target.selected.is_of_processes();
        evidence.take_out_upstream();
        let owner = evidence.busiest_process().or(match self.target.selected {
            Selection::Process(pid) => Some(pid),
            _ => self.datagrams.owner(),
        });
        evidence.target.pid = owner;
        // Programs are started by others, whose name they had before.
        let pids: Vec<u32> = self.target.names.keys().copied().chain(owner).collect();
        let Wanted { names, pods, .. } = &mut self.target;
        names.extend(pids.into_iter().filter_map(|pid| Some((pid, process(pid, pods)?))));
        evidence.known.processes = self.target.names.clone();
        evidence.process = owner.and_then(|pid| self.target.tasks.get_mut(&pid)).and_then(|tasks| {
            // Times since the last look, which may be long ago.
            tasks.look();
            tasks.figures()
        });
        evidence.quota = owner.and_then(|pid| self.target.quotas.get(&pid)).and_then(Quotas::reached);
        let own = namespace::number_of("thread-self").ok();
        evidence.target.namespace_of =
            owner.filter(|pid| namespace::number_of(&pid.to_string()).ok().is_some_and(|there| Some(there) != own));
        unseen(&mut evidence, &self.inaccessible, self.tally.unread, context.has_ended);
        evidence
    }

    /// Finds namespaces, listeners, and the processes of connections.
    fn search(&mut self) -> Result<(), Error> {
        self.find_namespaces()?;
        for connections in self.namespaces.values_mut() {
            connections.find_listeners()?;
            connections.begin_search();
        }
        let owners = &self.target.owners;
        let is_unowned = |inode: u32| !owners.contains_key(&inode);
        // A service may have opened connections to others meanwhile.
        if !self.target.serving.is_empty() || self.namespaces.values().any(|it| it.inodes().any(is_unowned)) {
            self.target.find_owners();
            let found = self.namespaces.values().flat_map(Connections::inodes);
            let owners: BTreeSet<u32> = found.filter_map(|inode| Some(self.target.owners.get(&inode)?.pid)).collect();
            owners.into_iter().for_each(|pid| self.target.watch(pid));
            self.namespaces.values_mut().for_each(|connections| connections.assign(&self.target));
            if !self.target.selected.is_of_processes() {
                self.target.serving = self.namespaces.values().flat_map(Connections::servers).collect();
            }
        }
        Ok(())
    }

    /// Finds connections that the processes have opened which serve the target, while these are still open.
    fn find_upstream(&mut self) -> Result<(), Error> {
        if !self.target.serving.is_empty() {
            self.namespaces.values_mut().for_each(Connections::begin_search);
            self.target.find_owners_serving();
            let has_new = self.dump()?;
            self.discoveries += 1;
            if has_new {
                self.found_ns = monotonic_ns();
            }
        }
        Ok(())
    }

    /// Opens the namespaces of the target's processes, and leaves those in which none is any more.
    fn find_namespaces(&mut self) -> Result<(), Error> {
        let own = namespace::number_of("thread-self").map_err(Error::Open)?;
        if !self.target.selected.is_of_processes() {
            if self.namespaces.is_empty() {
                self.namespaces.insert(own, Connections::open()?);
            }
            return Ok(());
        }
        self.target.processes.refresh();
        let mut present = BTreeSet::new();
        for pid in self.target.processes.known() {
            let Ok(number) = namespace::number_of(&pid.to_string()) else {
                continue;
            };
            if !present.insert(number) || self.namespaces.contains_key(&number) {
                continue;
            }
            let opened = match number == own {
                true => Connections::open(),
                _ if self.namespaces.len() >= MAX_NAMESPACES => Err(Error::Namespace { pid }),
                false => namespace::enter(pid, Connections::open),
            };
            match opened {
                Ok(connections) => {
                    self.inaccessible.remove(&number);
                    self.namespaces.insert(number, connections);
                }
                Err(Error::Namespace { pid }) => drop(self.inaccessible.insert(number, pid)),
                Err(error) => return Err(error),
            }
        }
        // A netlink socket keeps its namespace alive. It goes with the last process there.
        for (number, mut gone) in self.namespaces.extract_if(|number, _| !present.contains(number)) {
            self.datagrams.leave(number);
            self.tally.omitted += gone.end_all(&self.target, &mut self.tally);
        }
        Ok(())
    }

    /// Looks for new connections and those that have ended, and polls all. Returns true if there are new ones.
    fn dump(&mut self) -> Result<bool, Error> {
        let mut room = MAX_CONNECTIONS.saturating_sub(self.connections());
        let before = room;
        for connections in self.namespaces.values_mut() {
            connections.dump(&mut self.target, &mut self.tally, &mut room)?;
        }
        Ok(room < before)
    }
}

/// What is known of a look besides the connections.
struct Context<'a> {
    omitted: u64,
    has_ended: bool,
    observed_ns: u64,
    name: &'a str,
}

/// Why connections are slow, if they are.
fn slow(evidence: &Evidence) -> Option<Cause> {
    match decide(evidence).outcome {
        Outcome::Slow(cause) => Some(cause),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
