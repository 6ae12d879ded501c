//! Connections that are counted together, and what services wait for on connections of their own.

use std::net::IpAddr;

use super::{ByLength, Evidence, Part, Role, Silences, Times};
use crate::layers::Ends;

/// A service is asked much if requests wait for it for this share of the look, summed over its connections.
const MUCH: f64 = 0.1;

/// Whose connections are counted together: those of one process with one server, or of one server with one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The other end.
    pub peer: IpAddr,
    /// The port of the server.
    pub port: u16,
    /// Which end this host is.
    pub role: Role,
    /// The process that has the connections; `None` if it is not known.
    pub pid: Option<u32>,
    /// In a capture, the end that is called local.
    pub seen_from: Option<IpAddr>,
}

impl Key {
    /// Creates the key of a connection whose process is not known.
    pub fn of(ends: &Ends, role: Role) -> Key {
        let server = if role == Role::Client { ends.dst } else { ends.src };
        Key { peer: ends.dst.address, port: server.port, role, pid: None, seen_from: None }
    }
}

/// Connections that are counted together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Whose they are.
    pub key: Key,
    /// How they count.
    pub counted: CountKind,
    /// Their number.
    pub connections: u64,
    /// The number of those that were over so soon that searches find only some of their kind.
    pub brief: u64,
    /// The time in which somebody waited.
    pub times: Times,
    /// How many of them the server refused, in a capture; 0 for live connections.
    pub refused: u64,
    /// Their waits for answers.
    pub answers: ByLength,
    /// The least number of their answers that polls are sure of.
    pub answered_polls: u64,
}

impl Group {
    /// Adds others of the same kind.
    pub(super) fn plus(&mut self, other: &Group) {
        self.connections += other.connections;
        self.brief += other.brief;
        self.refused += other.refused;
        self.times.plus(&other.times);
        self.answers.plus(&other.answers);
        self.answered_polls += other.answered_polls;
    }

    /// Returns the waits for answers up to a length, and the time of the connections that goes with them.
    fn up_to(&self, longest_ns: u64) -> (Silences, Times) {
        let (all, within) = (self.answers.up_to(u64::MAX), self.answers.up_to(longest_ns));
        let share = |part: u64, all: u64| if all > 0 { part as f64 / all as f64 } else { 1.0 };
        let mut times = self.times.scaled(share(within.count, all.count));
        times.remove(Part::Answer);
        times.add(Part::Answer, self.times.get(Part::Answer) * share(within.sum_ns, all.sum_ns));
        (within, times)
    }
}

/// How a connection counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountKind {
    /// As one of the target.
    Whole,
    /// As one of the target whose other end is followed too, because both are on this host. What the peer does is counted
    /// there.
    WithPeer,
    /// Not as one of the target's: a service of the target has opened it, and waits on it while it is asked.
    Upstream,
}

/// Whether a service of the target has opened them, and waits on them while it is asked.
fn is_upstream(group: &Group, is_of_processes: bool, servers: &[u32]) -> bool {
    let serves = |pid: Option<u32>| pid.is_some_and(|pid| servers.contains(&pid));
    match group.counted {
        CountKind::Whole => group.key.role == Role::Client && (is_of_processes || serves(group.key.pid)),
        CountKind::WithPeer => false,
        CountKind::Upstream => true,
    }
}

impl Evidence {
    /// Returns the processes that have accepted connections of the target.
    fn servers(&self) -> Vec<u32> {
        let of_servers = self.groups.iter().filter(|group| group.key.role == Role::Server);
        of_servers.filter_map(|group| group.key.pid).collect()
    }

    /// Returns the connections that a service has opened, most of which may have been over before a search found them.
    pub(super) fn brief_upstream(&self) -> Option<&Group> {
        /// Fewer may be of anything.
        const FEW: u64 = 3;
        let servers = self.servers();
        let is_opened = |group: &&Group| is_upstream(group, self.is_of_processes, &servers) && group.brief >= FEW;
        let are_most = |group: &&Group| group.brief * 2 >= group.connections;
        self.groups.iter().filter(is_opened).filter(are_most).max_by_key(|group| group.brief)
    }

