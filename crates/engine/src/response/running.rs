//! Running means of response latency by server, for load balancers.

use std::collections::HashMap;

use super::Estimate;

/// The running mean of a server's response latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    /// The mean over responses, with more weight on recent ones.
    pub mean_ns: u64,
    /// The effective number of responses in the mean.
    pub responses: f64,
    /// The age of the latest estimate.
    pub age_ns: u64,
}

/// Running means by server, or by any other key of a backend. An estimate counts once per response, and half as much
/// after each half-life.
#[derive(Debug, Clone)]
pub struct RunningMeans<K> {
    half_life_ns: u64,
    means: HashMap<K, Sums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    responses: f64,
    sum_ns: f64,
    time_ns: u64,
}

impl Sums {
    fn faded(self, half_life_ns: u64, now_ns: u64) -> Sums {
        let lives = now_ns.saturating_sub(self.time_ns) as f64 / half_life_ns as f64;
        let part = (-lives).exp2();
        Sums { responses: self.responses * part, sum_ns: self.sum_ns * part, time_ns: self.time_ns.max(now_ns) }
    }
}

impl<K: std::hash::Hash + Eq> RunningMeans<K> {
    /// Creates an empty set. `half_life_ns` is at least 1.
    pub fn new(half_life_ns: u64) -> RunningMeans<K> {
        RunningMeans { half_life_ns: half_life_ns.max(1), means: HashMap::new() }
    }

    /// Adds the estimate of an epoch that ended at `time_ns`, if it is valid. Times are of one clock, in any order.
    pub fn add(&mut self, server: K, time_ns: u64, estimate: &Estimate) {
        let (true, Some(mean_ns)) = (estimate.is_valid(), estimate.response_ns) else {
            return;
        };
        let half_life_ns = self.half_life_ns;
        let sums = self.means.entry(server).or_default();
        let now_ns = time_ns.max(sums.time_ns);
        let new =
            Sums { responses: estimate.batches as f64, sum_ns: mean_ns as f64 * estimate.batches as f64, time_ns }
                .faded(half_life_ns, now_ns);
        let old = sums.faded(half_life_ns, now_ns);
        *sums = Sums { responses: old.responses + new.responses, sum_ns: old.sum_ns + new.sum_ns, time_ns: now_ns };
    }

    /// Returns the mean of a server at `now_ns`, or `None` if there is none.
    pub fn get(&self, server: &K, now_ns: u64) -> Option<Running> {
        let sums = self.means.get(server)?;
        self.running(sums, now_ns)
    }

    /// Returns all means.
    pub fn iter(&self, now_ns: u64) -> impl Iterator<Item = (&K, Running)> {
        self.means.iter().filter_map(move |(server, sums)| Some((server, self.running(sums, now_ns)?)))
    }

    /// Removes the servers without an estimate for `silent_ns`.
    pub fn forget(&mut self, now_ns: u64, silent_ns: u64) {
        self.means.retain(|_, sums| now_ns.saturating_sub(sums.time_ns) <= silent_ns);
    }

    fn running(&self, sums: &Sums, now_ns: u64) -> Option<Running> {
        (sums.responses > 0.0).then(|| Running {
            mean_ns: (sums.sum_ns / sums.responses).round() as u64,
            responses: sums.faded(self.half_life_ns, now_ns).responses,
            age_ns: now_ns.saturating_sub(sums.time_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{Method, Reason, Truth};

    const SECOND: u64 = 1_000_000_000;

    fn estimate(response_ns: u64, batches: u64) -> Estimate {
        Estimate {
            method: Method::AckRuns,
            truth: Truth::All,
            response_ns: Some(response_ns),
            ibg_ns: None,
            batches,
            confidence: 0.9,
            reason: None,
        }
    }

    #[test]
    fn newer_responses_weigh_more_and_each_as_one() {
        let mut means = RunningMeans::new(10 * SECOND);
        means.add("a", 100 * SECOND, &estimate(1000, 40));
        means.add("a", 110 * SECOND, &estimate(4000, 10));
        // 40 responses that have halved, and 10: (20 · 1000 + 10 · 4000) / 30.
        let found = means.get(&"a", 120 * SECOND).unwrap();
        assert_eq!((found.mean_ns, found.age_ns), (2000, 10 * SECOND));
        assert!((found.responses - 15.0).abs() < 1e-9);
        // The same in the other order.
        let mut late = RunningMeans::new(10 * SECOND);
        late.add("a", 110 * SECOND, &estimate(4000, 10));
        late.add("a", 100 * SECOND, &estimate(1000, 40));
        assert_eq!(late.get(&"a", 120 * SECOND).unwrap().mean_ns, 2000);
    }

    #[test]
    fn invalid_estimates_do_not_count() {
        let mut means = RunningMeans::new(SECOND);
        let doubted = Estimate { reason: Some(Reason::ThinkTime), ..estimate(7, 7) };
        means.add("a", SECOND, &doubted);
        assert_eq!(means.get(&"a", SECOND), None);
        means.add("b", SECOND, &estimate(5, 5));
        assert_eq!(means.iter(SECOND).count(), 1);
        means.forget(4 * SECOND, 2 * SECOND);
        assert_eq!(means.iter(SECOND).count(), 0);
    }
}
