//! What samples add up to: round trips, queueing, and the share of packets that were lost or marked.

use std::ops::AddAssign;

use crate::{
    abi,
    histogram::Histogram,
    measure::{PathCounts, Sample},
};

/// The figures of a flow's direction or of a group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// The distribution of the round trips.
    pub histogram: Histogram,
    /// The sum of what the round trips were longer than the base of their flow.
    pub queue_sum_ns: u64,
    /// The longest queueing delay.
    pub queue_max_ns: u64,
    /// The packets that passed up to the last sample.
    pub path: PathCounts,
}

impl Figures {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.histogram.record(sample.rtt_ns);
        self.queue_sum_ns = self.queue_sum_ns.saturating_add(sample.queue_ns());
        self.queue_max_ns = self.queue_max_ns.max(sample.queue_ns());
        self.path += sample.path;
    }

    /// Adds what one CPU counted.
    pub fn merge_kernel(&mut self, cpu: &abi::dwell_group) {
        self.histogram.merge_kernel(&cpu.rtt);
        self.queue_sum_ns = self.queue_sum_ns.saturating_add(cpu.queue_sum_ns);
        self.queue_max_ns = self.queue_max_ns.max(cpu.queue_max_ns);
        self.path += PathCounts {
            sent: cpu.sent,
            retransmitted: cpu.retransmitted,
            received: cpu.received,
            late: cpu.late,
            ce: cpu.ce,
        };
    }

    /// Adds other figures.
    pub fn merge(&mut self, other: &Figures) {
        self.histogram.merge(&other.histogram);
        self.queue_sum_ns = self.queue_sum_ns.saturating_add(other.queue_sum_ns);
        self.queue_max_ns = self.queue_max_ns.max(other.queue_max_ns);
        self.path += other.path;
    }

    /// Returns the mean queueing delay; `None` without samples.
    pub fn queue_mean_ns(&self) -> Option<u64> {
        self.queue_sum_ns.checked_div(self.histogram.count())
    }
}

impl AddAssign for PathCounts {
    fn add_assign(&mut self, more: PathCounts) {
        self.sent += more.sent;
        self.retransmitted += more.retransmitted;
        self.received += more.received;
        self.late += more.late;
        self.ce += more.ce;
    }
}
