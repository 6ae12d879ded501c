//! Which backend gets how much: Maglev tables, and the policies that set weights.
//!
//! Definitions and formulas are in `docs/method/steering.md`. Time is in
//! intervals, whose length the caller chooses: a [`Policy`] is told what was
//! [`Seen`] of each backend in one, and sets the [`Share`]s for the next.

mod heavy_share;
mod intervals;
mod latency;
pub mod maglev;
mod range;
mod share;
pub mod waiting;
pub mod zero_rtt;

pub use heavy_share::{HeavyShare, HeavyWindow};
pub use intervals::{Backend, Connection, Intervals, IntervalsConfig, Responses};
pub use latency::{LatencyConfig, LatencySteering};
pub use range::{Constant, OutOfRange};
pub use share::{Latency, Maglev, Manual, Policy, Seen, Share, Why};
