//! Weights of backends: Maglev tables, and the policies that set weights.
//!
//! Definitions and formulas are in `docs/method/steering.md`. Time passes in intervals, whose length the caller
//! chooses: a [`Policy`] receives the [`BackendStats`] of an interval, and sets the [`Share`]s for the next.

mod distribution;
mod heavy_share;
mod intervals;
mod latency;
pub mod maglev;
mod measured;
mod native;
mod networks;
mod pending;
mod range;
mod share;
mod strays;
pub mod waiting;
pub mod zero_rtt;

pub use heavy_share::{HeavyShare, HeavyWindow};
pub use intervals::{BackendState, Connection, Intervals, IntervalsConfig, Responses};
pub use latency::{LatencyConfig, LatencySteering};
pub use measured::Measured;
pub use pending::Pending;
pub use range::{Constant, Kind, OutOfRange};
pub use share::{BackendStats, Latency, Maglev, Manual, Policy, Share, ShareReason, draw, least_crowded};
