//! Limits how much is stamped by how much processor time it may cost.

/// Keeps the cost of the programs below a share of the host's processor time. Part of the cost is per stamped byte, and
/// part is per packet, whether stamped or not. Stamping fewer bytes of the sampling grid reduces the first; only
/// detaching the programs for a part of the time reduces the second.
#[derive(Debug, Clone)]
pub struct Budget {
    share: f64,
    most: u32,
    effort: Effort,
    /// The thinning and cost of an earlier window with another thinning, and of the last window.
    windows: [Option<(u32, f64)>; 2],
}

/// How much work the programs may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Each 2^thin-th byte of the sampling grid is stamped.
    pub thin: u32,
    /// The part of the time in which the programs are attached, above 0 and at most 1.
    pub duty: f64,
}

/// The cost of the programs in a window of time in which they were attached throughout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The run time of all programs, summed over all processors, in nanoseconds.
    pub run_ns: u64,
    /// The length of the window in nanoseconds.
    pub window_ns: u64,
    /// The number of processors of the host.
    pub cpus: usize,
}

impl Cost {
    /// Returns the share of all processors' time, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.run_ns as f64 / (self.window_ns.max(1) as f64 * self.cpus.max(1) as f64)
    }
}

/// Below this part of the budget, more bytes are stamped again. It is less than half, because the next step doubles the
/// number of stamped bytes.
const LOW: f64 = 0.4;

/// The programs are attached for at least this part of the time.
const LEAST_DUTY: f64 = 0.01;

impl Budget {
    /// Creates a budget of `share` (0 to 1) of the host's processor time, where initially one byte in `sample_bytes` is
    /// stamped.
    pub fn new(share: f64, sample_bytes: u32) -> Budget {
        Budget {
            share,
            most: 24_u32.saturating_sub(sample_bytes.trailing_zeros()),
            effort: Effort { thin: 0, duty: 1.0 },
            windows: [None; 2],
        }
    }

    /// Returns the effort for the next window, given the cost of the last one.
    pub fn next(&mut self, cost: Cost) -> Effort {
        let cost = cost.share();
        self.record(cost);
        let Effort { thin, duty } = self.effort;
        let over = cost * duty / self.share;
        if over > 1.0 {
            self.effort = self.less(cost);
        } else if over < LOW && duty < 1.0 {
            self.effort.duty = self.duty(cost);
        } else if over < LOW {
            self.effort.thin = thin.saturating_sub(1);
        }
        self.effort
    }

    fn record(&mut self, cost: f64) {
        let now = Some((self.effort.thin, cost));
        if self.windows[1].is_some_and(|(thin, _)| thin != self.effort.thin) {
            self.windows[0] = self.windows[1];
        }
        self.windows[1] = now;
    }

    fn less(&self, cost: f64) -> Effort {
        let thin = self.effort.thin;
        let Some(fixed) = self.fixed() else {
            let steps = (cost / self.share).log2().ceil().max(1.0) as u32;
            let thinner = (thin + steps).min(self.most);
            let duty = if thinner == thin { self.duty(cost) } else { 1.0 };
            return Effort { thin: thinner, duty };
        };
        // Thin until stamping costs no more than the fixed part; then reduce the duty cycle.
        let stamping = |thinner: u32| (cost - fixed).max(0.0) / f64::from(1 << (thinner - thin));
        let room = (self.share - fixed).max(fixed);
        let thin = (thin..self.most).find(|thinner| stamping(*thinner) <= room).unwrap_or(self.most);
        Effort { thin, duty: self.duty(fixed + stamping(thin)) }
    }

    /// Estimates the fixed cost of the packets from two windows with different thinning.
    fn fixed(&self) -> Option<f64> {
        let [Some((some, dear)), Some((none, cheap))] = self.windows else {
            return None;
        };
        let [share_some, share_none] = [some, none].map(|thin| 1.0 / f64::from(1_u32 << thin));
        let stamping = (dear - cheap) / (share_some - share_none);
        Some((cheap - stamping * share_none).clamp(0.0, cheap.min(dear)))
    }

    fn duty(&self, cost: f64) -> f64 {
        (self.share / cost).clamp(LEAST_DUTY, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(share: f64) -> Cost {
        Cost { run_ns: (share * 2e9) as u64, window_ns: 1_000_000_000, cpus: 2 }
    }

    /// Finds where the budget settles for given costs of packets and of stamping.
    fn settle(fixed: f64, stamping: f64) -> (Effort, f64) {
        let mut budget = Budget::new(0.01, 1 << 14);
        let mut effort = budget.effort;
        let of = |effort: Effort| fixed + stamping / f64::from(1 << effort.thin);
        for _ in 0..10 {
            effort = budget.next(cost(of(effort)));
        }
        (effort, of(effort) * effort.duty)
    }

    #[test]
    fn what_stamping_costs_is_saved_by_stamping_less() {
        let (effort, cost) = settle(0.0, 0.07);
        assert_eq!((effort.thin, effort.duty), (3, 1.0), "an eighth of 7 %");
        assert!(cost <= 0.01);
        let (effort, cost) = settle(0.005, 0.07);
        assert_eq!((effort.thin, effort.duty), (4, 1.0));
        assert!(cost <= 0.01, "{cost}");
    }

    #[test]
    fn the_cost_of_packets_is_reduced_by_attaching_for_a_part_of_the_time() {
        let (effort, cost) = settle(0.03, 0.05);
        assert!(effort.thin <= 3, "thinner would save little: {effort:?}");
        assert!((0.15..0.35).contains(&effort.duty), "{effort:?}");
        assert!((0.005..=0.0101).contains(&cost), "{cost}");
    }

    #[test]
    fn when_the_load_is_gone_all_is_stamped_again() {
        let mut budget = Budget::new(0.01, 1 << 14);
        for _ in 0..5 {
            budget.next(cost(0.08));
        }
        let mut effort = budget.effort;
        assert!(effort.duty < 1.0 || effort.thin > 0);
        for _ in 0..30 {
            effort = budget.next(cost(0.0001));
        }
        assert_eq!(effort, Effort { thin: 0, duty: 1.0 });
    }

    #[test]
    fn there_is_an_end_to_what_can_be_saved() {
        let (effort, _) = settle(2.0, 0.0);
        assert_eq!(effort.duty, LEAST_DUTY);
    }
}
