//! Computes who is slow: the latencies of a kind by flow, prefix, peer and process.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    rc::Rc,
};

use dwell_engine::histogram::{Addend, HistogramSum};
use serde::Serialize;

use crate::{
    Reader, StoreError,
    read_latency::{EndRead, FlowRead, LatencyRead},
};

/// Flows and prefixes that are kept apart, of each kind of latency, and as many peers and processes of further flows. Each
/// takes some 2 KB while it is read.
const MOST_RANKED: usize = 20_000;
/// Flows whose peers are remembered, some 50 bytes each.
const MOST_KNOWN: usize = 1 << 20;

/// The ranking of one kind of latency.
#[derive(Debug, Serialize)]
pub(super) struct PageRanking {
    groups: Vec<PageGroup>,
    /// The number of flows, of which as many as are in `groups` are shown.
    flows: usize,
    unranked: Unranked,
}

/// The number of latencies that no line has, by what lines are of.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Unranked {
    /// Of flows or prefixes.
    flow: u64,
    peer: u64,
    process: u64,
}

/// A line of the ranking.
#[derive(Debug, Serialize)]
struct PageGroup {
    /// `flow`, `peer`, `process` or `prefix`.
    by: &'static str,
    name: String,
    /// Names of processes and hosts.
    note: String,
    host: Option<String>,
    #[serde(flatten)]
    figures: Figures,
}

/// The latencies of a line.
#[derive(Debug, Serialize)]
struct Figures {
    count: u64,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Figures {
    fn of(sum: &HistogramSum) -> Figures {
        let [p50_ns, p90_ns, p99_ns] = sum.quantiles_ns([0.5, 0.9, 0.99]).map(Option::unwrap_or_default);
        let (mean_ns, max_ns) = (sum.mean_ns().unwrap_or_default(), sum.max_ns().unwrap_or_default());
        Figures { count: sum.count(), mean_ns, p50_ns, p90_ns, p99_ns, max_ns }
    }

    /// What lines are ranked by, the greatest first.
    fn rank(&self) -> (u64, u64) {
        (self.p99_ns, self.count)
    }
}

/// The latencies of one kind, as they are read.
#[derive(Default)]
pub(super) struct Ranking {
    groups: HashMap<Key, Group, BuildHasherDefault<NumberHasher>>,
    /// Those of flows that are not kept apart.
    peers: HashMap<Line, Sum>,
    processes: HashMap<Line, Sum>,
    unranked: Unranked,
}

/// What a line is about, and on which host.
type Key = (Subject, Option<i64>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Subject {
    Flow(i64),
    Prefix(String),
}

/// Hashes the numbers of flows and hosts, which the store has given out itself, for each row. There are too few keys for others to
/// do harm.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Group {
    sum: HistogramSum,
    names: Option<i64>,
    prefix_name: Option<String>,
}

/// The name of a line, and the host.
type Line = (Rc<str>, Option<i64>);

#[derive(Default)]
struct Sum {
    note: Rc<str>,
    sum: HistogramSum,
}

/// Whom flows and names are about, looked up in the store once for each.
#[derive(Default)]
pub(super) struct Lookups {
    /// The peer, by the number of the flow.
    peers: HashMap<i64, Rc<str>>,
    /// Those at the ends, by the number of the names.
    names: HashMap<i64, Rc<NameLines>>,
}

/// What names say, as lines have it.
#[derive(Default)]
struct NameLines {
    peer_note: Rc<str>,
    /// The name of each process, and its note.
    processes: Vec<(Rc<str>, Rc<str>)>,
}

impl NameLines {
    fn of(ends: &[EndRead; 2]) -> NameLines {
        let processes = ends.iter().filter_map(|end| {
            let process = end.process.as_deref().or(end.unit.as_deref())?;
            let unit = end.unit.as_deref().filter(|unit| *unit != process);
            Some((process.into(), unit.unwrap_or_default().into()))
        });
        NameLines { peer_note: ends[1].host.as_deref().unwrap_or_default().into(), processes: processes.collect() }
    }
}

impl Lookups {
    fn peer(&mut self, store: &Reader, flow: i64) -> Result<Rc<str>, StoreError> {
        if self.peers.len() >= MOST_KNOWN {
            self.peers.clear();
        }
        Ok(match self.peers.entry(flow) {
            Entry::Occupied(known) => Rc::clone(known.get()),
            Entry::Vacant(new) => Rc::clone(new.insert(peer_of(&store.flow(flow)?).into())),
        })
    }

