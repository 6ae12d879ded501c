//! The collector's time, in which passages of all hosts are compared.

use dwell_socket::clock::monotonic_ns;
use dwell_store::Progress;

use crate::{
    exit::Failure,
    source::{boot_id, clock},
};

/// CLOCK_MONOTONIC from a beginning that makes it nearly Unix time. It goes on evenly
/// where that is set, and is the same in all runs of the collector on one boot.
#[derive(Debug, Clone)]
pub struct Time {
    pub boot: String,
    pub offset_ns: i64,
}

impl Time {
    /// As before, if this is the same boot.
    pub fn new(before: Option<&Progress>) -> Result<Time, Failure> {
        let boot = boot_id()?;
        let offset_ns = match before {
            Some(before) if before.boot == boot => before.offset_ns,
            _ => clock().unix_ns(0) as i64,
        };
        Ok(Time { boot, offset_ns })
    }

    pub fn now_ns(&self) -> u64 {
        self.at(monotonic_ns())
    }

    /// Of a time by CLOCK_MONOTONIC.
    pub fn at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.offset_ns)
    }

    /// Unix time less this one, now. In whole milliseconds: it comes of two readings, one
    /// after the other, and of a clock that is steered, and intervals that end at whole
    /// seconds shall be told so.
    pub fn to_unix_ns(&self) -> i64 {
        let apart_ns = clock().unix_ns(0) as i64 - self.offset_ns;
        (apart_ns + 500_000).div_euclid(1_000_000) * 1_000_000
    }
}
