//! Joins the traces of the same byte on two hosts: down through the layers of the sender, and up through those of the
//! receiver.
//!
//! Each trace is examined once. The number of traces that wait for their counterpart is bounded in number and in time,
//! and those that do not find it are counted. Results depend only on the times of the traces and not on when functions
//! are called: the same traces in the same order give the same paths.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{
    ByteTrace, Direction, Ends, Isns, Layer, PathSegment, Segment,
    connections::{Connections, Known},
    room::{PARTS, Room},
};
use crate::histogram::Histogram;

/// Limits of a [`Joiner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The length of the intervals in which paths are reported.
    pub window_ns: u64,
    /// The longest time that a trace waits for its counterpart.
    pub wait_ns: u64,
    /// The time after which a matched byte counts as complete: until then, the sender may still report that TCP
    /// retransmitted it.
    pub settle_ns: u64,
    /// The number of bytes that may wait at once, at about 300 bytes of memory each. When a quarter of them wait, a host has
    /// at most its share, so that one that reports too many does not take the room of others. As many connections are known by
    /// their initial sequence numbers.
    pub max_waiting: usize,
    /// The number of paths in all intervals that are not reported yet, at about 3 KB of memory each. When half of them are
    /// there, a host is at an end of at most an eighth.
    pub max_paths: usize,
    /// A time between hosts whose error bound exceeds this counts as doubtful.
    pub doubt_ns: u64,
    /// The number of flows that are reported individually in an interval. The others are in the sums only.
    pub flows: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            window_ns: 1_000_000_000,
            wait_ns: 30_000_000_000,
            settle_ns: 1_000_000_000,
            max_waiting: 1 << 18,
            max_paths: 1 << 15,
            doubt_ns: u64::MAX,
            flows: 1 << 12,
        }
    }
}

impl Config {
    /// Returns the end of the interval that contains this time.
    pub fn next_end(&self, time_ns: u64) -> u64 {
        (time_ns / self.window_ns + 1) * self.window_ns
    }
}

/// A byte trace with the context that is needed to compare it with a trace from another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTrace {
    /// The number of the host.
    pub host: u32,
    /// The trace of the byte on that host.
    pub trace: ByteTrace,
    /// The time at which the byte was at this host's driver, on the common clock.
    pub edge_ns: u64,
    /// The error bound of `edge_ns`.
    pub bound_ns: u64,
    /// The time at which the trace was reported, on the common clock.
    pub arrived_ns: u64,
}

impl HostTrace {
    /// Returns the stamp of the trace where the byte left the host or arrived at it, on the host's clock. `None` if
    /// there is no such stamp.
    pub fn edge_of(trace: &ByteTrace) -> Option<u64> {
        trace.stamp_ns(match trace.direction {
            Direction::Tx => Layer::TxDriver,
            Direction::Rx => Layer::RxDriver,
        })
    }
}

/// Identifies a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathKey {
    /// The sending host.
    pub tx_host: u32,
    /// The receiving host.
    pub rx_host: u32,
    /// One direction of a connection, as the sending host sees it; `None` for all.
    pub flow: Option<Ends>,
    /// The same as the receiving host sees it, if addresses are translated between them. Then its bytes were matched by sequence
    /// numbers.
    pub rx_flow: Option<Ends>,
    /// The bytes were sent more than once, or arrived more than once.
    pub resent: bool,
}

/// The times that bytes spent in each path segment; for the bytes that were read in one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    /// The distributions, in the order of [`PathSegment::ALL`]. All are of the same bytes.
    pub segments: [Histogram; PathSegment::ALL.len()],
    /// The greatest error bound of a byte's time between the hosts.
    pub bound_ns: u64,
    /// Bytes with a computed time between the hosts below 0, within its error bound. The time counts as 0.
    pub clamped: u64,
    /// Bytes with a time between the hosts whose error bound exceeds [`Config::doubt_ns`].
    pub doubtful: u64,
}

impl Path {
    /// Returns the distribution of one path segment.
    pub fn segment(&self, segment: PathSegment) -> &Histogram {
        let index = PathSegment::ALL.iter().position(|other| *other == segment);
        &self.segments[index.expect("all segments are in the list")]
    }
}