    fn names(&mut self, store: &Reader, number: Option<i64>) -> Result<Rc<NameLines>, StoreError> {
        if self.names.len() >= MOST_KNOWN {
            self.names.clear();
        }
        let Some(number) = number else { return Ok(Rc::default()) };
        Ok(match self.names.entry(number) {
            Entry::Occupied(known) => Rc::clone(known.get()),
            Entry::Vacant(new) => Rc::clone(new.insert(Rc::new(NameLines::of(&store.names(number)?)))),
        })
    }
}

impl Ranking {
    /// Adds a row: to its flow or prefix if that is kept apart, and else to its peer and its processes.
    pub(super) fn add(
        &mut self,
        store: &Reader,
        lookups: &mut Lookups,
        read: &LatencyRead<'_>,
        addend: &Addend,
    ) -> Result<(), StoreError> {
        let subject = match (read.flow, read.prefix) {
            (Some(flow), _) => Subject::Flow(flow),
            (None, Some(prefix)) => Subject::Prefix(prefix.to_owned()),
            (None, None) => {
                add_count(&mut self.unranked.flow, addend);
                add_count(&mut self.unranked.peer, addend);
                return Ok(());
            }
        };
        if let Some(group) = kept(&mut self.groups, (subject, read.host)) {
            group.sum.add(addend);
            group.names = read.names.or(group.names);
            if group.prefix_name.is_none() {
                group.prefix_name = read.prefix_name.map(str::to_owned);
            }
            return Ok(());
        }
        add_count(&mut self.unranked.flow, addend);
        let Some(flow) = read.flow else { return Ok(()) };
        let (peer, names) = (lookups.peer(store, flow)?, lookups.names(store, read.names)?);
        let is_kept = add_to(&mut self.peers, (peer, read.host), &names.peer_note, addend);
        if !is_kept {
            add_count(&mut self.unranked.peer, addend);
        }
        for (process, note) in &names.processes {
            let is_kept = add_to(&mut self.processes, (Rc::clone(process), read.host), note, addend);
            if !is_kept {
                add_count(&mut self.unranked.process, addend);
            }
        }
        Ok(())
    }

