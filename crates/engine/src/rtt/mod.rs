//! Passive measurement of round-trip times.

mod config;
mod filter;
mod groups;
pub(crate) mod native;

pub use config::{Config, RateLimit};
pub use filter::{FilterError, FilterRule};
pub use groups::{Aggregate, Group, GroupKey, Groups, Prefix};
pub use native::{Counter, Counters, Tracker};
