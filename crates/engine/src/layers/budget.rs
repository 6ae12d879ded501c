//! How much may be stamped for what it may cost.

/// Keeps what the programs cost under a share of the host's processor time, by how much
/// of the grid is taken. Halving what is stamped does not halve the cost: what each
/// packet costs that carries no stamped byte remains.
#[derive(Debug, Clone)]
pub struct Budget {
    share: f64,
    most: u32,
    thin: u32,
}

/// What the programs cost in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// They ran for so long, over all processors.
    pub run_ns: u64,
    /// The window's length.
    pub window_ns: u64,
    /// Processors of the host.
    pub cpus: usize,
}

impl Cost {
    /// Of all the processors' time, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.run_ns as f64 / (self.window_ns.max(1) as f64 * self.cpus.max(1) as f64)
    }
}

/// Below this part of the budget more is stamped again: less than half, as twice as much
/// is the next step.
const LOW: f64 = 0.4;

impl Budget {
    /// At most `share` of the host's processor time, where one byte in `sample_bytes` is
    /// stamped at first.
    pub fn new(share: f64, sample_bytes: u32) -> Budget {
        Budget {
            share,
            most: 24_u32.saturating_sub(sample_bytes.trailing_zeros()),
            thin: 0,
        }
    }

    /// After a window at this cost: each 2^thin-th byte of the grid is to be taken.
    pub fn next(&mut self, cost: Cost) -> u32 {
        let over = cost.share() / self.share;
        if over > 1.0 {
            self.thin = (self.thin + over.log2().ceil() as u32).min(self.most);
        } else if over < LOW {
            self.thin = self.thin.saturating_sub(1);
        }
        self.thin
    }

    /// True if the last step was the last one possible, so that more cannot be saved.
    pub fn is_exhausted(&self) -> bool {
        self.thin == self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(share: f64) -> Cost {
        Cost {
            run_ns: (share * 2e9) as u64,
            window_ns: 1_000_000_000,
            cpus: 2,
        }
    }

    #[test]
    fn it_stamps_less_until_the_cost_is_in_the_budget_and_more_when_there_is_room() {
        let mut budget = Budget::new(0.01, 1 << 14);
        // all of the cost is in what is stamped
        let of = |thin: u32| cost(0.07 / f64::from(1 << thin));
        let mut thin = 0;
        for _ in 0..5 {
            thin = budget.next(of(thin));
        }
        assert_eq!(thin, 3, "an eighth of 7 % is under 1 %");
        assert!(!budget.is_exhausted());
        assert_eq!(budget.next(cost(0.004)), 3, "no room for twice as much");
        assert_eq!(budget.next(cost(0.0039)), 2);
    }

    #[test]
    fn what_cannot_be_saved_is_known() {
        let mut budget = Budget::new(0.01, 1 << 14);
        for _ in 0..20 {
            budget.next(cost(0.02));
        }
        assert_eq!(budget.next(cost(0.02)), 10, "one byte in 2^24");
        assert!(budget.is_exhausted());
    }
}
