//! Passive measurement of round-trip times.

mod config;
mod figures;
mod groups;
pub(crate) mod native;
mod prefixes;

pub use config::{Config, RateLimit};
pub use figures::Figures;
pub use groups::{Aggregate, Group, GroupKey, Groups, Prefix};
pub use native::{Counter, Counters, Tracker};
pub use prefixes::{Prefixes, PrefixesError};
