//! All flows of the screen, and the rows that they make.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
};

use super::{
    Figures, FlowKey, Limits, Metric, Past, Response, RowKey, SocketReading, StoredLatency, View, figures::Sums,
    flow::Flow,
};
use crate::{
    layers::Ends,
    measure::{FlowEvent, Protocol, Sample},
    roles::Role,
    rtt::Prefix,
};

/// How flows are kept and grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Flows that are kept apart at once; each takes about 1.2 KB.
    pub max_flows: usize,
    /// Time without a packet after which a flow without a socket is forgotten.
    pub idle_ns: u64,
    /// Whether the packets of a flow were counted from the beginning when it comes into the table, as in a capture: then the
    /// rate of its first interval is known.
    pub is_capture: bool,
    /// Prefix length of IPv4 groups.
    pub prefix4: u8,
    /// Prefix length of IPv6 groups.
    pub prefix6: u8,
}

/// A line of the screen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// What it is about.
    pub key: RowKey,
    /// The number of its flows.
    pub flows: u64,
    /// The process that has the flow; `None` for several flows, but those of one process.
    pub pid: Option<u32>,
    /// The figures of the last interval.
    pub figures: Figures,
    /// The round trip that was measured last, maybe in an earlier interval. `None` of several flows.
    pub last_rtt_ns: Option<u64>,
    /// What the `src` of the flow is, if the packets that opened it were seen. `None` of several flows.
    pub role: Option<Role>,
}

/// Several flows.
#[derive(Debug, Clone, Default)]
struct Group {
    flows: u64,
    sums: Sums,
    figures: Figures,
    past: Past,
}

/// Flows in bounded memory.
#[derive(Debug, Clone)]
pub struct Table {
    settings: Settings,
    flows: HashMap<FlowKey, Flow>,
    groups: HashMap<RowKey, Group>,
    end_ns: Option<u64>,
    /// Readings and samples of flows beyond the limit, in this interval and in the last.
    omitted: (u64, u64),
}

impl Table {
    /// Creates a table without flows.
    pub fn new(settings: Settings) -> Table {
        Table { settings, flows: HashMap::new(), groups: HashMap::new(), end_ns: None, omitted: (0, 0) }
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of readings and samples of the last interval whose flows found no room.
    pub fn omitted(&self) -> u64 {
        self.omitted.1
    }

    /// Adds a poll of a socket.
    pub fn socket(&mut self, socket: &SocketReading<'_>) {
        let key = FlowKey { ends: socket.ends, protocol: Protocol::TCP };
        // Most are known: there may be tens of thousands per interval.
        if let Some(flow) = self.flows.get_mut(&key) {
            return flow.poll(socket);
        }
        let other = self.take_not_local(&key.reversed());
        let Some(flow) = self.flow(key) else {
            return;
        };
        if let Some(other) = other {
            flow.adopt(&other);
        }
        flow.poll(socket);
    }

    /// Adds a round trip that packets have shown.
    pub fn sample(&mut self, sample: &Sample) {
        let ends = Ends { src: sample.src, dst: sample.dst };
        let (key, is_reversed) = self.known(FlowKey { ends, protocol: sample.protocol }, sample.src_role);
        if let Some(flow) = self.flow(key) {
            flow.role = flow.role.or(role_of(sample.src_role, is_reversed));
            flow.sample(sample, is_reversed);
        }
    }

    /// Adds the end of a flow, which is reported late where packets stopped to come. Where flows are forgotten, only those that
    /// are still there have it.
    pub fn close(&mut self, event: &FlowEvent) {
        let ends = Ends { src: event.src, dst: event.dst };
        let (key, is_reversed) = self.known(FlowKey { ends, protocol: event.protocol }, event.src_role);
        if self.settings.idle_ns < u64::MAX && !self.flows.contains_key(&key) {
            return;
        }
        if let Some(flow) = self.flow(key) {
            flow.role = flow.role.or(role_of(event.src_role, is_reversed));
            flow.close(event);
        }
    }

    /// Adds how long the server of a flow took to respond, whose `src` has this role.
    pub fn response(&mut self, time_ns: u64, flow: FlowKey, role: Role, response: Response) {
        let role = Some(role);
        let (key, is_reversed) = self.known(flow, role);
        if response == Response::Unknown && !self.flows.contains_key(&key) {
            return;
        }
        if let Some(flow) = self.flow(key) {
            flow.role = flow.role.or(role_of(role, is_reversed));
            flow.respond(time_ns, response);
        }
    }

    /// Adds a latency of a store.
    pub fn stored(&mut self, stored: &StoredLatency) {
        let key = FlowKey { ends: stored.ends, protocol: stored.protocol };
        let (key, is_reversed) = match stored.is_src_local {
            Some(true) => (key, false),
            Some(false) => (key.reversed(), true),
            None => self.known(key, None),
        };
        let other = if self.flows.contains_key(&key) { None } else { self.take_not_local(&key.reversed()) };
        let Some(flow) = self.flow(key) else {
            return;
        };
        if let Some(other) = other {
            flow.adopt(&other);
        }
        flow.stored(stored, is_reversed);
    }

    /// Forgets flows that are no longer wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&FlowKey) -> bool) {
        self.flows.retain(|key, _| is_wanted(key));
    }

