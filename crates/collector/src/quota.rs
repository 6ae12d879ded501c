//! How much each agent may send: a rate, and a burst above it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use dwell_fleet::wire::Batch;

/// An agent that was silent for this long may send as much at once as it could have sent in that time.
const BURST: Duration = Duration::from_secs(10);
/// What a row costs in addition to its bytes on the wire: the store repeats time, host and segment in each.
const ROW_BYTES: usize = 256;
/// Agents above which those with an unused quota are forgotten.
const MANY: usize = 8192;

/// How far below nothing a quota may fall: its holder waits for as long as six bursts take.
const MOST_OWED: f64 = 6.0;

/// The quotas of all agents, or of all addresses that they come from.
#[derive(Debug)]
pub struct Quotas<K> {
    bytes_per_s: f64,
    by_holder: Mutex<HashMap<K, Quota>>,
}

/// What a holder may still send.
#[derive(Debug, Clone, Copy)]
struct Quota {
    /// Below 0 after a batch that was larger than what was left.
    bytes: f64,
    at: Instant,
}

impl<K: Eq + Hash + Clone> Quotas<K> {
    /// Lets each holder send this much per second.
    pub fn new(bytes_per_s: u64) -> Quotas<K> {
        Quotas { bytes_per_s: bytes_per_s.max(1) as f64, by_holder: Mutex::default() }
    }

    /// Takes the bytes from a quota. If nothing of it is left, it returns the time until there is; a batch of any size
    /// passes as soon as anything is left.
    pub fn take(&self, holder: &K, bytes: usize, now: Instant) -> Result<(), Duration> {
        self.with(holder, now, |quota| {
            if quota.bytes <= 0.0 {
                return Err(Duration::from_secs_f64((1.0 - quota.bytes) / self.bytes_per_s));
            }
            quota.bytes -= bytes as f64;
            Ok(())
        })
    }

    /// Takes the bytes of what a holder has caused already, whatever is left.
    pub fn charge(&self, holder: &K, bytes: usize, now: Instant) {
        let owed = -self.burst() * MOST_OWED;
        self.with(holder, now, |quota| quota.bytes = owed.max(quota.bytes - bytes as f64));
    }

    fn burst(&self) -> f64 {
        self.bytes_per_s * BURST.as_secs_f64()
    }

    fn with<T>(&self, holder: &K, now: Instant, act: impl FnOnce(&mut Quota) -> T) -> T {
        let burst = self.burst();
        let mut by_holder = self.by_holder.lock().unwrap_or_else(PoisonError::into_inner);
        let refilled = |quota: &Quota| {
            let since = now.saturating_duration_since(quota.at).as_secs_f64();
            burst.min(quota.bytes + since * self.bytes_per_s)
        };
        if by_holder.len() >= MANY && !by_holder.contains_key(holder) {
            by_holder.retain(|_, quota| refilled(quota) < burst);
        }
        let quota = by_holder.entry(holder.clone()).or_insert(Quota { bytes: burst, at: now });
        *quota = Quota { bytes: refilled(quota), at: now };
        act(quota)
    }
}

/// Returns what rows cost that are written because of what an agent sent, in addition to its bytes.
pub fn cost_of_rows(rows: usize) -> usize {
    rows * ROW_BYTES
}

/// Returns what a batch that had `bytes` on the wire costs.
pub fn cost(batch: &Batch, bytes: usize) -> usize {
    let of_interval = |interval: &dwell_fleet::wire::IntervalReport| {
        let of_flows: usize = interval.flows.iter().map(|flow| flow.segments.len()).sum();
        2 * interval.segments.len() + of_flows + interval.rtts.len()
    };
    let rows: usize = batch.content.intervals.iter().map(of_interval).sum();
    // The run's own row, and one of a loss.
    bytes + cost_of_rows(rows + batch.content.counters.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_a_burst_and_then_its_rate() {
        let quotas = Quotas::new(1_000);
        let (web, start) = ("web", Instant::now());
        assert_eq!(quotas.take(&web, 9_000, start), Ok(()));
        assert_eq!(quotas.take(&web, 4_000, start), Ok(()), "something was left");
        let wait = quotas.take(&web, 1, start).unwrap_err();
        assert!((3.0..3.1).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(quotas.take(&"db", 1, start), Ok(()), "others have their own");
        assert_eq!(quotas.take(&web, 1, start + wait), Ok(()));
        let later = start + Duration::from_secs(1_000);
        assert_eq!(quotas.take(&web, 10_000, later), Ok(()));
        assert!(quotas.take(&web, 1, later).is_err(), "a long silence saves no more than a burst");
    }

    #[test]
    fn what_is_charged_afterwards_has_to_be_waited_for() {
        let quotas = Quotas::new(1_000);
        let start = Instant::now();
        quotas.charge(&1, 15_000, start);
        let wait = quotas.take(&1, 1, start).unwrap_err();
        assert!((5.0..5.1).contains(&wait.as_secs_f64()), "{wait:?}");
        quotas.charge(&1, usize::MAX, start);
        let wait = quotas.take(&1, 1, start).unwrap_err();
        assert!((60.0..60.1).contains(&wait.as_secs_f64()), "not for ever: {wait:?}");
    }
}
