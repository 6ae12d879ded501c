//! What is written: one [`Record`] per sample, flow event, interval, summary or status.

use std::fmt;

use dwell_engine::{
    histogram::Histogram,
    layers::{
        ByteTrace, Counters as StackCounters, Direction, Ends, Layer, PathSegment, Segment,
        baseline::{Figure, SegmentComparison},
        join::Path,
    },
    measure::{FlowEvent, Sample},
    response,
    rtt::Counters,
};
use serde::Serialize;

use crate::{SocketEnd, Sockets, Summary};

pub use dwell_engine::rtt::{Group, GroupKey, Prefix};

macro_rules! records {
    ($($(#[doc = $doc:literal])* $kind:ident $fields:tt,)*) => {
        /// A record of any verb.
        #[derive(Clone, Copy)]
        pub enum Record<'a> {
            $($(#[doc = $doc])* $kind $fields,)*
        }

        /// The kind of a record, for formats that do not write all of them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl Record<'_> {
            /// Returns its kind.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Record::$kind { .. } => Kind::$kind,)*
                }
            }
        }
    };
}

records! {
    /// One round trip.
    Sample(&'a Sample),
    /// A change in the life of a flow.
    Flow(&'a FlowEvent),
    /// The groups of an interval of `dwell rtt`.
    Interval(&'a Interval<'a>),
    /// The distributions of a run of `dwell rtt`.
    Summary(&'a Summary),
    /// The counters of a run.
    Status(&'a Status),
    /// An epoch of a flow and its estimate.
    Response(&'a Response<'a>),
    /// An interval of `dwell stack`.
    Stack(&'a Stack<'a>),
    /// One byte that `dwell stack` stamped on `host`.
    ByteTrace {
        /// The name of the host.
        host: &'a str,
        /// The byte's times at each layer.
        trace: &'a ByteTrace,
    },
    /// The time of bytes from one host to another.
    Path(&'a PathTable<'a>),
    /// Segments of `dwell stack` compared with their baseline.
    Shift(&'a StackShift<'a>),
    /// An interval of `dwell run`.
    Sockets(&'a Sockets<'a>),
    /// The end of `dwell run`.
    SocketEnd(&'a SocketEnd<'a>),
}

/// A finished interval with the groups that had samples in it.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    /// Its end on the source's clock.
    pub end_ns: u64,
    /// Its length. The last interval of a run may be shorter than the others.
    pub length_ns: u64,
    /// Its groups, in the order in which they are written; the one without a key is written last, wherever it stands.
    pub groups: &'a [Group],
}

impl<'a> Interval<'a> {
    /// Iterates over the groups, the one without a key last.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = &'a Group> + use<'a> {
        let groups = self.groups;
        let keyed = groups.iter().filter(|group| group.key.is_some());
        keyed.chain(groups.iter().filter(|group| group.key.is_none()))
    }
}

/// An epoch of a flow and its estimate.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The flow and its epoch as the kernel reports them.
    pub record: &'a response::Record,
    /// The estimate, if there is one.
    pub response_ns: Option<u64>,
    /// The gap between batches, where the method knows it.
    pub ibg_ns: Option<u64>,
    /// The number of responses or batches behind the estimate.
    pub batches: u64,
    /// The method of the estimate.
    pub method: Option<&'a str>,
    /// Which latencies the estimate is the mean of: "all" or "causal".
    pub truth: Option<&'a str>,
    /// Confidence, from 0 to 1.
    pub confidence: f64,
    /// Why the estimate should not be believed.
    pub reason: Option<&'a str>,
    /// Whether the modes of the gaps are written too.
    pub show_modes: bool,
}

impl Response<'_> {
    /// Returns true if there is an estimate and no reason to disbelieve it.
    pub fn is_valid(&self) -> bool {
        self.response_ns.is_some() && self.reason.is_none()
    }

    /// The end of the epoch on the source's clock.
    pub(crate) fn end_ns(&self) -> u64 {
        let epoch = &self.record.epoch;
        epoch.start_ns.wrapping_add(epoch.epoch_ns)
    }

    /// Iterates over the modes of the gaps in the epoch.
    pub(crate) fn modes(&self) -> impl Iterator<Item = Mode> {
        let epoch = &self.record.epoch;
        epoch.mode.iter().take(usize::from(epoch.modes)).map(|mode| Mode {
            min_ns: mode.min_ns,
            max_ns: mode.max_ns,
            mean_ns: mode.sum_ns / u64::from(mode.count.max(1)),
            count: mode.count,
            marked: mode.marked != 0,
        })
    }
}

/// A mode of the distribution of gaps between packets.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Mode {
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) mean_ns: u64,
    pub(crate) count: u32,
    /// The gaps followed small packets.
    pub(crate) marked: bool,
}

