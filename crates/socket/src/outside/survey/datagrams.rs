//! What can be told of UDP, and so of QUIC: how full the receive queues of sockets are, and what they dropped.

use std::collections::{HashMap, HashSet};

use dwell_engine::{names::DOMAIN, why};

use super::{
    super::{diag::Diag, message::SocketReport},
    Wanted,
};
use crate::clock::monotonic_ns;

/// Sockets that are kept apart; others are not counted.
const MAX_SOCKETS: usize = 1024;
/// Questions to name servers of which the time is kept.
const MAX_NAMES: usize = 4096;

/// The sockets of UDP of a target.
#[derive(Default)]
pub(super) struct Datagrams {
    /// By network namespace and cookie: the first and the last number of dropped datagrams.
    drops: HashMap<(u64, u64), (u32, u32)>,
    /// Those of other targets, by inode.
    others: HashSet<u32>,
    /// Sockets that ask name servers, by network namespace and cookie: when they were opened and last seen. Programs open
    /// one for each question, or a few. One that was there at the first look may be kept open for later questions: when it
    /// was opened is not known, and it counts for none.
    asking: HashMap<(u64, u64), (Option<u64>, u64)>,
    /// Whether they are those of a service that the target is. One that stays open may be kept for later questions, and counts
    /// for none.
    pub(super) are_of_service: bool,
    /// How long each question took.
    names_ns: Vec<u64>,
    /// When each network namespace was last looked into.
    last_looks_ns: HashMap<u64, u64>,
    looks: u64,
    /// Looks at which a queue held bytes, and the most that one held.
    waiting: u64,
    longest_queue: u32,
    /// The owner of a socket, that with the longest queue if one had any.
    owner: Option<u32>,
}

impl Datagrams {
    /// Counts a look at all network namespaces, as each of them has answered [`Self::look`].
    pub(super) fn count_look(&mut self, waits: impl IntoIterator<Item = Option<bool>>) {
        // One of them knows more than none, and one that waits more than all others.
        let waits = waits.into_iter().max().flatten();
        self.looks += u64::from(waits.is_some());
        self.waiting += u64::from(waits == Some(true));
    }

    /// Looks at the sockets of a network namespace. Returns whether bytes wait to be read at one; `None`, with no socket seen, where
    /// the kernel does not report them.
    pub(super) fn look(&mut self, namespace: u64, diag: &mut Diag, target: &mut Wanted) -> Option<bool> {
        let (mut seen, mut asking) = (Vec::new(), HashSet::new());
        let (selected, others, has_service) = (&target.selected, &self.others, !target.serving.is_empty());
        let dumped = diag.dump_datagrams(&mut |_, report| {
            let ends = report.key.ends();
            if ends.dst.port == DOMAIN {
                asking.insert(report.key.cookie());
            }
            let is_wanted = selected.matches(&ends) || has_service && ends.dst.port == DOMAIN;
            if seen.len() < MAX_SOCKETS && is_wanted && !others.contains(&report.inode) {
                seen.push(*report);
            }
        });
        dumped.ok()?;
        let now_ns = monotonic_ns();
        let before_ns = self.last_looks_ns.insert(namespace, now_ns);
        self.end_questions(namespace, &asking, now_ns);
        if seen.is_empty() {
            return Some(false);
        }
        let is_of_processes = target.selected.is_of_processes();
        let is_by_ends = |target: &Wanted, report: &SocketReport| {
            !target.selected.is_of_processes() && target.selected.matches(&report.key.ends())
        };
        let is_strange =
            |report: &SocketReport| !target.owners.contains_key(&report.inode) && !is_by_ends(target, report);
        match seen.iter().any(is_strange) {
            true if is_of_processes => target.find_owners(),
            true => target.find_owners_serving(),
            false => {}
        }
        let mut queued = 0;
        for report in &seen {
            let owner = target.owners.get(&report.inode).map(|owner| owner.pid);
            let is_by_ends = is_by_ends(target, report);
            let is_owned = if is_of_processes { owner.is_some() } else { target.serves(report.inode) };
            if !is_by_ends && !is_owned {
                if self.others.len() >= MAX_SOCKETS {
                    // Most of them are gone.
                    self.others.clear();
                }
                self.others.insert(report.inode);
                continue;
            }
            self.are_of_service |= !is_by_ends && !is_of_processes;
            if report.key.ends().dst.port == DOMAIN {
                if self.asking.len() < MAX_SOCKETS {
                    let began_ns = before_ns.map(|before_ns| before_ns.midpoint(now_ns));
                    self.asking.entry((namespace, report.key.cookie())).or_insert((began_ns, now_ns)).1 = now_ns;
                }
                continue;
            }
            let drops = report.drops.unwrap_or(0);
            if self.drops.len() < MAX_SOCKETS {
                self.drops.entry((namespace, report.key.cookie())).or_insert((drops, drops));
            }
            if let Some(counted) = self.drops.get_mut(&(namespace, report.key.cookie())) {
                counted.1 = drops;
            }
            if self.owner.is_none() || report.readable > self.longest_queue {
                self.owner = owner.or(self.owner);
            }
            queued = queued.max(report.readable);
            self.longest_queue = self.longest_queue.max(report.readable);
        }
        if let Some(pid) = self.owner {
            target.watch(pid);
        }
        Some(queued > 0)
    }

