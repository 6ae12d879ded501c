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