/// The paths of one interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The end of the interval, on the common clock.
    pub end_ns: u64,
    /// The paths, sorted by key.
    pub paths: Vec<(PathKey, Path)>,
}

/// Counts the fates of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes that were seen on both hosts.
    pub matched: u64,
    /// Matched bytes that were sent or arrived more than once.
    pub resent: u64,
    /// Matched bytes of flows whose addresses are translated between their hosts.
    pub translated: u64,
    /// Matched bytes whose time between the hosts was taken as 0.
    pub clamped: u64,
    /// Matched bytes with a time between the hosts whose error bound exceeds [`Config::doubt_ns`].
    pub doubtful: u64,
    /// Bytes that were read before they were sent, by more than the error bound of the clocks. They are in no path.
    pub clock_faults: u64,
    /// Sent bytes that no other host reported.
    pub unmatched_tx: u64,
    /// Read bytes that no other host reported.
    pub unmatched_rx: u64,
    /// Matched bytes that two network namespaces of a host reported, so that it is unknown which of them belong together. They are
    /// in no path.
    pub ambiguous: u64,
    /// Traces with the initial sequence numbers of a flow of other hosts, or of another flow of one of them. They are matched by
    /// addresses only.
    pub contested: u64,
    /// Traces of connections for which there was no room to know them by their initial sequence numbers. They are matched by
    /// addresses only.
    pub connections_omitted: u64,
    /// Unmatched bytes that were given up early because too many were waiting, in all or of their host.
    pub crowded: u64,
    /// Matched bytes that are in no path because there were too many paths: [`Config::max_paths`].
    pub paths_omitted: u64,
    /// Bytes of flows beyond [`Config::flows`]: they are in the sums only.
    pub flows_omitted: u64,
}

/// What was reported before a restart, and must not be reported again: bytes that had settled by `settled_ns` and were
/// read before `end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// The time until which settled bytes were reported, on the common clock.
    pub settled_ns: u64,
    /// The end of the last reported interval, whatever the length of intervals was.
    pub end_ns: u64,
}

/// A byte: its flow, its sequence number, and where its flow is a single one.
type Key = (Ends, u32, Scope);

/// Where flows with the same ends are one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    /// On all hosts.
    Everywhere,
    /// In a network namespace of a host: loopback.
    Namespace(u32, u32),
    /// In one connection, whose ends are those that the sender sees: others may have them too, behind another translation.
    Connection(Isns),
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    /// The host that reported the byte first.
    host: u32,
    tx: Option<HostTrace>,
    rx: Option<HostTrace>,
    resent: bool,
    /// Two namespaces of a host have reported it.
    is_ambiguous: bool,
    /// The time at which the byte counts as complete; `None` until both traces are there.
    settles_ns: Option<u64>,
}

/// Joins byte traces of several hosts to paths.
#[derive(Debug)]
pub struct Joiner {
    config: Config,
    checkpoint: Checkpoint,
    /// The waiting bytes are in two generations, so that everything too old can be dropped at once.
    young: HashMap<Key, Waiting>,
    old: HashMap<Key, Waiting>,
    /// Room in the younger generation, and how many hosts had bytes in the older one.
    waiting: Room,
    old_hosts: usize,
    turned_ns: u64,
    connections: Connections,
    settling: VecDeque<(u64, Key)>,
    windows: BTreeMap<u64, HashMap<PathKey, Path>>,
    /// Room for paths, each of which two hosts take.
    paths: Room,
    counters: Counters,
}

impl Joiner {
    /// Creates a joiner without waiting bytes. `checkpoint` is what an earlier joiner reported of the traces that this
    /// one will be given again.
    pub fn new(config: Config, checkpoint: Checkpoint) -> Joiner {
        Joiner {
            config,
            checkpoint,
            young: HashMap::new(),
            old: HashMap::new(),
            waiting: Room::new(config.max_waiting / 2),
            old_hosts: 0,
            turned_ns: 0,
            connections: Connections::new(config.max_waiting / 2),
            settling: VecDeque::new(),
            windows: BTreeMap::new(),
            paths: Room::new(config.max_paths * 2),
            counters: Counters::default(),
        }
    }

