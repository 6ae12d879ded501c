//! Weights by measured response latency: Appendix C of "Measuring Response
//! Latencies Under Asymmetric Routing" (arXiv 2505.14358). What the paper leaves
//! open, and where this differs, is in `docs/method/steering.md`.

use std::collections::HashMap;

use super::{
    Constant, Latency, OutOfRange, Policy, Seen, Share, Why,
    range::{check_all, constants, in_range},
};

/// The constants of [`LatencySteering`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyConfig {
    /// A backend above so many times the least latency gives weight away; 1 to 100.
    pub alpha_high: f64,
    /// One below so many times the least takes it; 1 to `alpha_high`.
    pub alpha_low: f64,
    /// A slow backend gives this part of its weight an interval, times its latency
    /// over the least; above 0, up to 1.
    pub rate: f64,
    /// What a backend may take in an interval, as a part of the mean weight; above
    /// 0, up to 10. Keeps the herd from thundering.
    pub cap: f64,
    /// What a backend keeps of its configured weight, however slow; 0.0001 to 1.
    pub floor: f64,
    /// After so many intervals in a row without a change of latencies weights
    /// regress; 1 to 1000.
    pub k: u32,
    /// A latency has changed that differs from the last by more than this part of
    /// it; 0 to 10. By less than that, latencies of few connections always change.
    pub unchanged: f64,
    /// The part of the way to the mean that a weight regresses in an interval; 0 to 1.
    pub regress: f64,
    /// Who takes weight is at least this many times as fresh as the freshest slow
    /// backend; 0 to 1. 1 is the paper's rule.
    pub freshness: f64,
    /// A backend is slow, or a latency has changed, only if it is so by as many
    /// standard errors; 0 to 10. 0 is the paper's rule.
    pub doubt: f64,
    /// After so many intervals without an estimate a weight regresses too, as what
    /// moved it is no longer known; 0: it never does, which is the paper's rule.
    pub forget: u32,
}

impl Default for LatencyConfig {
    fn default() -> LatencyConfig {
        LatencyConfig {
            alpha_high: 1.5,
            alpha_low: 1.2,
            rate: 0.02,
            cap: 0.1,
            floor: 0.02,
            k: 3,
            unchanged: 4.0,
            regress: 0.05,
            freshness: 1.0,
            doubt: 2.0,
            forget: 6,
        }
    }
}

impl LatencyConfig {
    /// All constants. In addition, `alpha_low` must not be above `alpha_high`.
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
        k in 1 ..= 1000 as u32;
        forget in 0 ..= 1_000_000 as u32;
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

/// Takes weight from slow backends and gives it to fast ones of which it is fresh
/// news that they are.
#[derive(Debug, Clone)]
pub struct LatencySteering {
    config: LatencyConfig,
    known: HashMap<u32, Known>,
    /// Intervals in a row in which no latency has changed.
    steady: u32,
}

/// What is remembered of a backend.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    latency: Option<Latency>,
    /// Intervals since then.
    missing: u32,
}

impl LatencySteering {
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn new(config: LatencyConfig) -> Result<LatencySteering, OutOfRange> {
        config.check()?;
        Ok(LatencySteering { config, known: HashMap::new(), steady: 0 })
    }
}

impl Policy for LatencySteering {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn step(&mut self, seen: &[Seen], shares: &[Share]) -> Vec<Share> {
        self.remember(seen);
        let pool = Pool::of(seen, shares, &self.config);
        let mut next = pool.steered();
        if self.steady >= self.config.k {
            self.regress(&pool, &mut next);
        }
        next
    }
}

impl LatencySteering {
    /// Compares latencies with those before, and keeps them for the next time.
    fn remember(&mut self, seen: &[Seen]) {
        let mut has_changed = false;
        let mut known = HashMap::with_capacity(seen.len());
        for backend in seen {
            let before = self.known.get(&backend.real).copied().unwrap_or_default();
            let now = match (backend.latency, before.latency) {
                (Some(latency), old) => {
                    has_changed |= old.is_none_or(|old| self.differs(&old, &latency));
                    Known { latency: Some(latency), missing: 0 }
                }
                (None, _) => Known { missing: before.missing.saturating_add(1), ..before },
            };
            known.insert(backend.real, now);
        }
        self.known = known;
        self.steady = match has_changed {
            true => 0,
            false => self.steady.saturating_add(1),
        };
    }

    fn differs(&self, old: &Latency, new: &Latency) -> bool {
        let by = old.mean_ns.abs_diff(new.mean_ns) as f64;
        let noise = errors(self.config.doubt, old.error_ns + new.error_ns);
        by > (self.config.unchanged * old.mean_ns as f64).max(noise)
    }

    /// Moves weights a part of the way to what they would be by configuration,
    /// among those of which nothing speaks against it. None gets more than the cap.
    fn regress(&self, pool: &Pool, next: &mut [Share]) {
        let is_forgotten = |real: u32| {
            let missing = self.known.get(&real).map_or(0, |known| known.missing);
            self.config.forget > 0 && missing >= self.config.forget
        };
        let members: Vec<usize> = (0..next.len())
            .filter(|i| pool.takes_part(*i))
            .filter(|i| match pool.times(*i) {
                Some(_) => !pool.is_slow(*i),
                None => is_forgotten(pool.seen[*i].real),
            })
            .collect();
        let weight: f64 = members.iter().map(|i| next[*i].weight).sum();
        let configured: f64 = members.iter().map(|i| pool.seen[*i].configured).sum();
        let way = |i: usize| {
            let target = pool.seen[i].configured * weight / configured;
            self.config.regress * (target - next[i].weight)
        };
        let farthest = members.iter().map(|i| way(*i)).fold(0.0, f64::max);
        let part = (self.config.cap * pool.mean / farthest).min(1.0);
        let ways: Vec<(usize, f64)> = members.iter().map(|i| (*i, way(*i) * part)).collect();
        for (i, by) in ways {
            next[i].weight += by;
            if matches!(next[i].why, Why::Kept | Why::NoEstimate) && by.abs() > 1e-6 * pool.mean {
                next[i].why = Why::Regressed;
            }
        }
    }
}

