//! What was measured of a target, in physical units.

use std::net::IpAddr;

use super::{
    Connection, CountKind, Datagrams, Group, Key, Layers, Longest, Names, Part, PathFigures, Process, Quota, Requests,
    Role, Silences, Sums, UdpPackets, Worst,
    cause::LONG_NS,
    connection::between::resolution_ns,
    figures::{ConnectionFigures, scaled},
};
use crate::{layers::Ends, measure::Endpoint, socket::Sum};

/// Where evidence is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Polls of the kernel's sockets.
    #[default]
    Sockets,
    /// The packets of a capture, which have no counters of the kernel and no process.
    Capture,
    /// Stamps of bytes at the layers of hosts, which a store has kept. Only where their time was spent is known.
    Stamps,
}

/// Groups of connections that are kept apart, and as many again of those that this host has opened; the time of others
/// counts only in the sum.
const MAX_GROUPS: usize = 1024;

/// What was measured of the connections of a target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Where it is from.
    pub source: Source,
    /// Figures that are sums over connections, or the greatest of theirs.
    pub sums: Sums,
    /// The target, for commands that a reader can run.
    pub target: Target,
    /// Whether the target is one process or several, so that all of their connections are followed.
    pub is_of_processes: bool,
    /// How long dwell looked.
    pub observed_ns: u64,
    /// In a capture, the Unix time of the last packet.
    pub ended_ns: u64,
    /// Of these, the first ones of connections, before which no time has passed.
    pub first_polls: u64,
    /// The mean time between two searches for connections: those that open and close between two are not seen. 0 for a
    /// capture.
    pub search_interval_ns: f64,
    /// The mean time between two looks at sockets of UDP, as for questions to name servers. 0 for a capture.
    pub look_interval_ns: f64,
    /// The number of connections that were polled at least twice.
    pub connections: u64,
    /// The number of those that this host has accepted.
    pub accepted: u64,
    /// The number of those whose congestion control is known to be BBR.
    pub with_bbr: u64,
    /// Connections that were not followed because there were too many.
    pub omitted: u64,
    /// The time in which clients of which each waits for long paused.
    pub paused_ns: f64,
    /// Segments with data that were sent on connections that this host has accepted: at least as many as answers.
    pub answer_segments: u64,
    /// Segments with data that have arrived on connections that this host has opened: at least as many as answers.
    pub awaited_segments: u64,
    /// Segments with data that were sent on connections that this host has opened: at least as many as requests.
    pub asked_segments: u64,
    /// The least number of answers of this host, and of those to it, that polls are sure of: polls before which there was one.
    pub answered_polls: [u64; 2],
    /// Connections whose SYNs nothing answered, by server.
    pub unopened: Vec<UnopenedConnections>,
    /// In a capture, the number of connections that were opened, by server.
    pub opened: Vec<(Endpoint, u64)>,
    /// The times for which a service was opening connections of its own, which is asked meanwhile or not. They are in the time
    /// of `set-up` too.
    pub upstream_set_ups: Silences,
    /// Attempts to open connections that failed in the network namespaces of the target, whoever made them: they were
    /// refused, or given up by the kernel. `None` if it is not known.
    pub failed_attempts: Option<u64>,
    /// Connections that were open and were reset in the network namespaces of the target, whoever had them and whichever end reset
    /// them. `None` if it is not known.
    pub established_resets: Option<u64>,
    /// Live connections that were found only after the first answer in TLS's handshake, so that how long that took is not known.
    pub missed_handshakes: u64,
    /// From questions to name servers until their answers, or until now.
    pub names: Silences,
    /// Whether a service asks them whose connections are the target, so that they count as part of its requests alone.
    pub are_names_of_service: bool,
    /// Questions among them that have no answer yet, as far as can be seen: a program may also keep a socket for later ones.
    pub open_names: u64,
    /// Live connections whose server has acknowledged nothing but their opening, though data was sent again.
    pub untaken: u64,
    /// Live connections whose data waited for long although nothing was in flight and the peer's window had room.
    pub stuck: u64,
    /// The connections on which most time was spent, by part.
    pub longest: Longest,
    /// The connections by whose they are.
    pub groups: Vec<Group>,
    /// The waits of bytes in the send buffer.
    pub send_buffer: Sum,
    /// The waits of bytes in the receive buffer.
    pub receive_buffer: Sum,
    /// The process that has the connections.
    pub process: Option<Process>,
    /// The limit of the processor time of its cgroup, or of one above that. `None` if it has none, or it is not known.
    pub quota: Option<Quota>,
    /// The layers of this host.
    pub layers: Option<Layers>,
    /// The target's sockets of UDP, if it has any.
    pub datagrams: Option<Datagrams>,
    /// In a capture, packets of UDP.
    pub udp: UdpPackets,
    /// The waits for answers, by what was asked. Empty without labels.
    pub requests: Requests,
    /// What stamps show of the path between two hosts.
    pub path: Option<PathFigures>,
    /// Connections that a capture has on several interfaces, of which the one counts that was seen best.
    pub on_several_interfaces: u64,
    /// Whether the packets of a capture cannot be judged, as `unseen` says.
    pub is_unreadable: bool,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
    /// Names for people.
    pub known: Names,
}