    /// Adds a trace. Traces must come in the order of `arrived_ns`.
    pub fn add(&mut self, host_trace: HostTrace) {
        self.advance(host_trace.arrived_ns);
        let trace = &host_trace.trace;
        let (key, before) = self.keys(&host_trace);
        if self.waiting.is_full() {
            self.counters.crowded += self.turn(host_trace.arrived_ns);
        }
        if !self.young.contains_key(&key) {
            let host = host_trace.host;
            let parts = self.waiting.hosts().max(self.old_hosts);
            let known =
                self.old.remove(&key).or_else(|| before.and_then(|keys| self.take_translated(keys, trace.isns)));
            let waiting = match known {
                Some(waiting) => waiting,
                None if self.waiting.has_room(host, parts) => Waiting { host, ..Waiting::default() },
                None => return self.give_up(trace.direction),
            };
            self.waiting.take(waiting.host);
            self.young.insert(key, waiting);
        }
        let waiting = self.young.get_mut(&key).expect("it was just inserted");
        match waiting.insert(host_trace, trace.again || trace.sent > 1) {
            Some(Direction::Tx) => self.counters.unmatched_tx += 1,
            Some(Direction::Rx) => self.counters.unmatched_rx += 1,
            None => {}
        }
        if waiting.tx.is_some() && waiting.rx.is_some() && waiting.settles_ns.is_none() {
            let settles_ns = host_trace.arrived_ns + self.config.settle_ns;
            waiting.settles_ns = Some(settles_ns);
            self.settling.push_back((settles_ns, key));
        }
    }

    /// Returns the key of a trace's byte, and those that it may have had before it was known that its addresses are translated.
    fn keys(&mut self, host_trace: &HostTrace) -> (Key, Option<[Key; 2]>) {
        let ByteTrace { ends, seq, namespace, .. } = host_trace.trace;
        if ends.src.address.to_canonical().is_loopback() {
            return ((ends, seq, Scope::Namespace(host_trace.host, namespace)), None);
        }
        let by_address = |ends| (ends, seq, Scope::Everywhere);
        match self.connections.note(host_trace) {
            Known::Translated { isns, tx, rx } => {
                return ((tx, seq, Scope::Connection(isns)), Some([by_address(tx), by_address(rx)]));
            }
            Known::ByAddress => {}
            Known::Contested => self.counters.contested += 1,
            Known::Omitted => self.counters.connections_omitted += 1,
        }
        (by_address(ends), None)
    }

    /// Removes and returns a byte of this connection that waits by the addresses that one of its hosts sees.
    fn take_translated(&mut self, keys: [Key; 2], isns: Option<Isns>) -> Option<Waiting> {
        keys.into_iter().find_map(|key| {
            let waiting = self.young.get(&key).or_else(|| self.old.get(&key))?;
            let of_connection = |trace: &HostTrace| trace.trace.isns == isns;
            let is_same = waiting.tx.iter().chain(&waiting.rx).all(of_connection);
            if !is_same || waiting.settles_ns.is_some() {
                return None;
            }
            let Some(young) = self.young.remove(&key) else {
                return self.old.remove(&key);
            };
            self.waiting.give_back(young.host);
            Some(young)
        })
    }

    /// Counts a trace for which there is no room: its host has its share of it.
    fn give_up(&mut self, direction: Direction) {
        self.counters.crowded += 1;
        match direction {
            Direction::Tx => self.counters.unmatched_tx += 1,
            Direction::Rx => self.counters.unmatched_rx += 1,
        }
    }

