//! Computes the latencies of a page: how each kind of latency was distributed over time.

use std::collections::{BTreeSet, HashMap};

use dwell_engine::histogram::{Addend, HistogramSum};
use serde::Serialize;

use super::{
    Choice,
    ranking::{Lookups, PageRanking, Ranking},
};
use crate::{Reader, Span, StoreError, read_latency::LatencyRead};

/// Bands of a heat map per doubling of the latency.
const BANDS_SHIFT: u32 = 2;
/// Enough for the longest latency that a histogram may have.
const BANDS: usize = 57 << BANDS_SHIFT;

/// The kinds of latencies in the order in which a reader may choose them.
const ORDER: [&str; 7] =
    ["rtt.sample", "rtt.aggregate", "response.epoch", "run.socket", "top.row", "rtt.summary", "run.summary"];

/// All latencies of a page.
#[derive(Debug, Serialize)]
pub(super) struct PageLatency {
    /// The lower edges of the bands of heat maps, in nanoseconds.
    edges: Vec<u64>,
    sets: Vec<PageSet>,
}

/// The latencies of one kind: all of one type of object, under one of its keys.
#[derive(Debug, Serialize)]
struct PageSet {
    kind: String,
    what: String,
    methods: Vec<String>,
    /// Whether they are means of an interval, because no distribution is known.
    are_means: bool,
    count: u64,
    /// Rows without an estimate that may be believed.
    invalid: u64,
    /// Index of the time bin, index of the band, and count, of each cell that is not empty.
    cells: Vec<[u64; 3]>,
    /// Index, count, mean, p50 and p99 of each time bin that is not empty.
    times: Vec<[u64; 5]>,
    #[serde(flatten)]
    ranking: PageRanking,
}

/// The latencies of a store, as they are read.
pub(super) struct Latencies<'a> {
    choice: &'a Choice,
    /// Numbers of the wanted hosts; `None` if all are.
    hosts: Option<Vec<i64>>,
    span: Span,
    bin_ns: i64,
    sets: Vec<Set>,
    /// Whether a flow was chosen.
    chosen: HashMap<i64, bool>,
    damaged: u64,
    lookups: Lookups,
    /// The latencies of a row.
    addend: Addend,
}

#[derive(Default)]
struct Set {
    kind: String,
    what: String,
    methods: BTreeSet<String>,
    are_means: bool,
    count: u64,
    invalid: u64,
    /// Of each time bin.
    times: Vec<HistogramSum>,
    ranking: Ranking,
}

impl<'a> Latencies<'a> {
    /// Reads the latencies of a time that were chosen, in bins of this length.
    pub(super) fn read(
        store: &Reader,
        choice: &'a Choice,
        hosts: Option<Vec<i64>>,
        span: Span,
        bin_ns: i64,
    ) -> Result<Latencies<'a>, StoreError> {
        let (sets, chosen) = (Vec::new(), HashMap::new());
        let (lookups, addend) = (Lookups::default(), Addend::default());
        let mut latencies = Latencies { choice, hosts, span, bin_ns, sets, chosen, damaged: 0, lookups, addend };
        let mut failed = None;
        store.latencies(span, |read| {
            let added = match latencies.takes(store, read) {
                Ok(true) => latencies.add(store, read),
                other => other.map(drop),
            };
            failed = failed.take().or(added.err());
        })?;
        failed.map_or(Ok(latencies), Err)
    }

    /// The number of rows that were left out because they are damaged.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    fn takes(&mut self, store: &Reader, read: &LatencyRead<'_>) -> Result<bool, StoreError> {
        if let (Some(hosts), host) = (&self.hosts, read.host)
            && !host.is_some_and(|host| hosts.contains(&host))
        {
            return Ok(false);
        }
        match (self.choice.is_of_flows(), read.flow) {
            (false, _) => Ok(true),
            (true, None) => Ok(false),
            (true, Some(flow)) => {
                if let Some(chosen) = self.chosen.get(&flow) {
                    return Ok(*chosen);
                }
                let chosen = store.flow(flow)?.ends.is_some_and(|ends| self.choice.takes(&ends));
                self.chosen.insert(flow, chosen);
                Ok(chosen)
            }
        }
    }

    fn add(&mut self, store: &Reader, read: &LatencyRead<'_>) -> Result<(), StoreError> {
        let bin = ((read.time_ns - 1 - self.span.0).max(0) / self.bin_ns) as usize;
        let found = self.sets.iter().position(|set| set.kind == read.kind && set.what == read.what);
        let number = found.unwrap_or_else(|| {
            self.sets.push(Set { kind: read.kind.to_owned(), what: read.what.to_owned(), ..Set::default() });
            self.sets.len() - 1
        });
        let set = &mut self.sets[number];
        if read.valid == Some(false) {
            set.invalid += 1;
            return Ok(());
        }
        match (read.histogram, read.mean_ns) {
            (Some(bytes), _) => {
                if self.addend.decode(bytes).is_err() {
                    self.damaged += 1;
                    return Ok(());
                }
            }
            (None, Some(mean_ns)) => {
                set.are_means = true;
                // A mean that nobody counted stands for one.
                self.addend.repeat(mean_ns, read.count.unwrap_or(1).max(1));
            }
            (None, None) => return Ok(()),
        }
        set.add(store, &mut self.lookups, read, bin, &self.addend)
    }

    /// Sums up, and looks up the names of what is shown.
    pub(super) fn finish(self, store: &Reader, hosts: &[(i64, String)]) -> Result<Option<PageLatency>, StoreError> {
        let most = self.choice.most_flows;
        let (mut sets, mut lookups) = (Vec::new(), self.lookups);
        for set in self.sets.into_iter().filter(|set| set.count > 0) {
            sets.push(set.finish(store, &mut lookups, hosts, most)?);
        }
        sets.sort_by_key(|set| {
            let rank = ORDER.iter().position(|kind| *kind == set.kind);
            (rank.unwrap_or(ORDER.len()), set.what.clone())
        });
        let edges = (0..BANDS).map(edge_of).collect();
        Ok((!sets.is_empty()).then_some(PageLatency { edges, sets }))
    }
}