/// Names for commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// What the user asked about.
    pub name: String,
    /// The peer of the connections on which most time was spent.
    pub peer: Option<IpAddr>,
    /// The port of their server.
    pub port: Option<u16>,
    /// In a capture, their end that is called local.
    pub seen_from: Option<IpAddr>,
    /// Which end of them is the local one.
    pub role: Option<Role>,
    /// The process that has them.
    pub pid: Option<u32>,
    /// That process, if it is in another network namespace than dwell: commands must be run there.
    pub namespace_of: Option<u32>,
}

impl Target {
    /// Names a group of connections, if there is one.
    fn be_of(&mut self, group: Option<&Group>) {
        if let Some(Group { key, .. }) = group {
            self.peer = Some(key.peer);
            self.port = Some(key.port);
            self.seen_from = key.seen_from;
            self.role = Some(key.role);
            self.pid = key.pid.or(self.pid);
        }
    }

    /// The target of `dwell why` at the host of the server, with a space before it; empty if it is not known.
    pub(super) fn port_of(&self) -> String {
        self.port.map_or_else(String::new, |port| format!(" :{port}"))
    }
}

/// Connections to one server that were not seen to open, although their first packets were sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnopenedConnections {
    /// The server.
    pub server: Endpoint,
    /// How long each was being opened, as far as it was seen.
    pub waits: Silences,
    /// Their SYNs, with those that were sent again.
    pub syns: u64,
}

/// Something that dwell could not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// The command or privilege that would show it.
    pub remedy: String,
}

/// TCP sends a SYN again after this time, and then after twice as long each time (RFC 6298).
pub(in crate::why) const FIRST_TIMEOUT_NS: u64 = 1_000_000_000;

impl Evidence {
    /// Adds what the polls of a connection showed.
    pub fn add(&mut self, connection: &Connection, key: Key, counted: CountKind) {
        self.add_polls(connection, key, counted, true);
    }

    /// Adds what polls of a connection showed, which counts as one more if it `is_new`, and was not added before. Returns false if
    /// there were too few.
    pub fn add_polls(&mut self, connection: &Connection, key: Key, counted: CountKind, is_new: bool) -> bool {
        let mut figures = connection.figures();
        if counted == CountKind::WithPeer {
            figures.sums.times.remove(Part::Answer);
            figures.sums.times.remove(Part::PeerPause);
        }
        self.count(&figures, key, counted, is_new.into())
    }

    pub(super) fn add_figures(&mut self, figures: &ConnectionFigures, key: Key, counted: CountKind) {
        self.count(figures, key, counted, 1);
    }

