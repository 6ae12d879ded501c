//! Computes the figures of a page from the rows of a store, in one pass in the order of time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    mem,
};

use dwell_engine::{
    histogram::HistogramSum,
    layers::{Ends, PathSegment},
};
use jiff::Timestamp;

use super::{
    Choice, Clock, Flow, Page, PageLoss, PagePlace, Resent, Row, Verdict, backends::PageBackends, gray::gray,
    latency::Latencies, segment_names,
};
use crate::{Place, Reader, Span, StoreError, StoredSegment};

/// The maximum number of time bins in a chart: more could not be distinguished.
const MOST_BINS: i64 = 120;
/// Losses of each kind that are shown at most.
const MOST_LOSSES: usize = 100;
/// Verdicts that are shown at most.
const MOST_VERDICTS: usize = 200;

/// The data of a page, being gathered.
#[derive(Debug)]
pub struct Report {
    page: Page,
    damaged: u64,
}

impl Report {
    /// Reads the part of a store that was chosen. `None` if it is empty.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    pub fn read(store: &Reader, choice: &Choice, now_ns: i128) -> Result<Option<Report>, StoreError> {
        let Some(whole) = store.span()? else {
            return Ok(None);
        };
        let span = (choice.since_ns.unwrap_or(whole.0).max(whole.0), choice.until_ns.unwrap_or(whole.1).min(whole.1));
        let hosts = Hosts::read(store, choice)?;
        let wanted = hosts.wanted.as_deref();
        let flows = Flows::read(store, choice, span, wanted)?;
        let (gathered, damaged) = Gathered::read(store, choice, span, (&hosts, &flows.numbers))?;
        let backends = PageBackends::read(store, choice, (wanted, &hosts.all), span, gathered.bin_ns)?;
        let latencies = Latencies::read(store, choice, hosts.wanted.clone(), span, gathered.bin_ns)?;
        let damaged = damaged + latencies.damaged();
        let latency = latencies.finish(store, &hosts.all)?;
        let (verdicts, verdicts_known) = verdicts(store, span, wanted, &hosts.all)?;
        if gathered.cells.is_empty() && latency.is_none() && verdicts.is_empty() && backends.is_empty() {
            return Ok(None);
        }
        let clocks = store.clocks(span)?.into_iter().filter(|clock| hosts.wants(clock.host));
        let (gray, gray_known) = gray(store, span, choice)?;
        let (losses, losses_known) = losses(store, span, &hosts)?;
        let mut page = Page {
            made: Timestamp::from_nanosecond(now_ns).map(|now| format!("{now:.9}")).unwrap_or_default(),
            from_ms: span.0 as f64 / 1e6,
            to_ms: span.1 as f64 / 1e6,
            bin_ms: gathered.bin_ns as f64 / 1e6,
            hosts: Vec::new(),
            flows: flows.chosen,
            flows_known: flows.known,
            has_sums: !choice.is_of_flows(),
            segments: segment_names(),
            places: Vec::new(),
            rows: Vec::new(),
            resent: Vec::new(),
            clocks: clocks
                .map(|clock| Clock {
                    host: hosts.name(clock.host),
                    bound_ns: clock.bound_ns,
                    steps: clock.steps,
                    method: clock.method,
                })
                .collect(),
            losses,
            losses_known,
            latency,
            verdicts,
            verdicts_known,
            backends,
            gray,
            gray_known,
        };
        gathered.finish(&hosts.all, &flows.numbers, &mut page);
        if page.rows.is_empty() {
            let named = hosts.all.iter().filter(|(number, _)| hosts.wants(*number));
            page.hosts = named.map(|(_, name)| name.clone()).collect();
        }
        Ok(Some(Report { page, damaged }))
    }

    /// The page.
    pub fn html(&self) -> String {
        self.page.html()
    }

    #[cfg(test)]
    pub(super) fn into_page(self) -> Page {
        self.page
    }

    /// The number of flows that are kept apart, and the number of all flows.
    pub fn flows(&self) -> (usize, usize) {
        (self.page.flows.len(), self.page.flows_known)
    }

    /// The number of rows that were left out because they are damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
}

