//! Quantities with their units.

use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A span of time in nanoseconds, or a point in time counted from an origin that the context names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span that can be represented, 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Converts from microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// Converts from milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Converts from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Returns the value in milliseconds, for people.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

/// Returns a duration in nanoseconds, as the engine counts; the greatest number for one of more than 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(nanos(duration))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns} ns"),
            ns if ns < 1_000_000 => write!(f, "{:.1} us", ns as f64 / 1e3),
            ns if ns < 1_000_000_000 => write!(f, "{:.3} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.3} s", ns as f64 / 1e9),
        }
    }
}

/// A number of bytes of IP packets, without link headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);
