//! How often a poller may look, so that it takes no more of a core than it may.

use crate::{sys, table::Orders};

/// What rounds have taken.
#[derive(Debug, Default)]
pub struct Budget {
    rounds: u32,
    cpu_ns: u64,
    period_ns: u64,
}

/// A round begins at least so often, whatever the budget, if that is not rarer than is asked for.
const LONGEST_ROUND_NS: u64 = 1_000_000_000;

/// So many rounds are counted together, as asking costs too; fewer while they are rare.
const ROUNDS: u32 = 16;

impl Budget {
    /// After a round: how long after its begin the next may begin.
    pub fn period_ns(&mut self, orders: &Orders) -> u64 {
        self.rounds += 1;
        let is_rare = self.period_ns > orders.poll_ns;
        if self.period_ns > 0 && self.rounds < ROUNDS && !is_rare {
            return self.period_ns;
        }
        let cpu_ns = sys::cpu_ns();
        // A thread is new when it counts first.
        let spent_ns = cpu_ns.saturating_sub(self.cpu_ns) / u64::from(self.rounds.max(1));
        self.cpu_ns = cpu_ns;
        self.rounds = 0;
        self.period_ns = ((spent_ns as f64 / orders.budget) as u64)
            .min(LONGEST_ROUND_NS)
            .max(orders.poll_ns);
        self.period_ns
    }
}