    fn count(&mut self, figures: &ConnectionFigures, key: Key, counted: CountKind, connections: u64) -> bool {
        if figures.sums.polls < 2 && figures.unopened_ns.is_none() {
            return false;
        }
        let with_others = 1.0 + figures.others;
        self.add_group(&Group {
            key,
            counted,
            connections,
            brief: u64::from(figures.is_brief) * connections,
            refused: figures.sums.ends_of_requests.refused,
            times: figures.sums.times.scaled(with_others),
            answers: figures.answers.times(with_others),
            answered_polls: (figures.answered_polls as f64 * with_others) as u64,
        });
        if figures.role == Role::Client {
            self.awaited_segments += (figures.sums.segments_received as f64 * with_others) as u64;
            self.asked_segments += (figures.sums.segments_sent as f64 * with_others) as u64;
        }
        if let Some(ends) = &figures.ends {
            self.longest.add(ends, &figures.sums.times);
        }
        if counted == CountKind::Upstream {
            return true;
        }
        self.first_polls += 1;
        self.connections += connections;
        self.accepted += if figures.role == Role::Server { connections } else { 0 };
        self.with_bbr += if figures.uses_bbr { connections } else { 0 };
        self.sums.plus(&figures.sums, 1.0);
        self.sums.idle_ns += figures.sums.left_open_ns;
        self.answer_segments += if figures.role == Role::Server { figures.sums.segments_sent } else { 0 };
        self.answered_polls[usize::from(figures.role == Role::Client)] += figures.answered_polls;
        let waits_long = figures.sums.service.mean_ns() >= Some(LONG_NS);
        self.paused_ns += if waits_long { figures.sums.idle_ns } else { 0.0 };
        self.untaken += u64::from(figures.is_untaken) * connections;
        self.stuck += u64::from(figures.sums.stuck_ns > 0) * connections;
        if let Some(ends) = &figures.ends {
            let server = if figures.role == Role::Client { ends.dst } else { ends.src };
            match figures.unopened_ns {
                Some(ns) => self.add_unopened(server, ns, figures.sums.set_up_retries + 1),
                None if figures.sums.set_ups.count > 0 => self.add_opened(server),
                None => {}
            }
        }
        self.send_buffer = self.send_buffer.plus(&figures.totals.sender);
        self.receive_buffer = self.receive_buffer.plus(&figures.totals.receiver);
        true
    }

    /// Adds connections to those that are counted with them. Clients may be many; whom a service asks is needed to judge it.
    fn add_group(&mut self, more: &Group) {
        let Group { key, counted, .. } = *more;
        let is_of = |group: &&mut Group| group.key == key && group.counted == counted;
        let (many, most) = (self.groups.len(), if key.role == Role::Client { 2 * MAX_GROUPS } else { MAX_GROUPS });
        match self.groups.iter_mut().find(is_of) {
            Some(group) => group.plus(more),
            None if many < most => self.groups.push(*more),
            None => {}
        }
    }

    /// Adds what other connections showed, each of which stands for `weight` like it in the time that they took. Bytes, segments,
    /// round trips and connections count once.
    pub fn plus(&mut self, other: &Evidence, weight: f64) {
        for group in &other.groups {
            let (times, answers) = (group.times.scaled(weight), group.answers.times(weight));
            let answered_polls = scaled(group.answered_polls, weight);
            self.add_group(&Group { times, answers, answered_polls, ..*group });
        }
        self.sums.plus(&other.sums, weight);
        self.paused_ns += other.paused_ns * weight;
        self.missed_handshakes += other.missed_handshakes;
        for (own, more) in [
            (&mut self.first_polls, other.first_polls),
            (&mut self.answer_segments, other.answer_segments),
            (&mut self.awaited_segments, other.awaited_segments),
            (&mut self.asked_segments, other.asked_segments),
        ] {
            *own += scaled(more, weight);
        }
        for (own, more) in self.answered_polls.iter_mut().zip(other.answered_polls) {
            *own += scaled(more, weight);
        }
        for (own, more) in [
            (&mut self.connections, other.connections),
            (&mut self.accepted, other.accepted),
            (&mut self.with_bbr, other.with_bbr),
            (&mut self.untaken, other.untaken),
            (&mut self.stuck, other.stuck),
        ] {
            *own += more;
        }
        self.longest.plus(&other.longest);
        self.send_buffer = self.send_buffer.plus(&other.send_buffer);
        self.receive_buffer = self.receive_buffer.plus(&other.receive_buffer);
    }

    /// Returns the connection that waited longest for these parts, of several.
    pub(super) fn worst(&self, parts: &[Part]) -> Option<Worst> {
        // Some that wait for messages keep nobody waiting.
        let counts = |ends: &Ends| {
            let ports = [ends.src.port, ends.dst.port];
            let is_of = |key: &Key| key.peer == ends.dst.address && ports.contains(&key.port);
            self.groups.iter().any(|group| is_of(&group.key) && group.times.sum(parts) > 0.0)
        };
        self.longest.of(parts, self.sums.times.sum(parts), counts).filter(|_| self.connections > 1)
    }

