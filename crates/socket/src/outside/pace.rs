//! How often something may be done that costs time.

use std::time::Duration;

use super::nanos;

/// The longest that anything is put off for the sake of a budget.
const LONGEST_NS: u64 = 10_000_000_000;

/// Does something at an interval that keeps to a share of a core: what the last times took decides.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    wanted_ns: u64,
    budget: f64,
    /// A moving mean.
    cost_ns: Option<f64>,
    due_ns: u64,
}

impl Pace {
    /// At `wanted`, or as much later as the budget asks for.
    pub(super) fn new(wanted: Duration, budget: f64) -> Pace {
        Pace { wanted_ns: nanos(wanted), budget, cost_ns: None, due_ns: 0 }
    }

    /// From now on at this interval.
    pub(super) fn want(&mut self, wanted_ns: u64) {
        self.wanted_ns = wanted_ns;
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// It was done, begun at `now_ns`.
    pub(super) fn took(&mut self, now_ns: u64, cost_ns: u64) {
        let cost = cost_ns as f64;
        let mean = self.cost_ns.map_or(cost, |mean| mean + (cost - mean) / 4.0);
        // What has become dear at once is put off at once.
        self.cost_ns = Some(mean.max(cost / 4.0));
        self.due_ns = now_ns.saturating_add(self.interval_ns());
    }

    /// It is due now.
    pub(super) fn hurry(&mut self) {
        self.due_ns = 0;
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_ns())
    }

    fn interval_ns(&self) -> u64 {
        let by_budget = (self.cost_ns.unwrap_or(0.0) / self.budget) as u64;
        by_budget.min(LONGEST_NS).max(self.wanted_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_cheap_is_done_as_often_as_wanted() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        assert!(pace.is_due(0));
        pace.took(100 * MS, MS / 10);
        assert!(!pace.is_due(109 * MS) && pace.is_due(110 * MS));
    }

    #[test]
    fn what_is_dear_keeps_to_the_budget() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        let (mut now, mut used) = (0, 0);
        for _ in 0..1000 {
            pace.took(now, 5 * MS);
            used += 5 * MS;
            now = pace.due_ns();
        }
        assert!(used * 20 <= now, "{used} of {now}");
        assert_eq!(pace.interval(), Duration::from_millis(100));
    }

    #[test]
    fn what_becomes_dear_is_put_off_at_once_and_never_for_good() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        pace.took(0, MS / 10);
        pace.took(0, 400 * MS);
        assert!(pace.interval() >= Duration::from_secs(2));
        pace.took(0, u64::MAX);
        assert_eq!(pace.interval(), Duration::from_secs(10));
        pace.hurry();
        assert!(pace.is_due(1));
    }
}