/// The hosts of a store, by number and name.
struct Hosts {
    all: Vec<(i64, String)>,
    /// The numbers of those that were chosen; `None` if none was, so that all are wanted.
    wanted: Option<Vec<i64>>,
}

impl Hosts {
    fn read(store: &Reader, choice: &Choice) -> Result<Hosts, StoreError> {
        let all = store.hosts()?;
        let chosen = || all.iter().filter(|(_, name)| choice.hosts.contains(name)).map(|(number, _)| *number);
        let wanted = (!choice.hosts.is_empty()).then(|| chosen().collect());
        Ok(Hosts { all, wanted })
    }

    fn wants(&self, number: i64) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&number))
    }

    fn name(&self, number: i64) -> String {
        let host = self.all.iter().find(|(host, _)| *host == number);
        host.map(|(_, name)| name.clone()).unwrap_or_default()
    }
}

/// The flows that are kept apart.
struct Flows {
    chosen: Vec<Flow>,
    /// Their numbers in the store, in the same order.
    numbers: Vec<i64>,
    /// How many flows there are in all.
    known: usize,
}

impl Flows {
    fn read(store: &Reader, choice: &Choice, span: Span, wanted: Option<&[i64]>) -> Result<Flows, StoreError> {
        let mut flows = store.flows(span, wanted.unwrap_or_default())?;
        let translated = store.translated(span)?;
        let takes = |number: &i64| translated.get(number).is_some_and(|ends| choice.takes(ends));
        flows.retain(|(number, ends, _)| choice.takes(ends) || takes(number));
        let known = flows.len() + choice.left_out;
        flows.truncate(choice.most_flows);
        let numbers = flows.iter().map(|(number, ..)| *number).collect();
        let chosen = flows.into_iter().map(|(number, ends, _)| Flow {
            src: ends.src.to_string(),
            dst: ends.dst.to_string(),
            rx: translated.get(&number).map(|Ends { src, dst }| format!("{src} → {dst}")),
        });
        Ok(Flows { chosen: chosen.collect(), numbers, known })
    }
}

/// Returns the times of which measurements of these hosts are missing, the earliest first, and how many there are in all.
fn losses(store: &Reader, span: Span, hosts: &Hosts) -> Result<(Vec<PageLoss>, u64), StoreError> {
    let wanted = hosts.wanted.as_deref();
    let (lost, lost_known) = store.lost(span, wanted, MOST_LOSSES)?;
    let (silences, silences_known) = store.silences(span, wanted, MOST_LOSSES)?;
    let ms = |time_ns: i64| time_ns as f64 / 1e6;
    let lost = lost.into_iter().map(|lost| PageLoss {
        host: hosts.name(lost.host),
        from_ms: lost.since_ns.map(ms),
        to_ms: lost.until_ns.map(ms),
        batches: lost.batches.1.map(|last| last.saturating_sub(lost.batches.0).saturating_add(1)),
        why: lost.why,
    });
    let silences = silences.into_iter().map(|silence| PageLoss {
        host: hosts.name(silence.host),
        from_ms: Some(ms(silence.since_ns)),
        to_ms: Some(ms(silence.until_ns)),
        batches: None,
        why: "silent".into(),
    });
    let mut losses: Vec<_> = lost.chain(silences).collect();
    losses.sort_by(|a, b| a.from_ms.unwrap_or(0.0).total_cmp(&b.from_ms.unwrap_or(0.0)));
    Ok((losses, lost_known + silences_known))
}

