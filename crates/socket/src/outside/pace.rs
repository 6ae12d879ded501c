//! Limits how often an expensive task is done.

use std::time::Duration;

use dwell_engine::units::nanos;

/// The longest time that a budget can delay a task.
const LONGEST_NS: f64 = 10e9;
/// How much time that the budget allowed and nobody used is left for a run that costs more than others, unless more is kept.
const CREDIT_NS: f64 = 100e6;

/// Repeats a task at an interval that keeps within a share of a core: all that it cost is paid by waiting.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    wanted_ns: u64,
    budget: f64,
    /// The time in which the budget pays what the task has cost, from its last start on; negative where it has cost less.
    debt_ns: f64,
    credit_ns: f64,
    last_ns: Option<u64>,
    due_ns: u64,
}

impl Pace {
    /// Creates a task that is done every `wanted`, or less often if the budget demands it.
    pub(crate) fn new(wanted: Duration, budget: f64) -> Pace {
        Pace { wanted_ns: nanos(wanted), budget, debt_ns: 0.0, credit_ns: CREDIT_NS, last_ns: None, due_ns: 0 }
    }

    /// Allows up to `reserve` of unspent budget to be saved, and starts with all of it: a costly first run need not wait.
    pub(crate) fn with_reserve(self, reserve: Duration) -> Pace {
        let credit_ns = reserve.as_nanos() as f64;
        Pace { debt_ns: -credit_ns, credit_ns, ..self }
    }

    /// Changes the wanted interval.
    pub(crate) fn set_interval(&mut self, wanted_ns: u64) {
        self.wanted_ns = wanted_ns;
    }

    /// Changes the share of a core that the next runs may use.
    pub(crate) fn set_budget(&mut self, budget: f64) {
        self.budget = budget;
    }

    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Records that the task was done, starting at `now_ns`.
    pub(crate) fn record(&mut self, now_ns: u64, cost_ns: u64) {
        let paid_ns = self.last_ns.replace(now_ns).map_or(0, |last_ns| now_ns.saturating_sub(last_ns)) as f64;
        let left_ns = (self.debt_ns - paid_ns).max(-self.credit_ns);
        self.debt_ns = (left_ns + cost_ns as f64 / self.budget).min(LONGEST_NS);
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
        self.wanted_ns.max(self.debt_ns.max(0.0) as u64)
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
    fn what_costs_more_for_once_is_paid_by_what_the_others_left_and_the_whole_budget_can_be_used() {
        let mut pace = Pace::new(Duration::from_millis(10), 0.05);
        let (mut now, mut runs) = (0, 0);
        while now < 100_000 * MS {
            // 0.75 ms each in the mean, for which the budget takes 15 ms.
            pace.record(now, if runs % 10 == 0 { 3 * MS } else { MS / 2 });
            (now, runs) = (pace.due_ns(), runs + 1);
        }
        assert!((6_500..=6_800).contains(&runs), "{runs}");
    }

    #[test]
    fn a_reserve_pays_what_is_dear_at_first_and_no_more() {
        let mut pace = Pace::new(Duration::from_millis(100), 0.01).with_reserve(Duration::from_secs(5));
        let (mut now, mut runs) = (0, 0);
        while now < 100_000 * MS {
            pace.record(now, 10 * MS);
            (now, runs) = (pace.due_ns(), runs + 1);
            assert!(runs > 5 || now <= 600 * MS, "{runs} runs took {now}");
        }
        assert!((105..=106).contains(&runs), "{runs}");
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