    /// Ends an interval: computes all figures, and forgets the flows that have ended. Sockets must have been polled since
    /// the last interval; those that were not have ended.
    pub fn end_interval(&mut self, now_ns: u64) {
        let last_ns = self.end_ns.replace(now_ns);
        let length_ns = now_ns.saturating_sub(last_ns.unwrap_or(now_ns));
        let idle_since_ns = now_ns.saturating_sub(self.settings.idle_ns);
        self.flows.retain(|_, flow| if flow.has_socket() { flow.is_polled() } else { flow.seen_ns >= idle_since_ns });
        self.flows.values_mut().for_each(|flow| flow.end_interval(length_ns, self.settings.is_capture));
        self.regroup();
        self.groups.values_mut().for_each(|group| group.past.push(&group.figures));
        self.omitted = (0, self.omitted.0);
    }

    /// Groups the flows that are there, with their figures of the last interval.
    pub fn regroup(&mut self) {
        self.groups.values_mut().for_each(|group| (group.flows, group.sums) = (0, Sums::default()));
        for (key, flow) in &self.flows {
            let peer = key.ends.dst.address;
            let bits = if peer.is_ipv4() { self.settings.prefix4 } else { self.settings.prefix6 };
            let prefix = Prefix::of(peer, bits);
            let keys = [RowKey::Peer(peer), RowKey::Prefix(prefix), RowKey::Process(flow.pid), RowKey::Unit(flow.unit)];
            for key in keys {
                let group = self.groups.entry(key).or_default();
                group.flows += 1;
                group.sums.add(&flow.figures);
            }
        }
        self.groups.retain(|_, group| group.flows > 0);
        self.groups.values_mut().for_each(|group| group.figures = group.sums.figures());
    }

    /// Returns the rows of a view, the worst first by a metric; rows for which it is unknown are last.
    pub fn rows(&self, view: View, by: Metric) -> Vec<Row> {
        let mut rows: Vec<Row> = match view {
            View::Flows => self.flows.iter().map(|(key, flow)| flow_row(key, flow)).collect(),
            View::Peers | View::Prefixes | View::Processes | View::Units => {
                let groups = self.groups.iter().filter(|(key, _)| view_of(key) == view);
                groups.map(|(key, group)| group_row(key, group)).collect()
            }
        };
        let rank = |row: &Row| (row.figures.rank(by), row.figures.rate_bps);
        rows.sort_unstable_by(|a, b| Reverse(rank(a)).cmp(&Reverse(rank(b))).then_with(|| a.key.cmp(&b.key)));
        rows
    }

    /// Returns a row as it is now; `None` if it has ended.
    pub fn row(&self, key: &RowKey) -> Option<Row> {
        match key {
            RowKey::Flow(flow) => self.flows.get(flow).map(|found| flow_row(flow, found)),
            other => self.groups.get(other).map(|group| group_row(other, group)),
        }
    }

    /// Returns the last intervals of a row.
    pub fn past(&self, key: &RowKey) -> Option<&Past> {
        match key {
            RowKey::Flow(flow) => self.flows.get(flow).map(|flow| &flow.past),
            other => self.groups.get(other).map(|group| &group.past),
        }
    }

    /// Returns the shortest round trip of a flow that the kernel has seen in its last minutes (`net.ipv4.tcp_min_rtt_wlen`); `None`
    /// where that is not known. Unlike the smoothed one it has no time of answers that carry an acknowledgement, if any came
    /// alone.
    pub fn shortest_rtt_ns(&self, key: &FlowKey) -> Option<u64> {
        self.flows.get(key)?.shortest_rtt_ns
    }

    /// Returns what limited a flow; `None` where that is not known.
    pub fn limits(&self, key: &FlowKey) -> Option<Limits> {
        self.flows.get(key)?.limits()
    }

    /// Returns the flow that stands in the table for this one, whose `src` is known to be the client or the server, and whether
    /// it is the other way round there.
    fn known(&self, key: FlowKey, role: Option<Role>) -> (FlowKey, bool) {
        let reversed = key.reversed();
        // Servers have the lower ports.
        let is_server = || role.map_or(key.ends.src.port < key.ends.dst.port, |role| role == Role::Server);
        match !self.flows.contains_key(&key) && (self.flows.contains_key(&reversed) || is_server()) {
            true => (reversed, true),
            false => (key, false),
        }
    }

    /// Takes out a flow that was seen in passing, and not at its `src`.
    fn take_not_local(&mut self, key: &FlowKey) -> Option<Flow> {
        match self.flows.entry(*key) {
            Entry::Occupied(entry) if !entry.get().is_local() => Some(entry.remove()),
            _ => None,
        }
    }

    fn flow(&mut self, key: FlowKey) -> Option<&mut Flow> {
        let is_full = self.flows.len() >= self.settings.max_flows;
        match self.flows.entry(key) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) if !is_full => Some(entry.insert(Flow::default())),
            Entry::Vacant(_) => {
                self.omitted.0 += 1;
                None
            }
        }
    }
}

fn role_of(src: Option<Role>, is_reversed: bool) -> Option<Role> {
    src.map(|role| if is_reversed { role.other() } else { role })
}

fn view_of(key: &RowKey) -> View {
    match key {
        RowKey::Flow(_) => View::Flows,
        RowKey::Peer(_) => View::Peers,
        RowKey::Prefix(_) => View::Prefixes,
        RowKey::Process(_) => View::Processes,
        RowKey::Unit(_) => View::Units,
    }
}

fn flow_row(key: &FlowKey, flow: &Flow) -> Row {
    let (key, pid) = (RowKey::Flow(*key), flow.pid);
    Row { key, flows: 1, pid, figures: flow.figures, last_rtt_ns: flow.last_rtt_ns, role: flow.role }
}

fn group_row(key: &RowKey, group: &Group) -> Row {
    let pid = if let RowKey::Process(pid) = key { *pid } else { None };
    Row { key: *key, flows: group.flows, pid, figures: group.figures, last_rtt_ns: None, role: None }
}