    /// Sums up, and looks up the names of what is shown: at most so many flows, prefixes, peers and processes.
    pub(super) fn finish(
        self,
        store: &Reader,
        lookups: &mut Lookups,
        hosts: &[(i64, String)],
        most: usize,
    ) -> Result<PageRanking, StoreError> {
        let host = |number: Option<i64>| {
            let found = hosts.iter().find(|(host, _)| Some(*host) == number);
            found.map(|(_, name)| name.clone())
        };
        let (mut groups, mut flows) = (Vec::new(), Vec::new());
        let (mut peers, mut processes) = (self.peers, self.processes);
        for ((subject, host_id), group) in self.groups {
            let figures = Figures::of(&group.sum);
            let number = match subject {
                Subject::Prefix(prefix) => {
                    let name = group.prefix_name.filter(|name| *name != prefix).unwrap_or_default();
                    groups.push(PageGroup::new("prefix", prefix, name, host(host_id), figures));
                    continue;
                }
                Subject::Flow(number) => number,
            };
            let (peer, names) = (lookups.peer(store, number)?, lookups.names(store, group.names)?);
            merge(&mut peers, (peer, host_id), &names.peer_note, &group.sum);
            for (process, note) in &names.processes {
                merge(&mut processes, (Rc::clone(process), host_id), note, &group.sum);
            }
            flows.push((figures, number, host_id, group.names));
        }
        let known = flows.len();
        // Only those that may be shown are named. Of those that are as slow, the name decides.
        flows.sort_unstable_by_key(|(figures, ..)| Reverse(figures.rank()));
        let last = flows.get(most.saturating_sub(1)).map(|(figures, ..)| figures.rank());
        for (figures, number, host_id, names) in
            flows.into_iter().take_while(|(figures, ..)| Some(figures.rank()) >= last)
        {
            let ends = names.map(|names| store.names(names)).transpose()?.unwrap_or_default();
            groups.push(PageGroup::new(
                "flow",
                store.flow(number)?.to_string(),
                note_of(&ends),
                host(host_id),
                figures,
            ));
        }
        for (by, all) in [("peer", peers), ("process", processes)] {
            groups.extend(all.into_iter().map(|((name, host_id), Sum { note, sum })| {
                PageGroup::new(by, name.to_string(), note.to_string(), host(host_id), Figures::of(&sum))
            }));
        }
        groups.sort_by(|a, b| {
            let line = |group: &PageGroup| (group.by, Reverse(group.figures.rank()));
            line(a).cmp(&line(b)).then_with(|| (&a.name, &a.host).cmp(&(&b.name, &b.host)))
        });
        let mut shown: HashMap<&'static str, usize> = HashMap::new();
        groups.retain(|group| {
            let shown = shown.entry(group.by).or_default();
            *shown += 1;
            *shown <= most
        });
        Ok(PageRanking { groups, flows: known, unranked: self.unranked })
    }
}

/// Adds the latencies of a flow to a line.
fn merge(all: &mut HashMap<Line, Sum>, line: Line, note: &Rc<str>, of_flow: &HistogramSum) {
    let sum = all.entry(line).or_default();
    sum.note.clone_from(note);
    sum.sum.merge(of_flow);
}

/// Adds the count of a distribution to one that is shown.
fn add_count(shown: &mut u64, addend: &Addend) {
    *shown = shown.saturating_add(addend.count());
}

/// Returns the value of a key; `None` if it is new and there are too many.
fn kept<K: Eq + Hash, V: Default, S: BuildHasher>(all: &mut HashMap<K, V, S>, key: K) -> Option<&mut V> {
    let is_full = all.len() >= MOST_RANKED;
    match all.entry(key) {
        Entry::Vacant(_) if is_full => None,
        entry => Some(entry.or_default()),
    }
}

/// Adds latencies to a line. Returns false if there are too many lines.
fn add_to(all: &mut HashMap<Line, Sum>, line: Line, note: &Rc<str>, addend: &Addend) -> bool {
    let Some(sum) = kept(all, line) else { return false };
    sum.note.clone_from(note);
    sum.sum.add(addend);
    true
}

/// The address of the one that answered, or of the server.
fn peer_of(flow: &FlowRead) -> String {
    flow.ends.map_or_else(|| flow.dst.clone(), |ends| ends.dst.address.to_string())
}

impl PageGroup {
    fn new(by: &'static str, name: String, note: String, host: Option<String>, figures: Figures) -> PageGroup {
        PageGroup { by, name, note, host, figures }
    }
}

/// Writes the names of the ends of a flow as one note: `curl → example.org`.
fn note_of([src, dst]: &[EndRead; 2]) -> String {
    let name = |end: &EndRead| {
        let process = end.process.as_deref().or(end.unit.as_deref());
        process.or(end.host.as_deref()).map(str::to_owned)
    };
    match (name(src), name(dst)) {
        (None, None) => String::new(),
        (Some(src), None) => format!("{src} →"),
        (None, Some(dst)) => format!("→ {dst}"),
        (Some(src), Some(dst)) => format!("{src} → {dst}"),
    }
}
