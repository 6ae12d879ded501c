//! What is written: one [`Record`] per sample, flow event, interval, summary or status.

use std::{borrow::Cow, fmt, net::SocketAddr};

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Direction, Ends, PathSegment, Segment, SegmentFigures, SegmentHooks, join::Path},
    measure::{FlowEvent, Method, Sample},
    response,
    rtt::{Counter, Counters, Figures},
    why,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GrayFailure, ResponseSummary, Shift, SocketEnd, Sockets, Summary, Top};

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
    /// The responses of a run.
    ResponseSummary(&'a ResponseSummary<'a>),
    /// An interval of `dwell stack`.
    Stack(&'a Stack<'a>),
    /// One byte that `dwell stack` stamped at each layer.
    ByteTrace(&'a StackByte<'a>),
    /// The time of bytes from one host to another.
    Path(&'a PathTable<'a>),
    /// An agent that comes to a collector, or leaves it.
    Agent(&'a AgentEvent<'a>),
    /// A gray failure that begins or ends.
    Gray(&'a GrayFailure<'a>),
    /// Latencies compared with their baseline.
    Shift(&'a Shift<'a>),
    /// An interval of `dwell run`.
    Sockets(&'a Sockets<'a>),
    /// The end of `dwell run`.
    SocketEnd(&'a SocketEnd<'a>),
    /// The rows of `dwell top`.
    Top(&'a Top<'a>),
    /// The answer of `dwell why`.
    Why(&'a Why<'a>),
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
    pub method: Option<&'static str>,
    /// The 50th, 90th, 95th and 99th percentile of single answers, where the method knows them.
    pub percentiles: Option<[response::Quantile; 4]>,
    /// Which latencies the estimate is the mean of: "all" or "causal".
    pub truth: Option<&'a str>,
    /// Confidence, from 0 to 1.
    pub confidence: f64,
    /// Why the estimate should not be believed.
    pub reason: Option<&'static str>,
    /// Whether the modes of the gaps are written too.
    pub show_modes: bool,
}

impl Response<'_> {
    /// Returns true if there is an estimate and no reason to disbelieve it.
    pub fn is_valid(&self) -> bool {
        self.response_ns.is_some() && self.reason.is_none()
    }

    /// The end of the epoch on the source's clock.
    pub fn end_ns(&self) -> u64 {
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
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "mode")]
pub(crate) struct Mode {
    /// The shortest gap.
    pub(crate) min_ns: u64,
    /// The longest gap.
    pub(crate) max_ns: u64,
    /// The mean gap.
    pub(crate) mean_ns: u64,
    /// The number of gaps.
    pub(crate) count: u32,
    /// Whether the gaps followed small packets.
    pub(crate) marked: bool,
}

/// A finished interval of `dwell stack`.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// Its end on the source's clock.
    pub end_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// The sampling grid: one byte in `sample_bytes` is stamped.
    pub sample_bytes: u32,
    /// The figures of the segments, in the order in which bytes pass them.
    pub segments: &'a [SegmentFigures],
    /// The figures of bytes that TCP sent or received again; empty where those are not counted.
    pub again: &'a [SegmentFigures],
    /// The figures of each flow, one direction of a connection; empty where flows are not kept apart.
    pub flows: &'a [StackFlow<'a>],
    /// The number of other flows, which are not reported.
    pub flows_cut: usize,
    /// The hooks at the ends of each segment, in the order of [`Segment::ALL`].
    pub hooks: &'a [SegmentHooks],
    /// Hops between devices, those of one origin in the order of the path; empty where devices are not watched.
    pub hops: &'a [StackHop],
}

/// The figures of a flow in an interval of `dwell stack`.
#[derive(Debug, Clone)]
pub struct StackFlow<'a> {
    /// The flow.
    pub ends: Ends,
    /// The network namespace of its socket, as for [`StackPlace::namespace`].
    pub namespace: Option<Cow<'a, str>>,
    /// The figures of its segments.
    pub segments: &'a [SegmentFigures],
}

/// One byte that `dwell stack` stamped at each layer.
#[derive(Debug, Clone, Copy)]
pub struct StackByte<'a> {
    /// The times at the layers.
    pub trace: &'a ByteTrace,
    /// The network namespace of its flow's socket, as for [`StackPlace::namespace`].
    pub namespace: Option<&'a str>,
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
    /// The device's network namespace: its name, one of its processes, or its number. `None` is the namespace that
    /// dwell runs in.
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

