//! Weights from measured response latency: Appendix C of "Measuring Response Latencies Under Asymmetric Routing" (arXiv
//! 2505.14358). `docs/method/steering.md` says what the paper leaves open, and where this implementation differs.

use std::{collections::HashMap, time::Duration};

use super::{
    BackendStats, Constant, Latency, OutOfRange, Policy, Share, ShareReason,
    range::{check_all, constants, in_range, intervals},
};

/// The constants of [`LatencySteering`]. [`LatencyConfig::CONSTANTS`] has their ranges. They are of time and not of
/// intervals, so that a shorter interval makes no other policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyConfig {
    /// A backend above this multiple of the least latency loses weight.
    pub alpha_high: f64,
    /// A backend below this multiple of the least latency may gain weight; at most `alpha_high`.
    pub alpha_low: f64,
    /// The part of its weight that a slow backend loses per second, multiplied by its latency over the least.
    pub rate: f64,
    /// The greatest gain of a backend per second, as a part of the mean weight. It prevents a thundering herd.
    pub cap: f64,
    /// The part of its configured weight that a backend always keeps.
    pub floor: f64,
    /// The time without a change of latencies after which weights regress.
    pub steady: Duration,
    /// The relative difference from the last latency above which a latency has changed. Latencies of few connections
    /// always vary, so small differences say nothing.
    pub unchanged: f64,
    /// The part of the distance to its configured share that a weight regresses per second.
    pub regress: f64,
    /// The freshness that a backend needs in order to gain weight, relative to the freshest slow backend. 1 is the
    /// paper's rule.
    pub freshness: f64,
    /// The number of standard errors by which a backend must be slow, or a latency must have changed, to count. 0 is
    /// the paper's rule.
    pub doubt: f64,
    /// The time without an estimate after which a weight regresses too, because the reason for it is outdated. 0 means
    /// never, which is the paper's rule.
    pub forget: Duration,
}

impl Default for LatencyConfig {
    fn default() -> LatencyConfig {
        LatencyConfig {
            alpha_high: 1.5,
            alpha_low: 1.2,
            rate: 0.04,
            cap: 0.2,
            floor: 0.02,
            steady: Duration::from_millis(1500),
            unchanged: 4.0,
            regress: 0.1,
            freshness: 1.0,
            doubt: 2.0,
            forget: Duration::from_secs(3),
        }
    }
}

impl LatencyConfig {
    /// All constants, with their ranges. In addition, `alpha_low` must not be above `alpha_high`.
    pub const CONSTANTS: [Constant<LatencyConfig>; 11] = constants! { LatencyConfig:
        alpha_high in 1 ..= 100;
        alpha_low in 1 ..= 100;
        rate in 0.0001 ..= 1;
        cap in 0.0001 ..= 10;
        floor in 0.0001 ..= 1;
        unchanged in 0 ..= 10;
        regress in 0 ..= 1;
        freshness in 0 ..= 1;
        doubt in 0 ..= 10;
        steady in 0.1 ..= 1000 as Duration;
        forget in 0 ..= 1_000_000 as Duration;
    };

    /// Checks that all constants are in their ranges.
    ///
    /// # Errors
    ///
    /// The first constant that is out of its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check_all(&Self::CONSTANTS, self)?;
        in_range("alpha_low", self.alpha_low, 1.0, self.alpha_high)
    }
}

/// Moves weight from slow backends to fast ones whose latency is recent.
#[derive(Debug, Clone)]
pub struct LatencySteering {
    /// What is per second in the configuration is per interval here.
    config: LatencyConfig,
    interval: Duration,
    histories: HashMap<u32, History>,
    /// The number of consecutive intervals in which no latency has changed.
    steady: u32,
}

/// The history of a backend.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    latency: Option<Latency>,
    /// The number of intervals since the last latency.
    missing: u32,
}

impl LatencySteering {
    /// Creates the policy without any history. `interval` is the time between two steps, which is not 0.
    ///
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn new(config: LatencyConfig, interval: Duration) -> Result<LatencySteering, OutOfRange> {
        config.check()?;
        let seconds = interval.as_secs_f64();
        let config = LatencyConfig {
            rate: config.rate * seconds,
            cap: config.cap * seconds,
            regress: (config.regress * seconds).min(1.0),
            ..config
        };
        Ok(LatencySteering { config, interval, histories: HashMap::new(), steady: 0 })
    }
}

