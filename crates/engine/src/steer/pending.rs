//! Requests that a backend has not answered yet.

use crate::abi;

const LOGS: usize = abi::DWELL_PENDING_LOGS as usize;

/// The requests that wait for the first byte of their answers, by age in octaves from 1 ms to 69 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending([u32; LOGS]);

impl Pending {
    /// Converts from the core's format.
    pub fn from_core(pending: &abi::dwell_pending) -> Pending {
        Pending(pending.count)
    }

    /// Adds a request of this age.
    pub fn add(&mut self, age_ns: u64) {
        let log = age_ns.checked_ilog2().unwrap_or(0).saturating_sub(abi::DWELL_PENDING_LOG_MIN) as usize;
        self.0[log.min(LOGS - 1)] += 1;
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the least age that the oldest request may have: its own is less than twice that. `None` if there is no
    /// request; 0 below 2 ms.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.at_least(0).map(|(age_ns, _)| age_ns).last()
    }

    /// Returns the octaves from an age on that have requests, the youngest first: the least age in it, and the number of
    /// requests.
    pub(super) fn at_least(&self, age_ns: u64) -> impl Iterator<Item = (u64, u32)> {
        let octaves = (abi::DWELL_PENDING_LOG_MIN..).zip(self.0);
        let ages = octaves.map(|(log, count)| (if log == abi::DWELL_PENDING_LOG_MIN { 0 } else { 1 << log }, count));
        ages.filter(move |(age, count)| *age >= age_ns && *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_their_ages_and_the_oldest_is_known_within_an_octave() {
        let mut pending = Pending::default();
        assert_eq!((pending.count(), pending.oldest_ns()), (0, None));
        pending.add(0);
        assert_eq!((pending.count(), pending.oldest_ns()), (1, Some(0)));
        pending.add(3_000_000);
        pending.add(u64::MAX);
        assert_eq!((pending.count(), pending.oldest_ns()), (3, Some(1 << 35)));
        let ages: Vec<_> = pending.at_least(1 << 21).collect();
        assert_eq!(ages, [(1 << 21, 1), (1 << 35, 1)]);
    }
}
