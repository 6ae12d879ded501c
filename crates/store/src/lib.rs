//! Where a collector keeps what agents measured: `docs/method/store.md`.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod clickhouse;
mod error;
pub mod html;
mod read;
mod spool;
mod sqlite;

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, Leg, Segment},
};

pub use clickhouse::{Address, Login, Server};
pub use error::StoreError;
pub use read::{ClockRead, Place, Read, Reader, Span};
pub use spool::Waiting;
pub use sqlite::{Store, Writing, Written};

/// What a segment took in an interval, as one host saw it.
#[derive(Debug, Clone, Copy)]
pub struct IntervalRow<'a> {
    /// When it ended, in Unix time.
    pub time_ns: i64,
    /// How long it was.
    pub length_ns: u64,
    /// The host's name.
    pub host: &'a str,
    /// One direction of a connection; `None`: all.
    pub flow: Option<Ends>,
    /// Which segment.
    pub segment: Segment,
    /// Of bytes that were sent or came again, which are told apart.
    pub resent: bool,
    /// What it took.
    pub histogram: &'a Histogram,
    /// The hook where it begins; `None` where the kernel has none.
    pub hook_from: Option<&'a str>,
    /// The hook where it ends.
    pub hook_to: Option<&'a str>,
    /// The layer for want of which nothing is known of it.
    pub missing: Option<&'a str>,
}

/// What a leg took of the bytes of an interval that were seen on both hosts.
#[derive(Debug, Clone, Copy)]
pub struct PathRow<'a> {
    /// When the interval ended, in Unix time.
    pub time_ns: i64,
    /// How long it was.
    pub length_ns: u64,
    /// Who sent; `None` where there is no agent.
    pub tx_host: Option<&'a str>,
    /// Who received.
    pub rx_host: Option<&'a str>,
    /// One direction of a connection; `None`: all.
    pub flow: Option<Ends>,
    /// Which leg.
    pub leg: Leg,
    /// Of bytes that TCP sent more than once, which are told apart.
    pub resent: bool,
    /// How it is known.
    pub method: PathMethod,
    /// What it took.
    pub histogram: &'a Histogram,
    /// By how much the clocks may be wrong, at most; of legs between the hosts.
    pub bound_ns: Option<u64>,
    /// Values below 0 within the bound, taken as 0.
    pub clamped: u64,
    /// Bytes whose bound is greater than was asked for.
    pub doubtful: u64,
}

/// How the time between two hosts is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathMethod {
    /// From bytes that both hosts have seen.
    Matched,
    /// Half of the least round-trip time that one host's TCP has seen.
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

/// How a host's clock stood to the collector's.
#[derive(Debug, Clone, Copy)]
pub struct ClockRow<'a> {
    /// When, in Unix time.
    pub time_ns: i64,
    /// The host's name.
    pub host: &'a str,
    /// The host's CLOCK_MONOTONIC less the collector's.
    pub offset_ns: i64,
    /// By how much that may be wrong, at most.
    pub bound_ns: u64,
    /// By how many parts in 10^9 the host's is fast, if that is known.
    pub drift_ppb: Option<f64>,
    /// By how much that may be wrong, at most.
    pub drift_bound_ppb: Option<f64>,
    /// The least round trip of the exchanges.
    pub round_trip_ns: Option<u64>,
    /// How the exchanges were stamped.
    pub method: &'a str,
    /// The clock had jumped since the row before.
    pub stepped: bool,
}

/// How far a collector has come in matching what it has put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The kernel's boot_id: CLOCK_MONOTONIC begins anew with each boot.
    pub boot: String,
    /// The collector's time less CLOCK_MONOTONIC; its time is what passages are
    /// put aside in.
    pub offset_ns: i64,
    /// Bytes that had settled by then ...
    pub told_at_ns: u64,
    /// ... and were read before this, the end of an interval, are told.
    pub told_until_ns: u64,
}

#[cfg(test)]
mod tests;