impl Policy for LatencySteering {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn step(&mut self, stats: &[BackendStats], shares: &[Share]) -> Vec<Share> {
        self.remember(stats);
        let pool = Pool::of(stats, shares, &self.config);
        let mut next = pool.steered();
        if self.steady >= intervals(self.config.steady, self.interval) {
            self.regress(&pool, &mut next);
        }
        next
    }
}

impl LatencySteering {
    /// Compares latencies with the previous ones, and records them.
    fn remember(&mut self, stats: &[BackendStats]) {
        let mut has_changed = false;
        let mut histories = HashMap::with_capacity(stats.len());
        for backend in stats {
            let before = self.histories.get(&backend.real).copied().unwrap_or_default();
            let now = match (backend.latency, before.latency) {
                (Some(latency), old) => {
                    has_changed |= old.is_none_or(|old| self.differs(&old, &latency));
                    History { latency: Some(latency), missing: 0 }
                }
                (None, _) => History { missing: before.missing.saturating_add(1), ..before },
            };
            histories.insert(backend.real, now);
        }
        self.histories = histories;
        self.steady = match has_changed {
            true => 0,
            false => self.steady.saturating_add(1),
        };
    }

    fn differs(&self, old: &Latency, new: &Latency) -> bool {
        let by = old.ns.abs_diff(new.ns) as f64;
        let noise = errors(self.config.doubt, old.error_ns + new.error_ns);
        by > (self.config.unchanged * old.ns as f64).max(noise)
    }

    /// Moves weights part of the way to their configured shares, among the backends with no evidence against them. No
    /// backend gains more than the cap.
    fn regress(&self, pool: &Pool, next: &mut [Share]) {
        let is_forgotten = |real: u32| {
            let missing = self.histories.get(&real).map_or(0, |history| history.missing);
            !self.config.forget.is_zero() && missing >= intervals(self.config.forget, self.interval)
        };
        let members: Vec<usize> = (0..next.len())
            .filter(|i| pool.takes_part(*i))
            .filter(|i| match pool.times(*i) {
                Some(_) => !pool.is_slow(*i),
                None => is_forgotten(pool.stats[*i].real),
            })
            .collect();
        let weight: f64 = members.iter().map(|i| next[*i].weight).sum();
        let configured: f64 = members.iter().map(|i| pool.stats[*i].configured).sum();
        let step = |i: usize| {
            let target = pool.stats[i].configured * weight / configured;
            self.config.regress * (target - next[i].weight)
        };
        let farthest = members.iter().map(|i| step(*i)).fold(0.0, f64::max);
        let part = (self.config.cap * pool.mean / farthest).min(1.0);
        let steps: Vec<(usize, f64)> = members.iter().map(|i| (*i, step(*i) * part)).collect();
        for (i, by) in steps {
            next[i].weight += by;
            if matches!(next[i].reason, ShareReason::Kept | ShareReason::NoEstimate) && by.abs() > 1e-6 * pool.mean {
                next[i].reason = ShareReason::Regressed;
            }
        }
    }
}

/// The statistics of all backends in an interval.
struct Pool<'a> {
    stats: &'a [BackendStats],
    shares: &'a [Share],
    config: &'a LatencyConfig,
    /// The least latency, at least 1 ns.
    least: Option<Latency>,
    /// The mean of all weights.
    mean: f64,
    /// The freshness that a backend needs in order to gain weight.
    needed: f64,
}

