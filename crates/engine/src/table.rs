//! The flow table's size and configuration.

use crate::{abi, rtt::FilterRule};

/// Buckets for so many flows: a power of two with a quarter more places than
/// flows, so that two full buckets for one flow stay rare.
pub(crate) fn buckets(max_flows: u32) -> u32 {
    let places = max_flows.clamp(4, 1 << 24) / 4 * 5;
    places.next_power_of_two() / abi::DWELL_WAYS
}

/// A table in the core's terms. At most `DWELL_FILTER_RULES` rules fit;
/// [`FilterRule::parse_all`] sees to that.
pub(crate) fn to_core(
    filter: &[FilterRule],
    max_flows: u32,
    idle_timeout_ns: u64,
    seed: u64,
) -> abi::dwell_table_config {
    abi::dwell_table_config {
        idle_timeout_ns,
        seed,
        bucket_mask: buckets(max_flows) - 1,
        filter: FilterRule::all_to_core(filter),
        ..Default::default()
    }
}

/// Memory for `count` objects of `bytes` each that start as zeros; the system
/// maps it page by page as it is touched.
pub(crate) fn zeroed(count: u32, bytes: usize) -> Vec<u64> {
    debug_assert!(bytes.is_multiple_of(8));
    vec![0; count as usize * bytes / 8]
}

/// Sweeps a table part by part, as time goes on.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next: u32,
    due_ns: u64,
}

impl Sweep {
    /// Parts that a whole table is swept in.
    pub(crate) const PARTS: u32 = 16;

    /// The buckets that are due at `time_ns`: a part each `period_ns`.
    pub(crate) fn due(&mut self, time_ns: u64, period_ns: u64, bucket_mask: u32) -> impl Iterator<Item = u32> + use<> {
        // A time that was due far ahead comes from a clock that jumped.
        let early = time_ns < self.due_ns && self.due_ns - time_ns <= period_ns;
        let first = self.next;
        let count = match early {
            true => 0,
            false => (bucket_mask + 1).div_ceil(Self::PARTS),
        };
        if !early {
            self.due_ns = time_ns.saturating_add(period_ns);
            self.next = (first + count) & bucket_mask;
        }
        (0..count).map(move |at| (first + at) & bucket_mask)
    }
}
