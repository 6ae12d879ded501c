//! How much each agent may send: a rate, and a burst above it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use dwell_fleet::wire::{AgentName, Batch};

/// An agent that was silent for this long may send as much at once as it could have sent in that time.
const BURST: Duration = Duration::from_secs(10);
/// What a row costs in addition to its bytes on the wire: the store repeats time, host and segment in each.
const ROW_BYTES: usize = 256;
/// Agents above which those with an unused quota are forgotten.
const MANY: usize = 8192;

/// The quotas of all agents.
#[derive(Debug)]
pub struct Quotas {
    bytes_per_s: f64,
    by_name: Mutex<HashMap<AgentName, Quota>>,
}

/// What an agent may still send.
#[derive(Debug, Clone, Copy)]
struct Quota {
    /// Below 0 after a batch that was larger than what was left.
    bytes: f64,
    at: Instant,
}

impl Quotas {
    /// Lets each agent send this much per second.
    pub fn new(bytes_per_s: u64) -> Quotas {
        Quotas { bytes_per_s: bytes_per_s.max(1) as f64, by_name: Mutex::default() }
    }

    /// Takes the bytes from an agent's quota. If nothing of it is left, it returns the time until there is; a batch of
    /// any size passes as soon as anything is left.
    pub fn take(&self, name: &AgentName, bytes: usize, now: Instant) -> Result<(), Duration> {
        let burst = self.bytes_per_s * BURST.as_secs_f64();
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let refilled = |quota: &Quota| {
            let since = now.saturating_duration_since(quota.at).as_secs_f64();
            burst.min(quota.bytes + since * self.bytes_per_s)
        };
        if by_name.len() >= MANY {
            by_name.retain(|_, quota| refilled(quota) < burst);
        }
        let quota = by_name.entry(name.clone()).or_insert(Quota { bytes: burst, at: now });
        *quota = Quota { bytes: refilled(quota), at: now };
        if quota.bytes <= 0.0 {
            return Err(Duration::from_secs_f64((1.0 - quota.bytes) / self.bytes_per_s));
        }
        quota.bytes -= bytes as f64;
        Ok(())
    }
}

/// Returns what a batch that had `bytes` on the wire costs.
pub fn cost(batch: &Batch, bytes: usize) -> usize {
    let of_interval = |interval: &dwell_fleet::wire::IntervalReport| {
        let of_flows: usize = interval.flows.iter().map(|flow| flow.segments.len()).sum();
        2 * interval.segments.len() + of_flows + interval.rtts.len()
    };
    let rows: usize = batch.content.intervals.iter().map(of_interval).sum();
    // The run's own row, and one of a loss.
    bytes + (rows + batch.content.counters.len() + 2) * ROW_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_a_burst_and_then_its_rate() {
        let quotas = Quotas::new(1_000);
        let name = |name: &str| AgentName::try_from(name.to_owned()).unwrap();
        let (web, start) = (name("web"), Instant::now());
        assert_eq!(quotas.take(&web, 9_000, start), Ok(()));
        assert_eq!(quotas.take(&web, 4_000, start), Ok(()), "something was left");
        let wait = quotas.take(&web, 1, start).unwrap_err();
        assert!((3.0..3.1).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(quotas.take(&name("db"), 1, start), Ok(()), "others have their own");
        assert_eq!(quotas.take(&web, 1, start + wait), Ok(()));
        let later = start + Duration::from_secs(1_000);
        assert_eq!(quotas.take(&web, 10_000, later), Ok(()));
        assert!(quotas.take(&web, 1, later).is_err(), "a long silence saves no more than a burst");
    }
}