impl<'a> Pool<'a> {
    fn of(stats: &'a [BackendStats], shares: &'a [Share], config: &'a LatencyConfig) -> Pool<'a> {
        let mut pool = Pool {
            stats,
            shares,
            config,
            least: None,
            mean: shares.iter().map(|share| share.weight).sum::<f64>() / stats.len().max(1) as f64,
            needed: 0.0,
        };
        let measured = (0..stats.len()).filter(|i| pool.takes_part(*i));
        pool.least = measured.filter_map(|i| stats[i].latency).min_by_key(|latency| latency.ns);
        let slow = (0..stats.len()).filter(|i| pool.is_slow(*i));
        let freshest = slow.map(|i| stats[i].freshness()).fold(0.0, f64::max);
        pool.needed = config.freshness * freshest;
        pool
    }

    fn takes_part(&self, i: usize) -> bool {
        self.stats[i].is_usable && self.stats[i].configured > 0.0
    }

    /// Returns a backend's latency over the least.
    fn times(&self, i: usize) -> Option<f64> {
        let latency = self.takes_part(i).then_some(self.stats[i].latency)??;
        Some(latency.ns as f64 / self.least?.ns.max(1) as f64)
    }

    fn is_slow(&self, i: usize) -> bool {
        let (Some(latency), Some(least)) = (self.stats[i].latency, self.least) else {
            return false;
        };
        let surely = latency.ns as f64 - errors(self.config.doubt, latency.error_ns);
        let at_most = least.ns as f64 + errors(self.config.doubt, least.error_ns);
        self.takes_part(i) && surely > self.config.alpha_high * at_most
    }

    fn is_fast(&self, i: usize) -> bool {
        self.times(i).is_some_and(|t| t < self.config.alpha_low) && !self.is_slow(i)
    }

    fn is_fresh(&self, i: usize) -> bool {
        self.stats[i].freshness() >= self.needed
    }

    /// Returns the weight that a slow backend must give away.
    fn gives(&self, i: usize) -> f64 {
        let weight = self.shares[i].weight;
        let part = (self.config.rate * self.times(i).unwrap_or(0.0)).min(1.0);
        let floor = self.config.floor * self.stats[i].configured;
        (weight * part).min(weight - floor).max(0.0)
    }

    /// Moves weight from slow backends to fast ones.
    fn steered(&self) -> Vec<Share> {
        let all = 0..self.stats.len();
        let slow: Vec<usize> = all.clone().filter(|i| self.is_slow(*i)).collect();
        let takers = all.clone().filter(|i| self.is_fast(*i) && self.is_fresh(*i));
        let takers = takers.count() as f64;
        let given: f64 = slow.iter().map(|i| self.gives(*i)).sum();
        let most = self.config.cap * self.mean;
        let each = if takers > 0.0 { (given / takers).min(most) } else { 0.0 };
        // Weight that no backend may take stays where it is.
        let part = if given > 0.0 { each * takers / given } else { 0.0 };
        all.map(|i| {
            let share = self.shares[i];
            let Some(times) = self.times(i) else {
                return Share { reason: self.reason_of_unmeasured(i), ..share };
            };
            let (by, reason) = match () {
                () if self.is_slow(i) => {
                    let by = -self.gives(i) * part;
                    let reason = match by < 0.0 {
                        true => ShareReason::Slow { times },
                        false if self.gives(i) > 0.0 => ShareReason::NoTaker { times },
                        false => ShareReason::Floor { times },
                    };
                    (by, reason)
                }
                () if slow.is_empty() || !self.is_fast(i) || given <= 0.0 => (0.0, ShareReason::Kept),
                () if !self.is_fresh(i) => {
                    let (freshness, needed) = (self.stats[i].freshness(), self.needed);
                    (0.0, ShareReason::NotFresh { freshness, needed })
                }
                () if each >= most => (each, ShareReason::Capped { times }),
                () => (each, ShareReason::Fast { times }),
            };
            Share { weight: share.weight + by, reason }
        })
        .collect()
    }

    fn reason_of_unmeasured(&self, i: usize) -> ShareReason {
        match self.stats[i] {
            BackendStats { is_usable: false, .. } => ShareReason::Unusable,
            _ if !self.takes_part(i) => ShareReason::Kept,
            _ => ShareReason::NoEstimate,
        }
    }
}

/// Returns this multiple of the standard error; 0 for a multiple of 0, even if the error is infinite.
fn errors(times: f64, error_ns: f64) -> f64 {
    if times > 0.0 { times * error_ns } else { 0.0 }
}
