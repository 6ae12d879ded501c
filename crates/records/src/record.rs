//! Records that the engine does not make: of an interval, and of a run.

use dwell_engine::{
    histogram::Histogram,
    layers::{Counters as StackCounters, Ends, Layer, Segment, baseline::Compared, join::Path},
    response::Record,
    rtt::Counters,
};
use serde::Serialize;

pub use dwell_engine::rtt::{Group, GroupKey, Prefix};

/// An interval that is over, with the groups that had samples in it.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    /// When it ended, on the source's clock.
    pub end_ns: u64,
    /// How long it was. The last one of a run may be shorter than the others.
    pub length_ns: u64,
    /// Its groups, in the order in which they are written; the one without a
    /// key goes last, wherever it stands.
    pub groups: &'a [Group],
}

impl<'a> Interval<'a> {
    /// Its groups, the one without a key last.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = &'a Group> + use<'a> {
        let groups = self.groups;
        let keyed = groups.iter().filter(|group| group.key.is_some());
        keyed.chain(groups.iter().filter(|group| group.key.is_none()))
    }
}

/// An epoch of a flow, and what was made of it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// What was seen.
    pub record: &'a Record,
    /// The estimate, if there is one.
    pub response_ns: Option<u64>,
    /// The gap between batches, where the method knows one.
    pub ibg_ns: Option<u64>,
    /// Responses or batches that the estimate is made of.
    pub batches: u64,
    /// How it was made.
    pub method: Option<&'a str>,
    /// Which latencies it is the mean of: "all" or "causal".
    pub truth: Option<&'a str>,
    /// 0 to 1.
    pub confidence: f64,
    /// Why it should not be believed.
    pub reason: Option<&'a str>,
    /// The modes that it came from are wanted too.
    pub show_modes: bool,
}

impl Response<'_> {
    /// True if there is an estimate, and nothing speaks against it.
    pub fn is_valid(&self) -> bool {
        self.response_ns.is_some() && self.reason.is_none()
    }
}

/// An interval of `dwell stack` that is over.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// When it ended, on the source's clock.
    pub end_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// The name of this host.
    pub host: &'a str,
    /// One byte in so many was stamped.
    pub sample_bytes: u32,
    /// A segment each, in the order of a byte's way.
    pub rows: &'a [StackRow],
    /// The same of bytes that TCP sent again, or that came in again; empty where they
    /// are not counted.
    pub again: &'a [StackRow],
    /// The same of each flow, one direction of a connection; empty where they are
    /// not kept apart.
    pub flows: &'a [(Ends, Vec<StackRow>)],
    /// From device to device, an origin's hops in the order of the way; empty where
    /// devices are not watched.
    pub hops: &'a [StackHop],
    /// What is in no segment, since the start of the run.
    pub counters: &'a StackCounters,
}

/// What bytes took from one device of the host to the next, in an interval.
#[derive(Debug, Clone)]
pub struct StackHop {
    /// Where they were seen first.
    pub origin: StackPlace,
    /// Where the hop begins.
    pub from: StackPlace,
    /// Where it ends.
    pub to: StackPlace,
    /// What it took.
    pub histogram: Histogram,
}

/// A point at a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackPlace {
    /// The device's name.
    pub device: String,
    /// Its network namespace, by its name, one of its processes, or its number; `None` if
    /// it is the one that the run looks at.
    pub namespace: Option<String>,
    /// queue, out or in.
    pub point: &'static str,
}

/// What a segment of the stack took in an interval.
#[derive(Debug, Clone)]
pub struct StackRow {
    /// Which segment.
    pub segment: Segment,
    /// What it took.
    pub histogram: Histogram,
    /// The hook where it begins; `None` where the kernel has none.
    pub hook_from: Option<String>,
    /// The hook where it ends.
    pub hook_to: Option<String>,
    /// The layer for want of which nothing is known of it.
    pub missing: Option<Layer>,
}

impl StackRow {
    /// What part of the time of its side it takes, from 0 to 1, where `rows` are all
    /// segments of the same bytes. `None` where no byte went all the way, or where
    /// it is not known.
    pub fn share(&self, rows: &[StackRow]) -> Option<f64> {
        let total = rows.iter().find(|other| other.segment == self.segment.total())?;
        let whole = total.histogram.sum_ns();
        (self.missing.is_none() && whole > 0).then(|| self.histogram.sum_ns() as f64 / whole as f64)
    }
}

/// What bytes took from one host to another in an interval.
#[derive(Debug, Clone, Copy)]
pub struct PathTable<'a> {
    /// When it ended, on the source's clock.
    pub end_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// Who sent.
    pub tx_host: &'a str,
    /// Who received.
    pub rx_host: &'a str,
    /// One direction of a connection; `None`: all.
    pub flow: Option<Ends>,
    /// Of bytes that TCP sent more than once, which are told apart.
    pub resent: bool,
    /// What the legs took.
    pub path: &'a Path,
}

/// Segments of `dwell stack` beside their baseline.
#[derive(Debug, Clone, Copy)]
pub struct StackShift<'a> {
    /// When, on the source's clock.
    pub end_ns: u64,
    /// The name of this host.
    pub host: &'a str,
    /// In the order of a byte's way.
    pub compared: &'a [Compared],
}

/// What a run has counted.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// When, on the source's clock; `None` where it is not known, as at the
    /// end of a capture without packets.
    pub time_ns: Option<u64>,
    /// The run is over, and no more will be counted.
    pub last: bool,
    /// Totals since the start of the run.
    pub counters: Counters,
}

/// The figures of a distribution, in nanoseconds. Count, least, greatest and
/// mean (rounded down) are exact; quantiles are within 0.8 % of a value that
/// was recorded, and beyond 68.7 s only known to be at least that.
/// `None` where nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// How many samples.
    pub count: u64,
    /// The least.
    pub min_ns: Option<u64>,
    /// The median.
    pub p50_ns: Option<u64>,
    /// Nine in ten are not greater.
    pub p90_ns: Option<u64>,
    /// 99 in a hundred are not greater.
    pub p99_ns: Option<u64>,
    /// The greatest.
    pub max_ns: Option<u64>,
    /// The arithmetic mean.
    pub mean_ns: Option<u64>,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Distribution {
        Distribution {
            count: histogram.count(),
            min_ns: histogram.min_ns(),
            p50_ns: histogram.quantile_ns(0.5),
            p90_ns: histogram.quantile_ns(0.9),
            p99_ns: histogram.quantile_ns(0.99),
            max_ns: histogram.max_ns(),
            mean_ns: histogram.mean_ns(),
        }
    }
}