    /// Adds the questions whose sockets are not among those that are `asking` now, by cookie.
    fn end_questions(&mut self, namespace: u64, asking: &HashSet<u64>, now_ns: u64) {
        let is_over = |of: &(u64, u64)| of.0 == namespace && !asking.contains(&of.1);
        for (_, (first_ns, last_ns)) in self.asking.extract_if(|of, _| is_over(of)) {
            if let Some(first_ns) = first_ns.filter(|_| self.names_ns.len() < MAX_NAMES) {
                self.names_ns.push(last_ns.midpoint(now_ns) - first_ns);
            }
        }
    }

    /// Leaves a network namespace, with what its questions have taken so far.
    pub(super) fn leave(&mut self, namespace: u64) {
        self.last_looks_ns.remove(&namespace);
        for (_, question) in self.asking.extract_if(|of, _| of.0 == namespace) {
            if let Some(ns) = so_far(&question).filter(|_| self.names_ns.len() < MAX_NAMES) {
                self.names_ns.push(ns);
            }
        }
    }

    /// Returns how long questions to name servers took, with those that are still open.
    pub(super) fn names(&self) -> impl Iterator<Item = u64> {
        self.names_ns.iter().copied().chain(self.open_names())
    }

    /// Returns how long questions to name servers have taken at least that are still open: a resolver that is dead is waited
    /// for longer than most looks take.
    pub(super) fn open_names(&self) -> impl Iterator<Item = u64> {
        self.asking.values().filter(|_| !self.are_of_service).filter_map(so_far)
    }

    /// Returns the number of looks.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    pub(super) fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// Returns what was seen; `None` if there was no socket.
    pub(super) fn figures(&self) -> Option<why::Datagrams> {
        (!self.drops.is_empty()).then(|| why::Datagrams {
            sockets: self.drops.len() as u64,
            dropped: self.drops.values().map(|(first, last)| u64::from(last.wrapping_sub(*first))).sum(),
            longest_queue_bytes: self.longest_queue.into(),
            waiting: self.waiting as f64 / self.looks.max(1) as f64,
        })
    }
}

/// Returns how long a question was seen to wait; `None` if it is not known when it was asked.
fn so_far((first_ns, last_ns): &(Option<u64>, u64)) -> Option<u64> {
    Some(last_ns.saturating_sub((*first_ns)?))
}

#[cfg(test)]
mod tests {
    use std::{
        net::UdpSocket,
        process,
        sync::{Mutex, MutexGuard, PoisonError},
        thread,
        time::Duration,
    };

    use dwell_testbed::harness::eventually;

    use super::{
        super::{Selection, Survey},
        *,
    };

