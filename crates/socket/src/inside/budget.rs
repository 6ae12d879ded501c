//! How often a poller may look, so that it takes no more of a core than it may.

use crate::sys;

/// What rounds have taken.
#[derive(Debug, Default)]
pub struct Budget {
    rounds: u32,
    cpu_ns: u64,
    least_ns: Option<u64>,
}

/// A round begins at least so often, whatever the budget, if that is not rarer than is asked for.
const LONGEST_ROUND_NS: u64 = 1_000_000_000;

/// So many rounds are counted together, as asking costs too; fewer while they are rare.
const ROUNDS: u32 = 16;

impl Budget {
    /// After a round: how long after its begin the next begins. `share` is of a core; `wanted_ns` if that allows it.
    pub fn period_ns(&mut self, share: f64, wanted_ns: u64) -> u64 {
        if self.cpu_ns == 0 {
            // What it took to begin is not what rounds take.
            self.cpu_ns = sys::thread_cpu_ns();
            return wanted_ns;
        }
        self.rounds += 1;
        let is_known = self.rounds < ROUNDS;
        let least_ns = match self.least_ns {
            None if is_known => 0,
            Some(least_ns) if is_known && least_ns <= wanted_ns => least_ns,
            _ => self.count(share),
        };
        least_ns.max(wanted_ns)
    }

    fn count(&mut self, share: f64) -> u64 {
        let cpu_ns = sys::thread_cpu_ns();
        let spent_ns = cpu_ns.saturating_sub(self.cpu_ns) / u64::from(self.rounds.max(1));
        self.cpu_ns = cpu_ns;
        self.rounds = 0;
        let least_ns = ((spent_ns as f64 / share) as u64).min(LONGEST_ROUND_NS);
        self.least_ns = Some(least_ns);
        least_ns
    }
}
