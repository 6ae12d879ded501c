//! The control plane's sign of life in the data plane.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::abi;

/// What the data plane does for new connections while nobody renews it. Known connections stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenStale {
    /// It keeps the last weights.
    #[default]
    Keep,
    /// It gives the same weight to all backends that were usable.
    Equal,
}

/// When the control plane last renewed the data plane, and from when on that counts as long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// The time in ns of CLOCK_MONOTONIC.
    pub renewed_ns: u64,
    /// The age above which it is stale, in whole seconds.
    pub stale_after: Duration,
    /// What the data plane does then.
    pub when_stale: WhenStale,
}

impl Heartbeat {
    /// Converts to the core's format. `equal` is the distance in the array of tables from a VIP's table to its table of
    /// equal weights.
    pub fn to_core(&self, equal: u32) -> abi::dwell_heartbeat {
        abi::dwell_heartbeat {
            renewed_ns: self.renewed_ns,
            stale_s: u32::try_from(self.stale_after.as_secs()).unwrap_or(u32::MAX / 2),
            equal: if self.when_stale == WhenStale::Equal { equal } else { 0 },
        }
    }

    /// Converts from the core's format. `None` if the data plane was never renewed.
    pub fn from_core(beat: &abi::dwell_heartbeat) -> Option<Heartbeat> {
        (beat.renewed_ns != 0).then(|| Heartbeat {
            renewed_ns: beat.renewed_ns,
            stale_after: Duration::from_secs(beat.stale_s.into()),
            when_stale: if beat.equal == 0 { WhenStale::Keep } else { WhenStale::Equal },
        })
    }

    /// Returns the time since it was renewed, at a time of the same clock.
    pub fn age(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.renewed_ns))
    }
}
