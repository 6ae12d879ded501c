//! Connections that are counted together, and what services wait for on connections of their own.

use std::net::IpAddr;

use super::{Evidence, Part, Role, Silences, Times};
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
    pub counted: Counted,
    /// Their number.
    pub connections: u64,
    /// The time in which somebody waited.
    pub times: Times,
    /// Their waits for answers.
    pub answer: Silences,
}

/// How a connection counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// As one of the target.
    Whole,
    /// As one of the target whose other end is followed too, because both are on this host. What the peer does is counted
    /// there.
    WithPeer,
    /// Not as one of the target's: a service of the target has opened it, and waits on it while it is asked.
    Upstream,
}

impl Evidence {
    /// Moves what a service waited for on connections of its own from its time to that wait: so that the time of a request
    /// counts once, where it was spent. Connections with a longer wait than any request took do something else meanwhile,
    /// such as waiting for messages: where the service is asked much, that is nobody's wait. Requests that are served at the
    /// same time, and questions that are asked at the same time, are not told apart: the more there are, the rougher this is.
    pub fn take_out_upstream(&mut self) {
        let is_asked_much = self.service.sum_ns as f64 >= self.observed_ns as f64 * MUCH;
        let longest_ns = self.service.longest_ns.saturating_mul(2);
        let of_processes = self.is_of_processes;
        let of_servers = self.groups.iter().filter(|group| group.key.role == Role::Server);
        let servers: Vec<u32> = of_servers.filter_map(|group| group.key.pid).collect();
        let serves = |pid: Option<u32>| pid.is_some_and(|pid| servers.contains(&pid));
        let is_upstream = |group: &Group| match group.counted {
            Counted::Whole => group.key.role == Role::Client && (of_processes || serves(group.key.pid)),
            Counted::WithPeer => false,
            Counted::Upstream => true,
        };
        let is_within = |group: &Group| group.answer.longest_ns <= longest_ns;
        // What the process did itself is not waiting.
        let waits = |group: &Group| group.times.total() - group.times.sum(&[Part::Application, Part::Reader]);
        let waited_ns: f64 = self.groups.iter().filter(|it| is_upstream(it) && is_within(it)).map(waits).sum();
        let served_ns = waited_ns.min(self.times.get(Part::Service));
        let served = served_ns / waited_ns.max(1.0);
        // What is passed on as it comes pauses where it comes from, but for what counts as service already.
        let pauses_ns =
            |group: &Group| group.times.get(Part::PeerPause) * if is_within(group) { 1.0 - served } else { 1.0 };
        let awaited_ns: f64 = self.groups.iter().filter(|group| is_upstream(group)).map(pauses_ns).sum();
        let of_servers = self.groups.iter().filter(|group| group.key.role == Role::Server);
        let own_pauses_ns: f64 = of_servers.map(|group| group.times.get(Part::Application)).sum();
        let paused_ns = awaited_ns.min(own_pauses_ns).min(self.times.get(Part::Application));
        let paused = paused_ns / awaited_ns.max(1.0);
        self.service.sum_ns = self.service.sum_ns.saturating_sub(served_ns as u64);
        self.pause.sum_ns = self.pause.sum_ns.saturating_sub(paused_ns as u64);
        let of_servers_ns = [self.times.get(Part::Service), own_pauses_ns];
        let taken = [(Part::Service, served_ns), (Part::Application, paused_ns)];
        taken.iter().for_each(|(part, ns)| self.times.take(*part, *ns));
        for group in self.groups.iter_mut().filter(|group| group.key.role == Role::Server) {
            for ((part, ns), all_ns) in taken.into_iter().zip(of_servers_ns) {
                let share = ns / all_ns.max(1.0);
                let own_ns = group.times.get(part);
                group.times.take(part, own_ns * share);
            }
        }
        for group in self.groups.iter_mut().filter(|group| is_upstream(group)) {
            match (group.counted, is_within(group)) {
                (Counted::Upstream, is_part) => {
                    let passed_on_ns = pauses_ns(group) * paused;
                    group.times = group.times.scaled(if is_part { served } else { 0.0 });
                    group.times.add(Part::PeerPause, passed_on_ns);
                    self.times.plus(&group.times);
                    if is_part {
                        self.answer.plus(&group.answer);
                    }
                }
                (_, false) if is_asked_much => {
                    let meant_ns = group.times.get(Part::Answer);
                    self.times.take(Part::Answer, meant_ns);
                    self.idle_ns += meant_ns;
                    self.answer.minus(&group.answer);
                    group.times.remove(Part::Answer);
                }
                _ => {}
            }
        }
    }
}