    /// Returns the process that has the connections on which most time was spent in programs of this host; where none was,
    /// most time at all; and where nobody waited, most of the connections.
    pub fn busiest_process(&self) -> Option<u32> {
        let own = [Part::Service, Part::Reader, Part::Application];
        let parts: &[Part] = if self.sums.times.sum(&own) > 0.0 { &own } else { &Part::ALL };
        match self.sums.times.total() > 0.0 {
            true => self.about(parts).target.pid,
            false => self.groups.iter().max_by_key(|group| group.connections)?.key.pid,
        }
    }

    /// Returns this evidence with the connections as its target on which most of the time was spent on these parts.
    pub(super) fn about(&self, parts: &[Part]) -> Evidence {
        let mut about = self.clone();
        let spent = |group: &&Group| group.times.sum(parts);
        let most = self.groups.iter().filter(|group| spent(group) > 0.0).max_by(|a, b| spent(a).total_cmp(&spent(b)));
        // Refused connections take no time.
        about.target.be_of(most.or(self.refused()));
        if let Some(unopened) = self.unanswered_set_ups().filter(|_| parts == [Part::SetUp]) {
            about.target.peer = Some(unopened.server.address);
            about.target.port = Some(unopened.server.port);
            about.target.role = Some(Role::Client);
        }
        about
    }

    /// Returns this evidence with the connections as its target of which most failed.
    pub(super) fn about_failures(&self) -> Evidence {
        let mut about = self.clone();
        about.target.be_of(self.refused().filter(|_| self.sums.ends_of_requests.are_mostly_refused()));
        about
    }

    /// The connections most of which were refused.
    fn refused(&self) -> Option<&Group> {
        self.groups.iter().max_by_key(|group| group.refused).filter(|group| group.refused > 0)
    }

    /// Returns the mean time between two polls of a connection, below which polls tell nothing apart; 0 for a capture.
    pub fn poll_interval_ns(&self) -> f64 {
        match self.source {
            Source::Sockets if self.sums.polls > 0 => {
                self.sums.polled_ns / self.sums.polls.saturating_sub(self.first_polls).max(1) as f64
            }
            _ => 0.0,
        }
    }

    /// Returns how exactly the length of requests' waits is known in the mean: polls that are far apart find it from the kernel's
    /// times of the last data.
    pub(super) fn turn_resolution_ns(&self) -> f64 {
        resolution_ns(self.poll_interval_ns())
    }

    /// Adds what stamps of bytes showed: the queue of this host's device is taken out of the queues of the path.
    pub fn set_layers(&mut self, layers: Layers) {
        if let (Some(own), Some(all)) = (layers.queueing_ns, self.queue_ns().filter(|all| *all > 0.0)) {
            let share = (own as f64 / all).min(1.0);
            let of_groups = self.groups.iter_mut().map(|group| &mut group.times);
            for times in of_groups.chain([&mut self.sums.times]) {
                times.shift(Part::RemoteQueue, Part::LocalQueue, times.get(Part::RemoteQueue) * share);
            }
        }
        self.layers = Some(layers);
    }

    /// Adds the opening of a connection that took this long, with packets that were sent again, and the server if it was not
    /// seen to answer.
    pub fn add_set_up(&mut self, ns: u64, retries: u64, silent: Option<Endpoint>) {
        self.sums.set_up_retries += retries;
        self.sums.times.add(Part::SetUp, ns as f64);
        // An answer within a round trip may come between two searches. On the way to a host that is down a SYN may not even have left.
        match silent.filter(|_| retries > 0 || ns >= FIRST_TIMEOUT_NS) {
            Some(server) => self.add_unopened(server, ns, retries + 1),
            None => self.sums.set_ups.add(ns),
        }
    }

    fn add_unopened(&mut self, server: Endpoint, ns: u64, syns: u64) {
        let at = self.unopened.iter().position(|unopened| unopened.server == server).unwrap_or(self.unopened.len());
        if at < MAX_GROUPS {
            if at == self.unopened.len() {
                self.unopened.push(UnopenedConnections { server, waits: Silences::default(), syns: 0 });
            }
            self.unopened[at].waits.add(ns);
            self.unopened[at].syns += syns;
        }
    }