/// What an interval says of all backends together.
struct Pool<'a> {
    seen: &'a [Seen],
    shares: &'a [Share],
    config: &'a LatencyConfig,
    /// The least latency of them, at least 1 ns.
    least: Option<Latency>,
    /// Of all weights.
    mean: f64,
    /// What a backend needs in order to take weight.
    needed: f64,
}

impl<'a> Pool<'a> {
    fn of(seen: &'a [Seen], shares: &'a [Share], config: &'a LatencyConfig) -> Pool<'a> {
        let mut pool = Pool {
            seen,
            shares,
            config,
            least: None,
            mean: shares.iter().map(|share| share.weight).sum::<f64>() / seen.len().max(1) as f64,
            needed: 0.0,
        };
        let measured = (0..seen.len()).filter(|i| pool.takes_part(*i));
        pool.least = measured.filter_map(|i| seen[i].latency).min_by_key(|latency| latency.mean_ns);
        let slow = (0..seen.len()).filter(|i| pool.is_slow(*i));
        let freshest = slow.map(|i| seen[i].freshness()).fold(0.0, f64::max);
        pool.needed = config.freshness * freshest;
        pool
    }

    fn takes_part(&self, i: usize) -> bool {
        self.seen[i].is_usable && self.seen[i].configured > 0.0
    }

    /// A backend's latency over the least.
    fn times(&self, i: usize) -> Option<f64> {
        let latency = self.takes_part(i).then_some(self.seen[i].latency)??;
        Some(latency.mean_ns as f64 / self.least?.mean_ns.max(1) as f64)
    }

    fn is_slow(&self, i: usize) -> bool {
        let (Some(latency), Some(least)) = (self.seen[i].latency, self.least) else {
            return false;
        };
        let surely = latency.mean_ns as f64 - errors(self.config.doubt, latency.error_ns);
        let at_most = least.mean_ns as f64 + errors(self.config.doubt, least.error_ns);
        self.takes_part(i) && surely > self.config.alpha_high * at_most
    }

    fn is_fast(&self, i: usize) -> bool {
        self.times(i).is_some_and(|t| t < self.config.alpha_low) && !self.is_slow(i)
    }

    fn is_fresh(&self, i: usize) -> bool {
        self.seen[i].freshness() >= self.needed
    }

    /// What a slow backend has to give.
    fn gives(&self, i: usize) -> f64 {
        let weight = self.shares[i].weight;
        let part = (self.config.rate * self.times(i).unwrap_or(0.0)).min(1.0);
        let floor = self.config.floor * self.seen[i].configured;
        (weight * part).min(weight - floor).max(0.0)
    }

    /// Moves weight from slow backends to fast ones.
    fn steered(&self) -> Vec<Share> {
        let all = 0..self.seen.len();
        let slow: Vec<usize> = all.clone().filter(|i| self.is_slow(*i)).collect();
        let takers = all.clone().filter(|i| self.is_fast(*i) && self.is_fresh(*i));
        let takers = takers.count() as f64;
        let given: f64 = slow.iter().map(|i| self.gives(*i)).sum();
        let most = self.config.cap * self.mean;
        let each = if takers > 0.0 { (given / takers).min(most) } else { 0.0 };
        // what nobody may take stays where it is
        let part = if given > 0.0 { each * takers / given } else { 0.0 };
        all.map(|i| {
            let share = self.shares[i];
            let Some(times) = self.times(i) else {
                return Share { why: self.why_not(i), ..share };
            };
            let (by, why) = match () {
                () if self.is_slow(i) => {
                    let by = -self.gives(i) * part;
                    let why = match by < 0.0 {
                        true => Why::Slow { times },
                        false if self.gives(i) > 0.0 => Why::NoTaker { times },
                        false => Why::Floor { times },
                    };
                    (by, why)
                }
                () if slow.is_empty() || !self.is_fast(i) || given <= 0.0 => (0.0, Why::Kept),
                () if !self.is_fresh(i) => {
                    let (freshness, needed) = (self.seen[i].freshness(), self.needed);
                    (0.0, Why::NotFresh { freshness, needed })
                }
                () if each >= most => (each, Why::Capped { times }),
                () => (each, Why::Fast { times }),
            };
            Share { weight: share.weight + by, why }
        })
        .collect()
    }

    fn why_not(&self, i: usize) -> Why {
        match self.seen[i] {
            Seen { is_usable: false, .. } => Why::Unusable,
            _ if !self.takes_part(i) => Why::Kept,
            _ => Why::NoEstimate,
        }
    }
}

/// So many standard errors; 0 if none are asked for, though the error be infinite.
fn errors(times: f64, error_ns: f64) -> f64 {
    if times > 0.0 { times * error_ns } else { 0.0 }
}
