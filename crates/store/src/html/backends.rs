//! Computes what the backends of balancers did, for a comparison of those of one VIP.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use super::Choice;
use crate::{Reader, Span, StoreError, read_backend::BackendRead};

/// Backends that are kept apart while they are read. Each takes up to 12 KB.
const MOST_KEPT: usize = 2_000;
/// Changes of a backend's state that are shown, the latest.
const MOST_CHANGES: usize = 20;

/// The backends of a page, those of one VIP next to each other.
#[derive(Debug, Serialize)]
pub(super) struct PageBackends {
    shown: Vec<PageBackend>,
    /// How many there were; of those that are not shown there is nothing.
    known: usize,
    /// Whether there were more than could be counted apart.
    is_more: bool,
}

#[derive(Debug, Serialize)]
struct PageBackend {
    host: Option<String>,
    /// Null for those of no VIP any more.
    vip: Option<String>,
    name: String,
    address: String,
    /// At the end, as the next three.
    state: String,
    why: String,
    weight: f64,
    share: f64,
    /// The mean at the ends of intervals.
    active: f64,
    /// The most at the end of an interval.
    pending: u64,
    connections: u64,
    packets: u64,
    bytes: u64,
    /// The number of latencies, their mean, and the greatest p99 of an interval.
    count: u64,
    mean_ns: Option<u64>,
    p99_ns: Option<u64>,
    /// The latest ones, in the order of time.
    changes: Vec<Change>,
    changes_known: u64,
    /// Index, count, mean and greatest p99 (0 if not known) of each time bin that has latencies.
    times: Vec<[u64; 4]>,
    /// Index and most pending requests of each time bin that is known; empty if there never were any.
    waits: Vec<[u64; 2]>,
}

/// A new state.
#[derive(Debug, Serialize)]
struct Change {
    time_ms: f64,
    state: String,
    why: String,
}

/// A backend, as it is read.
#[derive(Default)]
struct Backend {
    address: String,
    state: String,
    why: String,
    weight: f64,
    share: f64,
    intervals: u64,
    active: u64,
    pending: u64,
    traffic: [u64; 3],
    /// Of all intervals.
    whole: Latency,
    changes: Vec<Change>,
    changes_known: u64,
    times: Vec<(u64, Latency)>,
    waits: Vec<[u64; 2]>,
}

#[derive(Default)]
struct Latency {
    count: u64,
    sum_ns: u128,
    p99_ns: Option<u64>,
}

impl Latency {
    fn add(&mut self, count: u64, mean_ns: u64, p99_ns: Option<u64>) {
        self.count = self.count.saturating_add(count);
        self.sum_ns = self.sum_ns.saturating_add(u128::from(count) * u128::from(mean_ns));
        self.p99_ns = self.p99_ns.max(p99_ns);
    }

    fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count.into()).and_then(|mean| mean.try_into().ok())
    }
}

/// Backends by the number of the host, the name of the VIP (empty for none), and their own name.
type Kept = HashMap<i64, HashMap<String, HashMap<String, Backend>>>;

