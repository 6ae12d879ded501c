//! The size and configuration of a flow table, and how it is swept.

use crate::{abi, filter::Filter};

/// Returns the number of slots for this number of flows: a quarter more, so that flows that are over need not be freed at
/// once.
pub(crate) fn slots(max_flows: u32) -> u32 {
    let max_flows = max_flows.clamp(4, 1 << 24);
    max_flows + max_flows / 4
}

/// Returns the number of buckets for this number of flows: a power of two with at least one way for each slot, so that a
/// flow rarely finds both of its buckets full.
pub(crate) fn buckets(max_flows: u32) -> u32 {
    slots(max_flows).next_power_of_two() / abi::DWELL_WAYS
}

/// Converts the configuration of a table to the core's format.
pub(crate) fn to_core(filter: &Filter, max_flows: u32, idle_timeout_ns: u64, seed: u64) -> abi::dwell_table_config {
    abi::dwell_table_config {
        idle_timeout_ns,
        seed,
        bucket_mask: buckets(max_flows) - 1,
        slots: slots(max_flows),
        filter: filter.to_core(),
    }
}

/// The length of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// Allocates zeroed memory for `count` objects of `bytes` each, from [`start`] on. The system maps it page by page when it is
/// first touched.
pub(crate) fn zeroed(count: u32, bytes: usize) -> Vec<u64> {
    debug_assert!(bytes.is_multiple_of(8));
    vec![0; (count as usize * bytes + LINE_BYTES) / 8]
}

/// Returns where the objects in zeroed memory begin: at a cache line, so that what fits into one lies in one.
pub(crate) fn start<T>(memory: &mut [u64]) -> *mut T {
    let first = memory.as_mut_ptr();
    first.wrapping_add(first.align_offset(LINE_BYTES)).cast()
}

/// Sweeps a table part by part as time advances.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next: u32,
    due_ns: u64,
}

impl Sweep {
    /// The number of parts in which a whole table is swept.
    pub(crate) const PARTS: u32 = 16;

    /// Returns the buckets to sweep at `time_ns`: one part per `period_ns`.
    pub(crate) fn due(&mut self, time_ns: u64, period_ns: u64, bucket_mask: u32) -> impl Iterator<Item = u32> + use<> {
        // A due time in the far future comes from a clock that jumped.
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

/// A flow table of the core that is swept bucket by bucket.
pub(crate) trait Sweeping {
    /// What a sweep emits.
    type Event;

    /// Returns the number of buckets minus one.
    fn bucket_mask(&self) -> u32;

    /// Returns how far the table has been swept.
    fn progress(&mut self) -> &mut Sweep;

    /// Sweeps one bucket, and closes its flows for this reason (`DWELL_CLOSE_*`) where it applies.
    fn sweep_bucket(&mut self, bucket: u32, time_ns: u64, reason: u32, emit: &mut impl FnMut(Self::Event));

    /// Closes idle flows in the buckets that are due at `time_ns`, if the whole table is swept once per `whole_ns`.
    fn sweep_part(&mut self, time_ns: u64, whole_ns: u64, mut emit: impl FnMut(Self::Event)) {
        let bucket_mask = self.bucket_mask();
        for bucket in self.progress().due(time_ns, whole_ns / u64::from(Sweep::PARTS), bucket_mask) {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_IDLE, &mut emit);
        }
    }

    /// Closes all flows.
    fn sweep_whole(&mut self, time_ns: u64, mut emit: impl FnMut(Self::Event)) {
        for bucket in 0..=self.bucket_mask() {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_END, &mut emit);
        }
    }
}