    /// The tests of this file look at all sockets of this process: one at a time has some.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_question_to_a_name_server_lasts_from_the_look_before_it_also_if_there_was_no_socket_then() {
        let _alone = alone();
        let survey = Survey::start(Selection::Process(process::id()), false).unwrap();
        let (mut target, mut datagrams, mut diag) = (survey.target, Datagrams::default(), Diag::open().unwrap());
        let mut look = || {
            datagrams.look(0, &mut diag, &mut target);
        };
        (0..2).for_each(|_| look());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", DOMAIN)).unwrap();
        look();
        thread::sleep(Duration::from_millis(50));
        look();
        drop(socket);
        look();
        let names: Vec<u64> = datagrams.names().collect();
        assert!(names.len() == 1 && names[0] >= 50_000_000, "{names:?}");
        assert!(names[0] < 10_000_000_000, "{names:?}");
    }

    /// Those of others are none of its.
    #[test]
    fn a_service_that_is_found_by_its_port_asks_name_servers_as_its_process_does() {
        let _alone = alone();
        let selected = Selection::Ends { addresses: Vec::new(), port: Some(1) };
        for (pid, asked) in [(process::id(), 1), (1, 0)] {
            let survey = Survey::start(selected.clone(), false).unwrap();
            let (mut target, mut datagrams, mut diag) = (survey.target, Datagrams::default(), Diag::open().unwrap());
            target.serving.insert(pid);
            let mut look = || {
                datagrams.look(0, &mut diag, &mut target);
            };
            look();
            let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            sockets.iter().for_each(|socket| socket.connect(("127.0.0.1", DOMAIN)).unwrap());
            look();
            let [_kept, once] = sockets;
            drop(once);
            look();
            assert_eq!(datagrams.names().count(), asked, "{pid}");
        }
    }

    #[test]
    fn a_question_that_is_open_at_the_end_has_waited_at_least_until_it_was_last_seen() {
        let _alone = alone();
        let survey = Survey::start(Selection::Process(process::id()), false).unwrap();
        let (mut target, mut datagrams, mut diag) = (survey.target, Datagrams::default(), Diag::open().unwrap());
        let mut look = |namespace| {
            datagrams.look(namespace, &mut diag, &mut target);
        };
        [0, 1].into_iter().for_each(&mut look);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", DOMAIN)).unwrap();
        [0, 1].into_iter().for_each(&mut look);
        thread::sleep(Duration::from_millis(50));
        [0, 1].into_iter().for_each(&mut look);
        // Of a namespace that is left, too.
        datagrams.leave(1);
        let open: Vec<u64> = datagrams.open_names().collect();
        let all: Vec<u64> = datagrams.names().collect();
        assert!(open.len() == 1 && open[0] >= 50_000_000, "{open:?}");
        assert!(all.len() == 2 && all.iter().all(|ns| *ns >= 50_000_000), "{all:?}");
        drop(socket);
    }

    #[test]
    fn a_question_whose_socket_is_gone_since_the_last_look_is_over() {
        let _alone = alone();
        let mut survey = Survey::start(Selection::Process(process::id()), false).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", DOMAIN)).unwrap();
        eventually("the socket is listed", || {
            survey.poll().unwrap();
            survey.datagrams.open_names().count() > 0
        });
        drop(socket);
        let evidence = survey.evidence("");
        assert_eq!((evidence.names.count, evidence.open_names), (1, 0));
    }

    /// A target may be in several network namespaces, in one of which a queue is never empty.
    #[test]
    fn a_look_at_several_network_namespaces_is_one() {
        let mut datagrams = Datagrams::default();
        datagrams.drops.insert((0, 1), (0, 0));
        for _ in 0..3 {
            datagrams.count_look([Some(false), Some(true), None]);
        }
        datagrams.count_look([Some(false), Some(false)]);
        datagrams.count_look([None, None]);
        assert_eq!((datagrams.looks(), datagrams.figures().map(|it| it.waiting)), (4, Some(0.75)));
    }

    #[test]
    fn a_socket_that_was_there_from_the_beginning_is_no_question_in_any_namespace() {
        let _alone = alone();
        let survey = Survey::start(Selection::Process(process::id()), false).unwrap();
        let (mut target, mut datagrams, mut diag) = (survey.target, Datagrams::default(), Diag::open().unwrap());
        let mut look = |namespace| {
            datagrams.look(namespace, &mut diag, &mut target);
        };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", DOMAIN)).unwrap();
        [0, 1, 0, 1].into_iter().for_each(&mut look);
        drop(socket);
        [0, 1].into_iter().for_each(&mut look);
        assert_eq!(datagrams.names().count(), 0);
    }
}