/// Returns the verdicts on these hosts, or all, the latest first, and how many there are in all. A target may be anything, so
/// they are not chosen by flows.
fn verdicts(
    store: &Reader,
    span: Span,
    wanted: Option<&[i64]>,
    hosts: &[(i64, String)],
) -> Result<(Vec<Verdict>, u64), StoreError> {
    let (verdicts, known) = store.verdicts(span, wanted, MOST_VERDICTS)?;
    let json = |text: &str| serde_json::from_str(text).unwrap_or_default();
    let verdicts = verdicts.into_iter().map(|verdict| Verdict {
        time_ms: verdict.time_ns as f64 / 1e6,
        host: hosts.iter().find(|(number, _)| Some(*number) == verdict.host).map(|(_, name)| name.clone()),
        target: verdict.target,
        outcome: verdict.outcome,
        cause: verdict.cause,
        certainty: verdict.certainty,
        sentence: verdict.sentence,
        parts: json(&verdict.parts),
        facts: json(&verdict.facts),
        remedies: json(&verdict.remedies),
    });
    Ok((verdicts.collect(), known))
}

/// The place, the flow and the path segment of a row.
type Key = (Place, Option<i64>, PathSegment);

struct Gathered {
    from_ns: i64,
    bin_ns: i64,
    cells: HashMap<Key, Cell>,
    resent: BTreeMap<Place, HistogramSum>,
    /// The index of the time bin that is being read.
    bin: i64,
}

#[derive(Default)]
struct Cell {
    /// The figures of the time bins before the one that is being read, and of that one.
    whole: HistogramSum,
    open: HistogramSum,
    estimated: bool,
    bound_ns: Option<u64>,
    clamped: u64,
    doubtful: u64,
    missing: Option<String>,
    times: Vec<[u64; 4]>,
}

impl Gathered {
    fn new((from_ns, to_ns): Span, length_ns: i64) -> Gathered {
        let least = (to_ns - from_ns).div_euclid(MOST_BINS) + 1;
        // A bin has whole intervals, so that all bins have the same number.
        let intervals = (least + length_ns - 1) / length_ns.max(1);
        Gathered {
            from_ns,
            bin_ns: (intervals * length_ns).max(1),
            cells: HashMap::new(),
            resent: BTreeMap::new(),
            bin: 0,
        }
    }

    /// Reads the rows of these hosts and flows, and how many were damaged.
    fn read(
        store: &Reader,
        choice: &Choice,
        span: Span,
        (hosts, flows): (&Hosts, &[i64]),
    ) -> Result<(Gathered, u64), StoreError> {
        // Verdicts alone have no interval.
        let mut gathered = Gathered::new(span, store.interval_ns(span)?.unwrap_or(1_000_000_000));
        let damaged = store.rows(span, flows, |read| {
            let is_chosen = match read.place {
                Place::Host(host) => hosts.wants(host),
                Place::Path(tx, rx) => [tx, rx].into_iter().flatten().any(|host| hosts.wants(host)),
            };
            if is_chosen && (read.flow.is_some() || !choice.is_of_flows()) {
                gathered.add(read);
            }
        })?;
        Ok((gathered, damaged))
    }

    fn add(&mut self, read: &StoredSegment<'_>) {
        if read.resent {
            // Their delay is mostly that of the loss. Their sum is enough to show it.
            let is_whole = matches!(read.segment.name(), "end-to-end" | "total");
            let is_host = matches!(read.place, Place::Host(_));
            if is_whole && is_host == read.segment.direction().is_some() && read.flow.is_none() {
                let resent = self.resent.entry(read.place).or_default();
                resent.add(read.histogram);
            }
            return;
        }
        let bin = (read.time_ns - 1 - self.from_ns).max(0) / self.bin_ns;
        if bin != self.bin {
            self.close();
            self.bin = bin;
        }
        let key = (read.place, read.flow, read.segment);
        let cell = self.cells.entry(key).or_default();
        cell.open.add(read.histogram);
        cell.estimated |= read.estimated;
        cell.bound_ns = cell.bound_ns.max(read.bound_ns);
        cell.clamped = cell.clamped.saturating_add(read.clamped);
        cell.doubtful = cell.doubtful.saturating_add(read.doubtful);
        if let Some(missing) = read.missing.filter(|missing| cell.missing.as_deref() != Some(*missing)) {
            cell.missing = Some(missing.to_owned());
        }
    }

