//! Requests that a backend has not answered yet.

use std::net::IpAddr;

use super::networks::Networks;
use crate::abi;

const LOGS: usize = abi::DWELL_PENDING_LOGS as usize;

/// The requests that wait for the first byte of their answers, by age in octaves from 1 ms to 69 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    counts: [u32; LOGS],
    networks: [Networks; LOGS],
}

impl Pending {
    /// What has waited for longer does not count.
    pub(super) const LONGEST_NS: u64 = 1 << (abi::DWELL_PENDING_LOG_MIN + abi::DWELL_PENDING_LOGS);

    /// Converts from the core's format.
    pub fn from_core(pending: &abi::dwell_pending) -> Pending {
        Pending { counts: pending.count, networks: pending.networks.map(Networks) }
    }

    /// Adds a request of a client that has this age.
    pub fn add(&mut self, client: IpAddr, age_ns: u64) {
        let log = age_ns.checked_ilog2().unwrap_or(0).saturating_sub(abi::DWELL_PENDING_LOG_MIN) as usize;
        self.counts[log.min(LOGS - 1)] += 1;
        self.networks[log.min(LOGS - 1)].add_client(client);
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the least age that the oldest request may have: its own is less than twice that. `None` if there is no
    /// request; 0 below 2 ms.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.at_least(0).map(|(age_ns, _)| age_ns).last()
    }

    /// Returns the octaves from an age on that have requests, the youngest first: the least age in it, and the number of
    /// requests.
    pub(super) fn at_least(&self, age_ns: u64) -> impl Iterator<Item = (u64, u32)> {
        let octaves = (abi::DWELL_PENDING_LOG_MIN..).zip(self.counts);
        let ages = octaves.map(|(log, count)| (if log == abi::DWELL_PENDING_LOG_MIN { 0 } else { 1 << log }, count));
        ages.filter(move |(age, count)| *age >= age_ns && *count > 0)
    }

    /// Returns the least age of the octave that all requests are of, and their number. `None` if there is no request, or some have
    /// waited for about twice as long as others.
    pub(super) fn only_octave(&self) -> Option<(u64, u32)> {
        let mut octaves = self.at_least(0);
        octaves.next().filter(|_| octaves.next().is_none())
    }

    /// Forgets the requests of octaves for which `is_stray` holds, given the least age in it, the number of requests, and that of all
    /// younger ones. Returns those that were forgotten.
    pub(super) fn forget(&mut self, is_stray: impl Fn(u64, u32, u32) -> bool) -> Pending {
        let (mut forgotten, mut younger) = (Pending::default(), 0);
        for (octave, log) in (abi::DWELL_PENDING_LOG_MIN..).take(LOGS).enumerate() {
            let there = self.counts[octave];
            if there > 0 && is_stray(1 << log, there, younger) {
                forgotten.counts[octave] = std::mem::take(&mut self.counts[octave]);
                self.networks[octave] = Networks::default();
            }
            younger += there;
        }
        forgotten
    }

    /// Returns the number of requests in the octave that begins with an age.
    pub(super) fn of_octave(&self, age_ns: u64) -> u32 {
        self.counts[(age_ns.ilog2() - abi::DWELL_PENDING_LOG_MIN) as usize]
    }

    /// Returns the networks of clients with a request from the octave of an age on.
    pub(super) fn networks(&self, age_ns: u64) -> Networks {
        let octaves = (abi::DWELL_PENDING_LOG_MIN..).zip(self.networks);
        let of = octaves.filter(|(log, _)| *log == abi::DWELL_PENDING_LOG_MIN || 1 << log >= age_ns);
        Networks(of.fold(0, |all, (_, networks)| all | networks.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_their_ages_and_the_oldest_is_known_within_an_octave() {
        let mut pending = Pending::default();
        assert_eq!((pending.count(), pending.oldest_ns()), (0, None));
        let client = IpAddr::from([192, 0, 2, 1]);
        pending.add(client, 0);
        assert_eq!((pending.count(), pending.oldest_ns()), (1, Some(0)));
        pending.add(client, 3_000_000);
        pending.add(client, u64::MAX);
        assert_eq!((pending.count(), pending.oldest_ns()), (3, Some(1 << 35)));
        let ages: Vec<_> = pending.at_least(1 << 21).collect();
        assert_eq!(ages, [(1 << 21, 1), (1 << 35, 1)]);
    }
}
