//! The input and output of policies.

use std::fmt;

/// The response latency of a backend in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// What weights follow from: the mean over responses, or the quantile that was asked for.
    pub ns: u64,
    /// Its standard error, from the differences between connections. Infinite for a single connection.
    pub error_ns: f64,
    /// The mean over responses.
    pub mean_ns: u64,
    /// The 50th, 90th and 99th percentiles over responses; `None` if the latencies of most of them are not known, but only
    /// means of connections.
    pub percentiles_ns: Option<[u64; 3]>,
    /// The number of connections.
    pub connections: u32,
    /// The number of samples: one per connection and epoch.
    pub samples: u64,
    /// The number of past intervals that were needed to have enough connections; 1 if the last one was enough.
    pub intervals: u32,
}

/// The statistics of a backend in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackendStats {
    /// The number of the backend. Policies identify a backend by it from interval to interval.
    pub real: u32,
    /// The configured weight, at least 0.
    pub configured: f64,
    /// The response latency; `None` if there is no valid estimate.
    pub latency: Option<Latency>,
    /// The number of requests, or batches of requests, in the interval.
    pub requests: u64,
    /// The number of active connections at the end of the interval.
    pub active: u64,
    /// The number of requests that wait while more than five times as many that began at the same time, or nearly all that began
    /// later, have been answered. Their
    /// connections are probably over: the server has reset them, or they go by way of another balancer now. With them, those of a
    /// backend that has had nothing else to answer, so that it is tried.
    pub strays: u64,
    /// The backend is healthy, and not draining.
    pub is_usable: bool,
}

impl BackendStats {
    /// Returns the requests in the interval per active connection: how soon the latency would show a change. Without an
    /// active connection every request has been answered, which counts as one connection.
    pub fn freshness(&self) -> f64 {
        self.requests as f64 / self.active.max(1) as f64
    }
}

/// Returns the place of the share that a number from 0 to below 1 draws by weight, as a hash does from a Maglev table. 0 if
/// there is none.
pub fn draw(shares: &[Share], number: f64) -> usize {
    let mut left = number * shares.iter().map(|share| share.weight).sum::<f64>();
    let drawn = shares.iter().position(|share| {
        left -= share.weight;
        left < 0.0
    });
    drawn.unwrap_or(0)
}

/// Returns the place of the share that a new connection goes to, as the core selects with `choices = "all"`: the one that was
/// drawn by weight if it has no open connection; else the one with the fewest for its weight once it has one more. Of several
/// that are alike it is the first from the drawn one on, where the core begins anywhere. 0 if there is none.
pub fn least_crowded(shares: &[Share], open: &[u64], drawn: usize) -> usize {
    if open.get(drawn) == Some(&0) {
        return drawn;
    }
    let crowded = |at: &usize| (open[*at] + 1) as f64 / shares[*at].weight;
    let turned = (0..shares.len()).map(|at| (at + drawn) % shares.len());
    turned.min_by(|a, b| crowded(a).total_cmp(&crowded(b))).unwrap_or(0)
}

/// A backend's share of a VIP's new connections, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The weight, in the unit of configured weights.
    pub weight: f64,
    /// The reason of the last step.
    pub reason: ShareReason,
}

impl Share {
    /// Returns the initial share of a backend.
    pub fn initial(configured: f64) -> Share {
        Share { weight: configured, reason: ShareReason::Initial }
    }
}

/// The reason of a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ShareReason {
    /// As configured; nothing has been measured yet.
    Initial,
    /// As configured: the policy does not measure.
    Configured,
    /// Set by an operator.
    Manual,
    /// Set by the balancer that decides for several.
    Shared,
    /// Unhealthy or draining: the weight is kept for when the backend is back.
    Unusable,
    /// No valid estimate: the weight is kept.
    NoEstimate,
    /// Neither slow nor selected to take more weight.
    Kept,
    /// Slow: gave weight away.
    Slow {
        /// The latency over the least.
        times: f64,
    },
    /// Slow, but at the floor.
    Floor {
        /// The latency over the least.
        times: f64,
    },
    /// Slow, but no other backend may take more weight.
    NoTaker {
        /// The latency over the least.
        times: f64,
    },
    /// Fast: took weight from slow backends.
    Fast {
        /// The latency over the least.
        times: f64,
    },
    /// Fast: took as much weight as it may per interval.
    Capped {
        /// The latency over the least.
        times: f64,
    },
    /// Fast, but with less recent data than a slow backend: it may be slow by now.
    NotFresh {
        /// The freshness of the backend.
        freshness: f64,
        /// The freshness that it would need.
        needed: f64,
    },
    /// Latencies have been steady: moved towards the configured weight.
    Regressed,
}