    fn close(&mut self) {
        let bin = self.bin.cast_unsigned();
        for cell in self.cells.values_mut().filter(|cell| cell.open.count() > 0) {
            let [p99] = cell.open.quantiles_ns([0.99]);
            if let (Some(mean), Some(p99)) = (cell.open.mean_ns(), p99) {
                cell.times.push([bin, cell.open.count(), mean, p99]);
            }
            cell.whole.merge(&mem::take(&mut cell.open));
        }
    }

    /// Sorts places: paths between two hosts first, then paths of which one end is known, then hosts; within each,
    /// those with the most bytes first.
    fn places(&self) -> Vec<Place> {
        let mut bytes: BTreeMap<Place, u64> = BTreeMap::new();
        for ((place, _, segment), cell) in &self.cells {
            let count = if segment.is_addend() { 0 } else { cell.whole.count() };
            *bytes.entry(*place).or_default() += count;
        }
        let mut places: Vec<_> = bytes.into_iter().collect();
        places.sort_by_key(|(place, count)| {
            let rank = match place {
                Place::Path(Some(_), Some(_)) => 0,
                Place::Path(..) => 1,
                Place::Host(_) => 2,
            };
            (rank, Reverse(*count), *place)
        });
        places.into_iter().map(|(place, _)| place).collect()
    }

    fn finish(mut self, hosts: &[(i64, String)], flows: &[i64], page: &mut Page) {
        self.close();
        let places = self.places();
        let used = |number: i64| {
            places.iter().any(|place| match place {
                Place::Host(host) => *host == number,
                Place::Path(tx, rx) => [tx, rx].contains(&&Some(number)),
            })
        };
        let hosts: Vec<_> = hosts.iter().filter(|(number, _)| used(*number)).collect();
        let host = |number: i64| hosts.iter().position(|(host, _)| *host == number);
        page.hosts = hosts.iter().map(|(_, name)| name.clone()).collect();
        page.places = places
            .iter()
            .map(|place| match *place {
                Place::Host(number) => PagePlace { host: host(number), tx: None, rx: None },
                Place::Path(tx, rx) => PagePlace { host: None, tx: tx.and_then(host), rx: rx.and_then(host) },
            })
            .collect();
        let place_of = |place: Place| places.iter().position(|other| *other == place);
        let flow_of: HashMap<i64, usize> = flows.iter().copied().zip(0..).collect();
        let index_of = |segment: PathSegment| PathSegment::ALL.iter().position(|other| *other == segment);
        let row = |((place, flow, segment), cell): (Key, Cell)| {
            let whole = cell.whole.finish();
            Row {
                place: place_of(place).unwrap_or_default(),
                flow: flow.and_then(|flow| flow_of.get(&flow).copied()),
                segment: index_of(segment).unwrap_or_default(),
                count: whole.count(),
                sum_ns: whole.sum_ns() as f64,
                min_ns: whole.min_ns(),
                max_ns: whole.max_ns(),
                buckets: whole.buckets().flat_map(|(low, _, count)| [low, count]).collect(),
                estimated: cell.estimated,
                bound_ns: cell.bound_ns,
                clamped: cell.clamped,
                doubtful: cell.doubtful,
                missing: cell.missing,
                times: cell.times,
            }
        };
        let mut cells: Vec<_> = self.cells.into_iter().collect();
        cells.sort_unstable_by_key(|(key, _)| *key);
        page.rows = cells.into_iter().map(row).collect();
        page.resent = self
            .resent
            .into_iter()
            .filter_map(|(place, histogram)| {
                Some(Resent { place: place_of(place)?, count: histogram.count(), mean_ns: histogram.mean_ns() })
            })
            .collect();
    }
}