    /// Moves what a service waited for on connections of its own from its time to that wait: so that the time of a request
    /// counts once, where it was spent. So are its waits for name servers. What waits longer than any request took does something else meanwhile, such as
    /// waiting for messages, also beside quick answers of the same server: where the service is asked much, that is nobody's wait. Requests that are served at the
    /// same time, and questions that are asked at the same time, are not told apart: the more there are, the rougher this is.
    pub fn take_out_upstream(&mut self) {
        let is_asked_much = self.sums.service.sum_ns as f64 >= self.observed_ns as f64 * MUCH;
        let longest_ns = self.sums.service.longest_ns.saturating_mul(2);
        let (of_processes, servers) = (self.is_of_processes, self.servers());
        let is_upstream = |group: &Group| is_upstream(group, of_processes, &servers);
        // What the process did itself is not waiting.
        let waits = |group: &Group| {
            let (_, times) = group.up_to(longest_ns);
            times.total() - times.sum(&[Part::Application, Part::Reader])
        };
        let names_ns = self.sums.times.get(Part::Names);
        let asks_names =
            !servers.is_empty() && self.names.mean_ns().is_some_and(|mean_ns| mean_ns <= longest_ns as f64);
        let names_within_ns = if asks_names { names_ns } else { 0.0 };
        let of_groups_ns: f64 = self.groups.iter().filter(|group| is_upstream(group)).map(waits).sum();
        // What takes longer than any request is asked for something else, as for checks of health.
        let set_ups_ns = self.upstream_set_ups.sum_ns as f64;
        let asks_by_them = self.upstream_set_ups.mean_ns().is_some_and(|mean_ns| mean_ns <= longest_ns as f64);
        let set_ups_within_ns = if asks_by_them { set_ups_ns } else { 0.0 };
        let waited_ns = of_groups_ns + names_within_ns + set_ups_within_ns;
        let served_ns = waited_ns.min(self.sums.times.get(Part::Service));
        let served = served_ns / waited_ns.max(1.0);
        // What is passed on as it comes pauses where it comes from, but for what counts as service already.
        let pauses_ns = |group: &Group| {
            let (_, times) = group.up_to(longest_ns);
            group.times.get(Part::PeerPause) - times.get(Part::PeerPause) * served
        };
        let awaited_ns: f64 = self.groups.iter().filter(|group| is_upstream(group)).map(pauses_ns).sum();
        let of_servers = self.groups.iter().filter(|group| group.key.role == Role::Server);
        let own_pauses_ns: f64 = of_servers.map(|group| group.times.get(Part::Application)).sum();
        let paused_ns = awaited_ns.min(own_pauses_ns).min(self.sums.times.get(Part::Application));
        let paused = paused_ns / awaited_ns.max(1.0);
        self.sums.service.sum_ns = self.sums.service.sum_ns.saturating_sub(served_ns as u64);
        self.sums.pause.sum_ns = self.sums.pause.sum_ns.saturating_sub(paused_ns as u64);
        self.sums.times.take(Part::SetUp, set_ups_ns - set_ups_within_ns * served);
        if self.are_names_of_service {
            self.sums.times.take(Part::Names, names_ns - names_within_ns * served);
            self.names = if asks_names { self.names } else { Silences::default() };
        }
        let of_servers_ns = [self.sums.times.get(Part::Service), own_pauses_ns];
        let taken = [(Part::Service, served_ns), (Part::Application, paused_ns)];
        taken.iter().for_each(|(part, ns)| self.sums.times.take(*part, *ns));
        for group in self.groups.iter_mut().filter(|group| group.key.role == Role::Server) {
            for ((part, ns), all_ns) in taken.into_iter().zip(of_servers_ns) {
                let share = ns / all_ns.max(1.0);
                let own_ns = group.times.get(part);
                group.times.take(part, own_ns * share);
            }
        }
        for group in self.groups.iter_mut().filter(|group| is_upstream(group)) {
            let (answers, times) = group.up_to(longest_ns);
            match group.counted {
                CountKind::Upstream => {
                    let passed_on_ns = pauses_ns(group) * paused;
                    group.times = times.scaled(served);
                    group.times.add(Part::PeerPause, passed_on_ns);
                    self.sums.times.plus(&group.times);
                    self.sums.answer.plus(&answers);
                    group.answered_polls = (group.answered_polls as f64 * served) as u64;
                    self.answered_polls[1] += group.answered_polls;
                }
                _ if is_asked_much => {
                    let meant_ns = group.times.get(Part::Answer) - times.get(Part::Answer);
                    self.sums.times.take(Part::Answer, meant_ns);
                    self.sums.idle_ns += meant_ns;
                    self.sums.answer.minus(&group.answers.up_to(u64::MAX));
                    self.sums.answer.plus(&answers);
                    group.times.take(Part::Answer, meant_ns);
                }
                _ => {}
            }
        }
    }
}