impl Stack<'_> {
    /// Returns the hooks at the ends of a segment.
    pub(crate) fn hooks_of(&self, segment: Segment) -> &SegmentHooks {
        &self.hooks[segment as usize]
    }

    /// Returns a segment's share of the time of its side, from 0 to 1, where `all` are the figures of all segments over
    /// the same bytes. `None` where no byte went all the way, or where the segment cannot be measured.
    pub(crate) fn share(&self, figures: &SegmentFigures, all: &[SegmentFigures]) -> Option<f64> {
        let total = all.iter().find(|other| other.segment == figures.segment.total())?;
        let whole = total.histogram.sum_ns();
        let is_measured = self.hooks_of(figures.segment).missing.is_none();
        (is_measured && whole > 0).then(|| figures.histogram.sum_ns() as f64 / whole as f64)
    }
}

/// Counts the bytes that went through all of a side, where `all` are the figures of all segments over the same bytes.
pub fn complete_bytes(all: &[SegmentFigures], direction: Direction) -> u64 {
    let total = all.iter().filter(|one| one.segment == one.segment.total() && one.segment.direction() == direction);
    total.map(|one| one.histogram.count()).sum()
}

/// Returns the time at which a byte left the last layer.
pub(crate) fn last_stamp_ns(trace: &ByteTrace) -> Option<u64> {
    let last = trace.stamps.iter().flatten().next_back();
    last.map(|ns| ns.get())
}

/// An agent that comes to a collector, or leaves it.
#[derive(Debug, Clone, Copy)]
pub struct AgentEvent<'a> {
    /// When that was, on the source's clock.
    pub time_ns: u64,
    /// The name of the agent.
    pub agent: &'a str,
    /// Where it connected from.
    pub address: SocketAddr,
    /// Whether it brings what an earlier run has left, before it comes as itself.
    pub is_past: bool,
    /// Why it left; `None` if it comes.
    pub left: Option<&'a str>,
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
    /// The same as the receiver sees it, if addresses are translated between the hosts.
    pub rx_flow: Option<Ends>,
    /// True for bytes that TCP sent more than once, which are kept apart.
    pub resent: bool,
    /// The times on each segment of the path.
    pub path: &'a Path,
}

impl PathTable<'_> {
    /// Returns the share of a path segment in the time from end to end, from 0 to 1.
    pub(crate) fn share(&self, segment: PathSegment) -> Option<f64> {
        let whole = self.path.segment(PathSegment::EndToEnd).sum_ns();
        (whole > 0).then(|| self.path.segment(segment).sum_ns() as f64 / whole as f64)
    }
}

/// Why a target is slow.
#[derive(Debug, Clone, Copy)]
pub struct Why<'a> {
    /// The end of the look on the source's clock.
    pub end_ns: u64,
    /// What was measured.
    pub evidence: &'a why::Evidence,
    /// What follows from it.
    pub verdict: &'a why::Verdict,
    /// What dwell itself used.
    pub cost: Cost,
}

/// What a run lost and cost.
#[derive(Debug, Clone)]
pub struct Status {
    /// The verb.
    pub verb: Verb,
    /// The time on the source's clock; `None` where it is unknown, as at the end of a capture without packets.
    pub time_ns: Option<u64>,
    /// True if the run is over and these are its final figures.
    pub last: bool,
    /// The number of results that are missing because dwell could not keep up.
    pub lost: u64,
    /// What dwell itself used.
    pub cost: Cost,
    /// Totals by name since the start of the run.
    pub counters: Vec<(Cow<'static, str>, u64)>,
    /// What became of the conditions that the run was given; `None` without any, and before the end of the run.
    pub verdict: Option<Verdict>,
}

impl Status {
    /// Creates the status of a verb that watches packets. Its counters know how many results were lost.
    pub fn of_packets(verb: Verb, time_ns: Option<u64>, last: bool, counters: &Counters, cost: Cost) -> Status {
        let named = Counter::ALL.into_iter().map(|counter| (Cow::Borrowed(counter.name()), counters.get(counter)));
        let lost = counters.get(Counter::EventsLost);
        let cost = cost.over(counters.get(Counter::Packets));
        Status { verb, time_ns, last, lost, cost, counters: named.collect(), verdict: None }
    }
}

/// Whether the latencies of a run were as they must be, with `--fail-if`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "verdict")]
pub struct Verdict {
    /// Whether the run has failed: a condition holds, or one cannot be judged because there was no sample.
    pub failed: bool,
    /// The conditions, each with the figure that it was compared with.
    pub conditions: Vec<ConditionOutcome>,
}

/// A condition of `--fail-if` and the figure that it was compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "condition")]
pub struct ConditionOutcome {
    /// The condition, as it was given.
    pub condition: String,
    /// The method, segment, buffer or backend that the figure is of. Null for all methods together.
    pub of: Option<String>,
    /// The number of samples.
    pub count: u64,
    /// The figure. Null where it is the count, and without samples.
    pub value_ns: Option<u64>,
    /// Whether the condition holds. Null without samples.
    pub holds: Option<bool>,
}

/// The verbs that report a [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `dwell rtt`.
    Rtt,
    /// `dwell response`.
    Response,
    /// `dwell stack`.
    Stack,
    /// `dwell run`.
    Run,
    /// `dwell collect`.
    Collect,
    /// `dwell lb`.
    Lb,
    /// `dwell top`.
    Top,
    /// `dwell agent`.
    Agent,
    /// `dwell lb decap`.
    Decap,
}

