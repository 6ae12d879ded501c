//! The store of what is measured, in SQLite or, of a collector, ClickHouse, and the report of it: `docs/method/store.md`.

#![deny(clippy::print_stderr, reason = "only the program writes to stderr")]

mod backend;
mod clickhouse;
mod columns;
mod error;
mod gray;
mod hosts;
pub mod html;
mod latency;
mod read;
mod read_backend;
mod read_gray;
mod read_last;
mod read_latency;
mod recorder;
mod retain;
mod scan;
mod spool;
mod sqlite;
mod tables;
mod writing;

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, FlowJoin, PathSegment, Segment, SegmentHooks},
};

pub use backend::BackendRow;
pub use clickhouse::{Address, Login, Patience, Server, Wanted};
pub use error::{Refusal, StoreError};
pub use gray::GrayRow;
pub use read::{Place, Reader, Silence, Span, StoredClock, StoredLoss, StoredSegment};
pub use read_last::{LastBackend, LastKind, LastLatency};
pub use recorder::{Recorder, Recording};
pub use retain::{Origin, Retain, Retention};
pub use spool::{RefusedRow, SpoolSize, Waiting};
pub use sqlite::Store;
pub use writing::{BatchState, Unfinished, Writing, Written};

/// The time of bytes in a segment of one host in an interval.
#[derive(Debug, Clone, Copy)]
pub struct IntervalRow<'a> {
    /// The end of the interval in Unix time.
    pub time_ns: i64,
    /// Whether the agent reported a time that cannot be true, and `time_ns` is the nearest one that can.
    pub time_clamped: bool,
    /// The length of the interval.
    pub length_ns: u64,
    /// The host's name.
    pub host: &'a str,
    /// One direction of a connection; `None` stands for all flows together.
    pub flow: Option<Ends>,
    /// The network namespace of the flow's socket; `None` for the one that the agent or run is in.
    pub namespace: Option<&'a str>,
    /// The segment.
    pub segment: Segment,
    /// True for bytes that were sent or received again, which are kept apart.
    pub resent: bool,
    /// The distribution of the times.
    pub histogram: &'a Histogram,
    /// The hooks at the segment's ends; `None` for a single flow.
    pub hooks: Option<&'a SegmentHooks>,
}

/// The time on a path segment, of the bytes of an interval that were seen on both hosts.
#[derive(Debug, Clone, Copy)]
pub struct PathRow<'a> {
    /// The end of the interval in Unix time.
    pub time_ns: i64,
    /// The length of the interval.
    pub length_ns: u64,
    /// The host that sent; `None` where there is no agent.
    pub tx_host: Option<&'a str>,
    /// The host that received.
    pub rx_host: Option<&'a str>,
    /// One direction of a connection, as the sender sees it if it has an agent; `None` stands for all flows together.
    pub flow: Option<Ends>,
    /// The same as the receiver sees it, if that is something else.
    pub rx_flow: Option<Ends>,
    /// The path segment.
    pub segment: PathSegment,
    /// True for bytes that TCP sent more than once, which are kept apart.
    pub resent: bool,
    /// How the time is known.
    pub method: PathMethod,
    /// The distribution of the times.
    pub histogram: &'a Histogram,
    /// Bound on the error of the clocks; known for path segments between the hosts.
    pub bound_ns: Option<u64>,
    /// Values below 0 but within the bound, counted as 0.
    pub clamped: u64,
    /// Bytes whose bound exceeds the one that was asked for.
    pub doubtful: u64,
}

impl PathRow<'_> {
    /// Returns how the flow of both hosts was found to be one, if it was.
    fn joined(&self) -> Option<FlowJoin> {
        let is_joined = self.method == PathMethod::Matched && self.flow.is_some();
        is_joined.then(|| FlowJoin::of(self.rx_flow))
    }
}

/// How the time between two hosts is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathMethod {
    /// Measured with bytes that both hosts have seen.
    Matched,
    /// Half of the minimum round-trip time of one host's TCP.
    Estimated,
}

impl PathMethod {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PathMethod::Matched => "matched",
            PathMethod::Estimated => "estimated",
        }
    }
}

/// The state of a host's clock relative to the collector's.
#[derive(Debug, Clone, Copy)]
pub struct ClockRow<'a> {
    /// The time in Unix time.
    pub time_ns: i64,
    /// The host's name.
    pub host: &'a str,
    /// The host's CLOCK_MONOTONIC minus the collector's.
    pub offset_ns: i64,
    /// Bound on the error of the offset.
    pub bound_ns: u64,
    /// How fast the host's clock runs, in parts per billion, if that is known.
    pub drift_ppb: Option<f64>,
    /// Bound on the error of the drift.
    pub drift_bound_ppb: Option<f64>,
    /// The minimum round trip of the exchanges.
    pub round_trip_ns: Option<u64>,
    /// How the exchanges were timestamped.
    pub method: &'a str,
    /// Whether the clock has jumped since the previous row.
    pub stepped: bool,
}

/// Batches of an agent's run that are not stored.
#[derive(Debug, Clone, Copy)]
pub struct LostRow<'a> {
    /// When that was noticed, in Unix time.
    pub time_ns: i64,
    /// The host's name.
    pub host: &'a str,
    /// The run.
    pub run: &'a [u8],
    /// The numbers of the first and of the last batch; the last one of a run that was killed is not known.
    pub batches: (u64, Option<u64>),
    /// The time of their measurements, as far as it is known.
    pub since_ns: Option<i64>,
    /// The end of that time.
    pub until_ns: Option<i64>,
    /// Why they are lost.
    pub why: Loss,
}

/// Why batches are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loss {
    /// The agent's buffer was full.
    BufferFull,
    /// The agent made a batch that was too long to be sent.
    TooLong,
    /// A collector rejected the batch as invalid.
    Rejected,
    /// The run ended without taking leave: it was killed, or cut off.
    Killed,
    /// The numbers have a gap that nobody explained.
    Gap,
    /// Another collector has confirmed them, or this one with another store.
    Elsewhere,
}

impl Loss {
    /// All reasons.
    pub const ALL: [Loss; 6] =
        [Loss::BufferFull, Loss::TooLong, Loss::Rejected, Loss::Killed, Loss::Gap, Loss::Elsewhere];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Loss::BufferFull => "buffer-full",
            Loss::TooLong => "too-long",
            Loss::Rejected => "rejected",
            Loss::Killed => "killed",
            Loss::Gap => "gap",
            Loss::Elsewhere => "elsewhere",
        }
    }
}

/// How far a collector has come in matching pending bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The kernel's boot_id: CLOCK_MONOTONIC restarts with each boot.
    pub boot: String,
    /// The collector's time minus CLOCK_MONOTONIC. Pending bytes are stamped in the collector's time.
    pub offset_ns: i64,
    /// Bytes that had settled by this time and were read before `told_until_ns` are written.
    pub told_at_ns: u64,
    /// The end of the last interval that is written.
    pub told_until_ns: u64,
}

#[cfg(test)]
mod tests;