    fn add_opened(&mut self, server: Endpoint) {
        if let Some((_, count)) = self.opened.iter_mut().find(|(at, _)| *at == server) {
            *count += 1;
        } else if self.opened.len() < MAX_GROUPS {
            self.opened.push((server, 1));
        }
    }

    /// Returns the server on which most time was spent without opening a connection, if nothing answered for most of the
    /// time in which connections were being opened.
    pub(super) fn unanswered_set_ups(&self) -> Option<&UnopenedConnections> {
        let waited_ns: u64 = self.unopened.iter().map(|unopened| unopened.waits.sum_ns).sum();
        let is_most = waited_ns > 0 && waited_ns as f64 * 2.0 >= self.sums.times.get(Part::SetUp);
        self.unopened.iter().max_by_key(|unopened| unopened.waits.sum_ns).filter(|_| is_most)
    }

    /// Returns that server if none of its connections was seen to open, or hardly any at all if none was followed: otherwise packets
    /// are lost.
    pub(super) fn dead_server(&self) -> Option<&UnopenedConnections> {
        /// One in so many may have been under way when the look ended.
        const SOME: u64 = 3;
        let has_opened = |server: &Endpoint| {
            let is_one = |key: &Key| (key.role, key.peer, key.port) == (Role::Client, server.address, server.port);
            self.groups.iter().any(|group| (group.brief > 0 || group.answered_polls > 0) && is_one(&group.key))
        };
        let unopened: u64 = self.unopened.iter().map(|unopened| unopened.waits.count).sum();
        let opened = |server: &Endpoint| self.opened.iter().find(|(at, _)| at == server).map_or(0, |(_, count)| *count);
        let have_some_opened = self.groups.is_empty() && self.sums.set_ups.count * SOME > unopened;
        self.unanswered_set_ups().filter(|unopened| {
            let UnopenedConnections { server, waits, .. } = unopened;
            !have_some_opened && !has_opened(server) && opened(server) * SOME <= waits.count
        })
    }

    /// Adds a wait for a name server.
    pub fn add_name(&mut self, ns: u64) {
        self.names.add(ns);
        self.sums.times.add(Part::Names, ns as f64);
    }

    /// Returns the share of the time in which somebody waited that nothing explains; 0 where that is next to nothing of the
    /// time that connections were followed, such as a tick of the kernel's clock.
    pub(super) fn unexplained(&self) -> f64 {
        /// A share of a connection's time that is too small to slow anybody down.
        const LITTLE: f64 = 0.01;
        let ns = self.sums.times.get(Part::Unexplained);
        let is_little = self.source == Source::Sockets && ns <= LITTLE * (self.sums.times.total() + self.sums.idle_ns);
        if is_little { 0.0 } else { self.sums.times.share(Part::Unexplained) }
    }

    /// Returns the share of sent segments that were sent again, up to 1; `None` if none was sent. Those that were first sent before
    /// the look may be sent again more often than others are sent.
    pub fn loss(&self) -> Option<f64> {
        let share = self.sums.segments_sent_again as f64 / self.sums.segments_sent as f64;
        (self.sums.segments_sent > 0).then(|| share.min(1.0))
    }

    /// Returns the share of segments sent again that the peer had already; `None` if none was sent again.
    pub fn needless(&self) -> Option<f64> {
        let again = self.sums.segments_sent_again;
        (again > 0).then(|| (self.sums.segments_sent_needlessly as f64 / again as f64).min(1.0))
    }

    /// Returns how often TCP found out that packets overtook each other, per sent segment; `None` if none was sent.
    pub fn overtaken(&self) -> Option<f64> {
        (self.sums.segments_sent > 0).then(|| self.sums.overtaken as f64 / self.sums.segments_sent as f64)
    }

    /// Returns the share of received segments that arrived before an earlier one; `None` if none has arrived.
    pub fn out_of_order(&self) -> Option<f64> {
        (self.sums.segments_received > 0)
            .then(|| self.sums.segments_out_of_order as f64 / self.sums.segments_received as f64)
    }

    /// Returns what queues add to a round trip of a transfer.
    pub fn queue_ns(&self) -> Option<f64> {
        Some(self.sums.transfers.mean_ns()? - self.sums.transfers.base_ns()?)
    }
}