/// A finished interval of `dwell stack`.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// Its end on the source's clock.
    pub end_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// The name of this host.
    pub host: &'a str,
    /// The sampling grid: one byte in `sample_bytes` is stamped.
    pub sample_bytes: u32,
    /// One row per segment, in the order in which bytes pass them.
    pub rows: &'a [StackRow],
    /// Rows of bytes that TCP sent or received again; empty where those are not counted.
    pub again: &'a [StackRow],
    /// Rows of each flow, one direction of a connection; empty where flows are not kept apart.
    pub flows: &'a [(Ends, Vec<StackRow>)],
    /// Hops between devices, those of one origin in the order of the path; empty where devices are not watched.
    pub hops: &'a [StackHop],
    /// Bytes that are in no segment, since the start of the run.
    pub counters: &'a StackCounters,
}

/// The time of bytes between one device of the host and the next, in an interval.
#[derive(Debug, Clone)]
pub struct StackHop {
    /// The point where the bytes were first seen.
    pub origin: StackPlace,
    /// The start of the hop.
    pub from: StackPlace,
    /// The end of the hop.
    pub to: StackPlace,
    /// The distribution of its times.
    pub histogram: Histogram,
}

/// A point at a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackPlace {
    /// The device's name.
    pub device: String,
    /// The device's network namespace: its name, one of its processes, or its number. `None` is the namespace that the
    /// run watches.
    pub namespace: Option<String>,
    /// "queue", "out" or "in".
    pub point: &'static str,
}

impl fmt::Display for StackPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "@{namespace}")?;
        }
        write!(f, " {}", self.point)
    }
}

/// The time that bytes spent in a segment of the stack in an interval.
#[derive(Debug, Clone)]
pub struct StackRow {
    /// The segment.
    pub segment: Segment,
    /// The distribution of its times.
    pub histogram: Histogram,
    /// The hook at its start; `None` where the kernel has none.
    pub hook_from: Option<String>,
    /// The hook at its end.
    pub hook_to: Option<String>,
    /// The layer without a hook that makes this segment unmeasurable.
    pub missing: Option<Layer>,
}

impl StackRow {
    /// Returns the segment's share of the time of its side, from 0 to 1, where `rows` are all segments of the same
    /// bytes. `None` where no byte went all the way, or where the segment cannot be measured.
    pub fn share(&self, rows: &[StackRow]) -> Option<f64> {
        let total = rows.iter().find(|other| other.segment == self.segment.total())?;
        let whole = total.histogram.sum_ns();
        (self.missing.is_none() && whole > 0).then(|| self.histogram.sum_ns() as f64 / whole as f64)
    }
}

/// Counts the bytes that went through all of a side, where `rows` are all segments of the same bytes.
pub(crate) fn complete_bytes(rows: &[StackRow], direction: Direction) -> u64 {
    let total = rows.iter().filter(|row| row.segment == row.segment.total() && row.segment.direction() == direction);
    total.map(|row| row.histogram.count()).sum()
}

/// Returns the time at which a byte left the last layer.
pub(crate) fn last_stamp_ns(trace: &ByteTrace) -> Option<u64> {
    let last = trace.stamps.iter().flatten().next_back();
    last.map(|ns| ns.get())
}

/// The time of bytes from one host to another in an interval.
#[derive(Debug, Clone, Copy)]
pub struct PathTable<'a> {
    /// Its end on the source's clock.
    pub end_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// The host that sent.
    pub tx_host: &'a str,
    /// The host that received.
    pub rx_host: &'a str,
    /// One direction of a connection; `None` stands for all flows together.
    pub flow: Option<Ends>,
    /// True for bytes that TCP sent more than once, which are kept apart.
    pub resent: bool,
    /// The times on each segment of the path.
    pub path: &'a Path,
}

impl PathTable<'_> {
    /// Returns the share of a path segment in the time from end to end, from 0 to 1.
    pub(crate) fn share(&self, leg: PathSegment) -> Option<f64> {
        let whole = self.path.segment(PathSegment::EndToEnd).sum_ns();
        (whole > 0).then(|| self.path.segment(leg).sum_ns() as f64 / whole as f64)
    }
}

/// Segments of `dwell stack` compared with their baseline.
#[derive(Debug, Clone, Copy)]
pub struct StackShift<'a> {
    /// The time of the comparison on the source's clock.
    pub end_ns: u64,
    /// The name of this host.
    pub host: &'a str,
    /// One comparison per segment, in the order in which bytes pass them.
    pub compared: &'a [SegmentComparison],
}

/// The name of a compared figure in outputs.
pub(crate) fn figure_name(figure: Figure) -> &'static str {
    match figure {
        Figure::Median => "p50",
        Figure::P99 => "p99",
        Figure::Mean => "mean",
    }
}

/// The counters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// The time on the source's clock; `None` where it is unknown, as at the end of a capture without packets.
    pub time_ns: Option<u64>,
    /// True if the run is over and these are its final counters.
    pub last: bool,
    /// Totals since the start of the run.
    pub counters: Counters,
}

/// The figures of a distribution, in nanoseconds. Count, minimum, maximum and mean (rounded down) are exact; quantiles
/// are within 0.8 % of a recorded value, and beyond 68.7 s only known to be at least that. `None` where nothing was
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// The number of samples.
    pub count: u64,
    /// The minimum.
    pub min_ns: Option<u64>,
    /// The median.
    pub p50_ns: Option<u64>,
    /// The 90th percentile.
    pub p90_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The maximum.
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
