//! Limits how often an expensive task is done.

use std::time::Duration;

use super::nanos;

/// The longest time that a budget can delay a task.
const LONGEST_NS: u64 = 10_000_000_000;

/// Repeats a task at an interval that keeps within a share of a core, judged by the recent cost.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    wanted_ns: u64,
    budget: f64,
    /// Moving mean of the cost.
    cost_ns: Option<f64>,
    due_ns: u64,
}

impl Pace {
    /// Creates a task that is done every `wanted`, or less often if the budget demands it.
    pub(crate) fn new(wanted: Duration, budget: f64) -> Pace {
        Pace { wanted_ns: nanos(wanted), budget, cost_ns: None, due_ns: 0 }
    }

    /// Changes the wanted interval.
    pub(crate) fn set_interval(&mut self, wanted_ns: u64) {
        self.wanted_ns = wanted_ns;
    }

    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Records that the task was done, starting at `now_ns`.
    pub(crate) fn record(&mut self, now_ns: u64, cost_ns: u64) {
        let cost = cost_ns as f64;
        let mean = self.cost_ns.map_or(cost, |mean| mean + (cost - mean) / 4.0);
        // A sudden rise of the cost counts at once.
        self.cost_ns = Some(mean.max(cost / 4.0));
        self.due_ns = now_ns.saturating_add(self.interval_ns());
    }

    /// Makes the task due now.
    pub(crate) fn make_due(&mut self) {
        self.due_ns = 0;
    }

    pub(crate) fn interval(&self) -> Duration {
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
        pace.record(100 * MS, MS / 10);
        assert!(!pace.is_due(109 * MS) && pace.is_due(110 * MS));
    }

    #[test]
    fn what_is_dear_keeps_to_the_budget() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        let (mut now, mut used) = (0, 0);
        for _ in 0..1000 {
            pace.record(now, 5 * MS);
            used += 5 * MS;
            now = pace.due_ns();
        }
        assert!(used * 20 <= now, "{used} of {now}");
        assert_eq!(pace.interval(), Duration::from_millis(100));
    }

    #[test]
    fn what_becomes_dear_is_put_off_at_once_and_never_for_good() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        pace.record(0, MS / 10);
        pace.record(0, 400 * MS);
        assert!(pace.interval() >= Duration::from_secs(2));
        pace.record(0, u64::MAX);
        assert_eq!(pace.interval(), Duration::from_secs(10));
        pace.make_due();
        assert!(pace.is_due(1));
    }
}
