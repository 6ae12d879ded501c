//! Passive round-trip times.

mod config;
mod filter;
pub(crate) mod native;

pub use config::{Config, RateLimit};
pub use filter::{FilterError, FilterRule};
pub use native::{Counter, Counters, Tracker};
