//! How much may be stamped for what it may cost.

/// Keeps what the programs cost under a share of the host's processor time. Part of the cost
/// is in the bytes that are stamped, and part in each packet, whether it is stamped or
/// not. The first is kept down by taking less of the grid, the second only by not looking
/// for a part of the time.
#[derive(Debug, Clone)]
pub struct Budget {
    share: f64,
    most: u32,
    effort: Effort,
    /// At another thinness, and then now.
    seen: [Option<(u32, f64)>; 2],
}

/// How much is to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Of the grid, each 2^thin-th byte is taken.
    pub thin: u32,
    /// Part of the time in which programs are attached, from above 0 to 1.
    pub duty: f64,
}

/// What the programs cost in a window of time, all of which they were attached.
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

/// At least so much of the time.
const LEAST_DUTY: f64 = 0.01;

impl Budget {
    /// At most `share` of the host's processor time, where one byte in `sample_bytes` is
    /// stamped at first.
    pub fn new(share: f64, sample_bytes: u32) -> Budget {
        Budget {
            share,
            most: 24_u32.saturating_sub(sample_bytes.trailing_zeros()),
            effort: Effort { thin: 0, duty: 1.0 },
            seen: [None; 2],
        }
    }

    /// After a window at this cost.
    pub fn next(&mut self, cost: Cost) -> Effort {
        let cost = cost.share();
        self.note(cost);
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

    fn note(&mut self, cost: f64) {
        let now = Some((self.effort.thin, cost));
        if self.seen[1].is_some_and(|(thin, _)| thin != self.effort.thin) {
            self.seen[0] = self.seen[1];
        }
        self.seen[1] = now;
    }

    fn less(&self, cost: f64) -> Effort {
        let thin = self.effort.thin;
        let Some(fixed) = self.fixed() else {
            let steps = (cost / self.share).log2().ceil().max(1.0) as u32;
            let thinner = (thin + steps).min(self.most);
            let duty = if thinner == thin { self.duty(cost) } else { 1.0 };
            return Effort { thin: thinner, duty };
        };
        // As thin as makes stamping no dearer than looking; then the rest by time.
        let stamping = |thinner: u32| (cost - fixed).max(0.0) / f64::from(1 << (thinner - thin));
        let room = (self.share - fixed).max(fixed);
        let thin = (thin..self.most).find(|thinner| stamping(*thinner) <= room).unwrap_or(self.most);
        Effort { thin, duty: self.duty(fixed + stamping(thin)) }
    }

    /// What each packet costs, from what was seen at two degrees of thinness.
    fn fixed(&self) -> Option<f64> {
        let [Some((some, dear)), Some((none, cheap))] = self.seen else {
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

    /// What comes of a load whose packets cost so much, and what is stamped so much.
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
    fn what_each_packet_costs_is_saved_by_looking_for_a_part_of_the_time() {
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