    /// Completes the bytes that have settled by this time, and drops those that have waited too long.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some((settles_ns, key)) = self.settling.front().copied() {
            if settles_ns > now_ns {
                break;
            }
            self.settling.pop_front();
            // The byte may have been dropped to make room, and another one with its key may wait.
            let has_settled = |waiting: Option<&Waiting>| waiting.is_some_and(|it| it.settles_ns == Some(settles_ns));
            let waiting = if has_settled(self.young.get(&key)) {
                let young = self.young.remove(&key);
                young.inspect(|waiting| self.waiting.give_back(waiting.host))
            } else if has_settled(self.old.get(&key)) {
                self.old.remove(&key)
            } else {
                None
            };
            if let Some(waiting) = waiting {
                self.count(&waiting);
            }
        }
        if now_ns.saturating_sub(self.turned_ns) > self.config.wait_ns / 2 {
            self.turn(now_ns);
        }
    }

    /// Removes and returns the intervals that ended by `until_ns`. Traces that arrive later still can create an
    /// interval again.
    pub fn take_finished(&mut self, now_ns: u64, until_ns: u64) -> Vec<Window> {
        self.advance(now_ns);
        let later = self.windows.split_off(&(until_ns + 1));
        let ended = std::mem::replace(&mut self.windows, later);
        let ended = ended.into_iter().map(|(end_ns, paths)| {
            let mut paths: Vec<_> = paths.into_iter().collect();
            for (key, _) in &paths {
                self.paths.give_back(key.tx_host);
                self.paths.give_back(key.rx_host);
            }
            paths.sort_by_key(|(key, _)| *key);
            Window { end_ns, paths }
        });
        ended.collect()
    }

    /// Returns what was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Drops the older generation. Returns the number of bytes in it that were still waiting for their counterpart.
    fn turn(&mut self, now_ns: u64) -> u64 {
        self.turned_ns = now_ns;
        self.old_hosts = self.waiting.hosts();
        self.waiting = Room::new(self.config.max_waiting / 2);
        self.connections.turn();
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let mut alone = 0;
        for waiting in gone.into_values() {
            match (waiting.tx, waiting.rx) {
                (Some(_), Some(_)) => self.count(&waiting),
                (Some(_), None) => self.counters.unmatched_tx += 1,
                (None, _) => self.counters.unmatched_rx += 1,
            }
            alone += u64::from(waiting.settles_ns.is_none());
        }
        alone
    }

    /// Counts a byte that both hosts reported.
    fn count(&mut self, waiting: &Waiting) {
        let (Some(tx), Some(rx)) = (waiting.tx, waiting.rx) else {
            return;
        };
        let bound_ns = tx.bound_ns.saturating_add(rx.bound_ns);
        let network_ns = rx.edge_ns.saturating_sub(tx.edge_ns);
        let below_ns = tx.edge_ns.saturating_sub(rx.edge_ns);
        let (down, up) = (SideTimes::of(&tx.trace), SideTimes::of(&rx.trace));
        let read_ns = rx.edge_ns.saturating_add(up.total_ns).min(rx.arrived_ns);
        let settled_ns = waiting.settles_ns.unwrap_or(u64::MAX);
        if settled_ns <= self.checkpoint.settled_ns && read_ns < self.checkpoint.end_ns {
            return;
        }
        let end_ns = self.config.next_end(read_ns);
        if below_ns > bound_ns {
            self.counters.clock_faults += 1;
            return;
        }
        if waiting.is_ambiguous {
            self.counters.ambiguous += 1;
            return;
        }
        self.counters.matched += 1;
        self.counters.resent += u64::from(waiting.resent);
        self.counters.clamped += u64::from(below_ns > 0);
        let is_doubtful = bound_ns > self.config.doubt_ns;
        self.counters.doubtful += u64::from(is_doubtful);
        let rx_flow = (tx.trace.ends != rx.trace.ends).then_some(rx.trace.ends);
        self.counters.translated += u64::from(rx_flow.is_some());
        let sums = PathKey { tx_host: tx.host, rx_host: rx.host, flow: None, rx_flow: None, resent: waiting.resent };
        let flow = PathKey { flow: Some(tx.trace.ends), rx_flow, ..sums };
        let paths = self.windows.entry(end_ns).or_default();
        let is_listed = paths.contains_key(&flow) || paths.len() < self.config.flows;
        self.counters.flows_omitted += u64::from(!is_listed);
        for key in [Some(sums), is_listed.then_some(flow)].into_iter().flatten() {
            if !paths.contains_key(&key) {
                let has_room = |host| self.paths.has_room(host, PARTS);
                if !has_room(key.tx_host) || !has_room(key.rx_host) {
                    self.counters.paths_omitted += u64::from(key.flow.is_none());
                    continue;
                }
                self.paths.take(key.tx_host);
                self.paths.take(key.rx_host);
            }
            let path = paths.entry(key).or_default();
            path.bound_ns = path.bound_ns.max(bound_ns);
            path.clamped += u64::from(below_ns > 0);
            path.doubtful += u64::from(is_doubtful);
            for (path_segment, histogram) in PathSegment::ALL.iter().zip(&mut path.segments) {
                let ns = match path_segment {
                    PathSegment::Network => Some(network_ns),
                    PathSegment::EndToEnd => Some(down.total_ns + network_ns + up.total_ns),
                    PathSegment::Host(segment) => match segment.direction() {
                        Direction::Tx => down.segment_ns(*segment),
                        Direction::Rx => up.segment_ns(*segment),
                    },
                };
                ns.into_iter().for_each(|ns| histogram.record(ns));
            }
        }
    }
}

