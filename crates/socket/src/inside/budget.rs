//! Limits how often a poller polls, so that it stays within its share of a core.

use crate::sys;

/// CPU time of the recent rounds.
#[derive(Debug, Default)]
pub struct Budget {
    rounds: u32,
    cpu_ns: u64,
    least_ns: Option<u64>,
}

/// Longest time between two rounds that the budget may impose.
const LONGEST_ROUND_NS: u64 = 1_000_000_000;

/// Rounds between two readings of the CPU clock, as a reading costs time too. Rare rounds are counted sooner.
const ROUNDS: u32 = 16;

impl Budget {
    /// Called after a round. Returns the time from the start of this round to the start of the next: `wanted_ns`, or
    /// longer if `share` of a core demands it.
    pub fn period_ns(&mut self, share: f64, wanted_ns: u64) -> u64 {
        if self.cpu_ns == 0 {
            // The cost of starting up is not the cost of a round.
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
