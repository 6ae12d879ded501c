//! The collector's time, on which the byte traces of all hosts are compared.

use dwell_socket::clock::{boot_id, monotonic_ns, unix_offset_ns};
use dwell_store::Progress;

use crate::Error;

/// The oldest that a measurement can be when it arrives: an agent may have waited for its collector.
const MAX_AGE_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// How far an agent's clock may be ahead without being wrong.
const MAX_AHEAD_NS: u64 = 10_000_000_000;

/// Returns the time nearest to the one that an agent reported that can be true.
pub fn possible(time_ns: u64, now_ns: u64) -> u64 {
    match time_ns {
        ahead if ahead > now_ns.saturating_add(MAX_AHEAD_NS) => now_ns,
        time_ns => time_ns.max(now_ns.saturating_sub(MAX_AGE_NS)),
    }
}

/// The same for Unix time.
pub fn possible_unix(time_ns: i64, now_ns: i64) -> i64 {
    let possible = possible(time_ns.max(0).cast_unsigned(), now_ns.max(0).cast_unsigned());
    possible.cast_signed()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_an_agent_made_up_become_possible_ones() {
        let (day, now) = (MAX_AGE_NS, 10 * MAX_AGE_NS);
        for (reported, kept) in [
            (now, now),
            (now + MAX_AHEAD_NS, now + MAX_AHEAD_NS),
            (now + MAX_AHEAD_NS + 1, now),
            (u64::MAX >> 1, now),
            (now - day, now - day),
            (now - day - 1, now - day),
            (0, now - day),
        ] {
            assert_eq!(possible(reported, now), kept, "{reported}");
            assert_eq!(possible_unix(reported.cast_signed(), now.cast_signed()), kept.cast_signed(), "{reported}");
        }
        assert_eq!(possible_unix(i64::MIN, now.cast_signed()), (now - day).cast_signed());
    }
}