impl Waiting {
    /// Adds a trace of the byte. Of several copies, the first one counts: the first that left, and the first that
    /// arrived. Returns the direction of a displaced trace, which belonged to an earlier byte with the same sequence
    /// number.
    fn insert(&mut self, host_trace: HostTrace, again: bool) -> Option<Direction> {
        let before = match host_trace.trace.direction {
            Direction::Tx => &self.tx,
            Direction::Rx => &self.rx,
        };
        let displaced = before.map(|before| before.trace.direction);
        let is_other =
            |before: HostTrace| before.host == host_trace.host && before.trace.namespace != host_trace.trace.namespace;
        self.is_ambiguous |= before.is_some_and(is_other);
        let mut is_inserted = false;
        match host_trace.trace.direction {
            Direction::Tx => {
                // A copy that left after the byte had arrived cannot be the one that arrived. If it is the only copy,
                // then what arrived was the byte that had this sequence number 4 GiB earlier.
                let is_late = self.rx.is_some_and(|rx| {
                    rx.edge_ns.saturating_add(rx.bound_ns + host_trace.bound_ns) < host_trace.edge_ns
                });
                if self.tx.is_none() && is_late {
                    if again {
                        return None;
                    }
                    (self.tx, self.rx, self.resent) = (Some(host_trace), None, false);
                    return Some(Direction::Rx);
                }
                self.resent |= again && (self.tx.is_none() || !is_late);
                // A later first copy belongs to the byte that has this sequence number now, 4 GiB after one that nobody
                // has read.
                if self.tx.is_none() || !again && !is_late {
                    (self.tx, is_inserted) = (Some(host_trace), true);
                }
            }
            Direction::Rx => {
                self.resent |= again;
                if self.rx.is_none() || !again && self.tx.is_none() {
                    (self.rx, is_inserted) = (Some(host_trace), true);
                }
            }
        }
        displaced.filter(|_| is_inserted)
    }
}

/// The times of a byte on one side of a host.
struct SideTimes<'a> {
    trace: &'a ByteTrace,
    /// The time from the first stamp to the last.
    total_ns: u64,
    /// The part of the total that is in no segment.
    unexplained_ns: u64,
}

impl SideTimes<'_> {
    fn of(trace: &ByteTrace) -> SideTimes<'_> {
        let mut stamps = trace.stamps.iter().flatten().map(|stamp| stamp.get());
        let first = stamps.next();
        let total_ns = first.and_then(|first| stamps.next_back().map(|last| last - first.min(last)));
        let total_ns = total_ns.unwrap_or(0);
        let side = SideTimes { trace, total_ns, unexplained_ns: 0 };
        let explained_ns: u64 = Segment::ALL
            .iter()
            .filter(|segment| segment.direction() == trace.direction)
            .filter(|segment| PathSegment::Host(**segment).is_addend() && !segment.is_whole())
            .filter_map(|segment| side.segment_ns(*segment))
            .sum();
        SideTimes { unexplained_ns: total_ns.saturating_sub(explained_ns), ..side }
    }

    fn segment_ns(&self, segment: Segment) -> Option<u64> {
        match segment {
            Segment::TxTotal | Segment::RxTotal => Some(self.total_ns),
            Segment::TxUnexplained | Segment::RxUnexplained => (self.unexplained_ns > 0).then_some(self.unexplained_ns),
            // On the host itself, too, the segment ends at IP if TCP's time is not known.
            Segment::SocketTcp if self.trace.stamp_ns(Layer::TxTcp).is_none() => {
                let at_ip = self.trace.stamp_ns(Layer::TxIp)?;
                at_ip.checked_sub(self.trace.stamp_ns(Layer::TxSocket)?)
            }
            _ => self.trace.segment_ns(segment),
        }
    }
}