impl Set {
    fn add(
        &mut self,
        store: &Reader,
        lookups: &mut Lookups,
        read: &LatencyRead<'_>,
        bin: usize,
        addend: &Addend,
    ) -> Result<(), StoreError> {
        self.count = self.count.saturating_add(addend.count());
        if let Some(method) = read.method.filter(|method| !self.methods.contains(*method)) {
            self.methods.insert(method.to_owned());
        }
        // The summary of a run is of no moment.
        if !self.kind.ends_with(".summary") {
            if self.times.len() <= bin {
                self.times.resize_with(bin + 1, HistogramSum::default);
            }
            self.times[bin].add(addend);
        }
        self.ranking.add(store, lookups, read, addend)
    }

    fn finish(
        self,
        store: &Reader,
        lookups: &mut Lookups,
        hosts: &[(i64, String)],
        most: usize,
    ) -> Result<PageSet, StoreError> {
        let (mut cells, mut times) = (Vec::new(), Vec::new());
        for (bin, all) in (0..).zip(self.times) {
            let all = all.finish();
            let mut bands: Vec<[u64; 3]> = Vec::new();
            for (low_ns, _, count) in all.buckets() {
                let band = band_of(low_ns) as u64;
                match bands.last_mut() {
                    Some([_, last, sum]) if *last == band => *sum += count,
                    _ => bands.push([bin, band, count]),
                }
            }
            cells.extend(bands);
            let [p50, p99] = [0.5, 0.99].map(|q| all.quantile_ns(q).unwrap_or_default());
            times.extend(all.mean_ns().map(|mean| [bin, all.count(), mean, p50, p99]));
        }
        Ok(PageSet {
            times,
            kind: self.kind,
            what: self.what,
            methods: self.methods.into_iter().collect(),
            are_means: self.are_means,
            count: self.count,
            invalid: self.invalid,
            cells,
            ranking: self.ranking.finish(store, lookups, hosts, most)?,
        })
    }
}

/// Returns the band of a latency: as a floating-point number with two bits of mantissa.
fn band_of(ns: u64) -> usize {
    let ns = ns.clamp(1, 1 << 56);
    let octave = ns.ilog2();
    let within = match octave.checked_sub(BANDS_SHIFT) {
        Some(shift) => ns >> shift,
        None => ns << (BANDS_SHIFT - octave),
    };
    ((octave << BANDS_SHIFT) as usize) + (within as usize & ((1 << BANDS_SHIFT) - 1))
}

/// Returns the lower edge of a band.
fn edge_of(band: usize) -> u64 {
    let (octave, within) = (band >> BANDS_SHIFT, (band & ((1 << BANDS_SHIFT) - 1)) as u64);
    (((1 << BANDS_SHIFT) + within) << octave) >> BANDS_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_between_the_edges_of_its_band() {
        for ns in (4..4_000).chain((3..56).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let band = band_of(ns);
            assert!(edge_of(band) <= ns && ns < edge_of(band + 1), "{ns} {band}");
        }
    }
}