impl ShareReason {
    /// Returns the name in output. Programs read it, so it must not change.
    pub fn name(&self) -> &'static str {
        match self {
            ShareReason::Initial => "initial",
            ShareReason::Configured => "configured",
            ShareReason::Manual => "manual",
            ShareReason::Shared => "shared",
            ShareReason::Unusable => "unusable",
            ShareReason::NoEstimate => "no_estimate",
            ShareReason::Kept => "kept",
            ShareReason::Slow { .. } => "slow",
            ShareReason::Floor { .. } => "floor",
            ShareReason::NoTaker { .. } => "no_taker",
            ShareReason::Fast { .. } => "fast",
            ShareReason::Capped { .. } => "capped",
            ShareReason::NotFresh { .. } => "not_fresh",
            ShareReason::Regressed => "regressed",
        }
    }
}

impl fmt::Display for ShareReason {
    /// Writes the reason in plain words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShareReason::Initial => f.write_str("as configured, nothing measured yet"),
            ShareReason::Configured => f.write_str("as configured"),
            ShareReason::Manual => f.write_str("set by hand"),
            ShareReason::Shared => f.write_str("set by the balancer that leads"),
            ShareReason::Unusable => f.write_str("keeps its weight for when it is usable again"),
            ShareReason::NoEstimate => f.write_str("no valid estimate, keeps its weight"),
            ShareReason::Kept => f.write_str("unchanged"),
            ShareReason::Slow { times } => write!(f, "slow ({times:.2} times the least), gave weight"),
            ShareReason::Floor { times } => write!(f, "slow ({times:.2} times the least), at the floor"),
            ShareReason::NoTaker { times } => {
                write!(f, "slow ({times:.2} times the least), but no other may take more")
            }
            ShareReason::Fast { times } => write!(f, "fast ({times:.2} times the least), took weight"),
            ShareReason::Capped { times } => {
                write!(f, "fast ({times:.2} times the least), took as much as it may at once")
            }
            ShareReason::NotFresh { freshness, needed } => {
                write!(f, "fast, but not fresh: {freshness:.2} requests per connection, {needed:.2} needed")
            }
            ShareReason::Regressed => f.write_str("steady, back towards what is configured"),
        }
    }
}

/// Derives shares from statistics.
pub trait Policy: Send {
    /// Returns the name in the configuration.
    fn name(&self) -> &'static str;

    /// Returns the shares for the next interval. `stats` and `shares` are of the same backends in the same order, as is
    /// the result. The sum of weights is preserved.
    fn step(&mut self, stats: &[BackendStats], shares: &[Share]) -> Vec<Share>;
}

/// Plain Maglev: weights are as configured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Maglev;

impl Policy for Maglev {
    fn name(&self) -> &'static str {
        "maglev"
    }

    fn step(&mut self, _: &[BackendStats], shares: &[Share]) -> Vec<Share> {
        kept(shares, ShareReason::Configured)
    }
}

/// Weights are set by an operator at run time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manual;

impl Policy for Manual {
    fn name(&self) -> &'static str {
        "weights"
    }

    fn step(&mut self, _: &[BackendStats], shares: &[Share]) -> Vec<Share> {
        kept(shares, ShareReason::Manual)
    }
}

fn kept(shares: &[Share], reason: ShareReason) -> Vec<Share> {
    let kept = |share: &Share| Share { reason, ..*share };
    shares.iter().map(kept).collect()
}
