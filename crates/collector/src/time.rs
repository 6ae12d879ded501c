//! The collector's time, on which the byte traces of all hosts are compared.

use dwell_socket::clock::{boot_id, monotonic_ns, unix_offset_ns};
use dwell_store::Progress;

use crate::Error;

/// CLOCK_MONOTONIC plus an offset that makes it nearly Unix time. It runs on evenly when Unix time is set, and is the
/// same in all runs of the collector on one boot.
#[derive(Debug, Clone)]
pub struct Time {
    /// The boot that the offset belongs to.
    pub boot: String,
    /// Added to CLOCK_MONOTONIC.
    pub offset_ns: i64,
}

impl Time {
    /// Continues the time of an earlier collector, if it ran on this boot.
    pub fn new(before: Option<&Progress>) -> Result<Time, Error> {
        let boot = boot_id().map_err(Error::Boot)?;
        let offset_ns = match before {
            Some(before) if before.boot == boot => before.offset_ns,
            _ => unix_offset_ns(),
        };
        Ok(Time { boot, offset_ns })
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.at(monotonic_ns())
    }

    /// Converts a time of CLOCK_MONOTONIC.
    pub fn at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.offset_ns)
    }

    /// Unix time less this time, now, in whole milliseconds: it comes from two readings, one after the other, and of a
    /// clock that is steered, and intervals that end at whole seconds are to be reported so.
    pub fn to_unix_ns(&self) -> i64 {
        let apart_ns = unix_offset_ns() - self.offset_ns;
        (apart_ns + 500_000).div_euclid(1_000_000) * 1_000_000
    }
}