/// The processor time that dwell used since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "cost")]
pub struct Cost {
    /// Processor time of the process, in user and kernel mode.
    pub cpu_ns: Option<u64>,
    /// Processor time of its BPF programs. Null unless the sysctl `kernel.bpf_stats_enabled` is set.
    pub bpf_ns: Option<u64>,
    /// How often they ran. Null unless the sysctl `kernel.bpf_stats_enabled` is set.
    pub bpf_runs: Option<u64>,
    /// `cpu_ns` per packet that passed. Null where the verb counts no packets, and before the first.
    pub cpu_ns_per_packet: Option<f64>,
    /// `bpf_ns` per packet that passed; too little if the sysctl was set only while the verb ran. Null where the verb counts no
    /// packets, and before the first.
    pub bpf_ns_per_packet: Option<f64>,
}

impl Cost {
    /// Divides by the packets that passed.
    #[must_use]
    pub fn over(self, packets: u64) -> Cost {
        let each =
            |ns: Option<u64>| ns.filter(|_| packets > 0).map(|ns| (ns as f64 / packets as f64 * 10.0).round() / 10.0);
        Cost { cpu_ns_per_packet: each(self.cpu_ns), bpf_ns_per_packet: each(self.bpf_ns), ..self }
    }
}

/// The figures of a distribution, in nanoseconds. Count, minimum, maximum and mean (rounded down) are exact; quantiles
/// are within 0.8 % of a recorded value, and beyond 68.7 s only known to be at least that. `None` where nothing was
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What samples say of the path besides round trips. Counts that the method cannot give are unknown.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct PathObject {
    /// The mean of what the round trips were longer than the base of their flow.
    pub queue_mean_ns: Option<u64>,
    /// The most that a round trip was longer than the base of its flow.
    pub queue_max_ns: Option<u64>,
    /// TCP segments with data to the side that answered.
    pub data_segments: Option<u64>,
    /// Segments of `data_segments` that had passed before.
    pub retransmitted: Option<u64>,
    /// Packets from the side that answered.
    pub packets_back: Option<u64>,
    /// TCP segments of `packets_back` that filled a hole.
    pub late: Option<u64>,
    /// Packets of `packets_back` that carried ECN's congestion mark (CE).
    pub ce: Option<u64>,
}

impl PathObject {
    /// Creates the object from the figures of samples of one method; of any methods if it is `None`.
    pub fn new(method: Option<Method>, figures: &Figures) -> PathObject {
        let has_samples = figures.histogram.count() > 0;
        let is_tcp = method.is_none_or(|method| matches!(method, Method::TcpTimestamp | Method::TcpSeq));
        let tcp = |count| (has_samples && is_tcp).then_some(count);
        // The packets of a spin bit are with the samples of its two halves.
        let any = |count| (has_samples && (figures.path.received > 0 || is_tcp)).then_some(count);
        PathObject {
            queue_mean_ns: figures.queue_mean_ns(),
            queue_max_ns: has_samples.then_some(figures.queue_max_ns),
            data_segments: tcp(figures.path.sent),
            retransmitted: tcp(figures.path.retransmitted),
            packets_back: any(figures.path.received),
            late: tcp(figures.path.late),
            ce: any(figures.path.ce),
        }
    }
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