impl PageBackends {
    /// Reads what was chosen of a time, in bins of this length. A backend is not a flow: where flows are chosen there are none.
    /// `hosts` are the numbers of the wanted hosts, all if there are none, and the names of all.
    pub(super) fn read(
        store: &Reader,
        choice: &Choice,
        (wanted, hosts): (Option<&[i64]>, &[(i64, String)]),
        span: Span,
        bin_ns: i64,
    ) -> Result<PageBackends, StoreError> {
        let (mut kept, mut known, mut is_more) = (Kept::new(), 0, false);
        if !choice.is_of_flows() {
            store.backends(span, |read| {
                if wanted.is_some_and(|wanted| !wanted.contains(&read.host)) {
                    return;
                }
                let bin = ((read.time_ns - 1 - span.0).max(0) / bin_ns).cast_unsigned();
                match entry(&mut kept, &mut known, read) {
                    Some(backend) => backend.add(read, bin),
                    None => is_more = true,
                }
            })?;
        }
        let name = |number| hosts.iter().find(|(host, _)| *host == number).map(|(_, name)| name.clone());
        let of_vip = |(host, (vip, backends)): (i64, (String, HashMap<String, Backend>))| {
            let vip = (!vip.is_empty()).then_some(vip);
            backends.into_iter().map(move |(backend, all)| all.finish(name(host), vip.clone(), backend))
        };
        let vips = kept.into_iter().flat_map(|(host, vips)| vips.into_iter().map(move |vip| (host, vip)));
        let mut shown: Vec<_> = vips.flat_map(of_vip).collect();
        shown.sort_by_key(|backend| Reverse(backend.packets));
        shown.truncate(choice.most_flows);
        // Those of no VIP come last.
        let key = |backend: &PageBackend| {
            (backend.vip.is_none(), backend.host.clone(), backend.vip.clone(), backend.name.clone())
        };
        shown.sort_by_cached_key(key);
        Ok(PageBackends { shown, known, is_more })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

/// Returns the backend of a row; `None` if it is new and there are too many.
fn entry<'a>(kept: &'a mut Kept, known: &mut usize, read: &BackendRead<'_>) -> Option<&'a mut Backend> {
    let vip = read.vip.unwrap_or_default();
    // No name is copied for a backend that is known.
    let backends = kept.get(&read.host).and_then(|vips| vips.get(vip));
    if !backends.is_some_and(|backends| backends.contains_key(read.backend)) {
        if *known >= MOST_KEPT {
            return None;
        }
        *known += 1;
        let backend = Backend { state: read.state.to_owned(), ..Backend::default() };
        let vips = kept.entry(read.host).or_default();
        vips.entry(vip.to_owned()).or_default().insert(read.backend.to_owned(), backend);
    }
    kept.get_mut(&read.host)?.get_mut(vip)?.get_mut(read.backend)
}

impl Backend {
    /// Adds a row, which is later than those before.
    fn add(&mut self, read: &BackendRead<'_>, bin: u64) {
        if self.state != read.state {
            if self.changes.len() == MOST_CHANGES {
                self.changes.remove(0);
            }
            let (state, why) = (read.state.to_owned(), read.why.to_owned());
            self.changes.push(Change { time_ms: read.time_ns as f64 / 1e6, state, why });
            self.changes_known += 1;
        }
        for (own, now) in [(&mut self.address, read.address), (&mut self.state, read.state), (&mut self.why, read.why)]
        {
            if own != now {
                now.clone_into(own);
            }
        }
        (self.weight, self.share) = (read.weight, read.share);
        self.intervals += 1;
        self.active = self.active.saturating_add(read.active);
        self.pending = self.pending.max(read.pending);
        for (sum, one) in self.traffic.iter_mut().zip(read.traffic.unwrap_or_default()) {
            *sum = sum.saturating_add(one);
        }
        if let (Some(count), Some(mean_ns)) = (read.count, read.mean_ns) {
            self.whole.add(count, mean_ns, read.p99_ns);
            if self.times.last().is_none_or(|(last, _)| *last != bin) {
                self.times.push((bin, Latency::default()));
            }
            if let Some((_, last)) = self.times.last_mut() {
                last.add(count, mean_ns, read.p99_ns);
            }
        }
        match self.waits.last_mut() {
            Some([last, most]) if *last == bin => *most = read.pending.max(*most),
            _ => self.waits.push([bin, read.pending]),
        }
    }

    fn finish(self, host: Option<String>, vip: Option<String>, name: String) -> PageBackend {
        let [connections, packets, bytes] = self.traffic;
        let times = self.times.into_iter().filter_map(|(bin, latency)| {
            Some([bin, latency.count, latency.mean_ns()?, latency.p99_ns.unwrap_or_default()])
        });
        PageBackend {
            host,
            vip,
            name,
            address: self.address,
            state: self.state,
            why: self.why,
            weight: self.weight,
            share: self.share,
            active: self.active as f64 / self.intervals.max(1) as f64,
            pending: self.pending,
            connections,
            packets,
            bytes,
            count: self.whole.count,
            mean_ns: self.whole.mean_ns(),
            p99_ns: self.whole.p99_ns,
            changes: self.changes,
            changes_known: self.changes_known,
            times: times.collect(),
            waits: if self.pending > 0 { self.waits } else { Vec::new() },
        }
    }
}
