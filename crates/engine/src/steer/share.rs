//! What policies are told, and what they tell.

use std::fmt;

/// The response latency of a backend in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// The mean over responses.
    pub mean_ns: u64,
    /// Its standard error, from how far connections differ. Infinite if there is
    /// one connection only.
    pub error_ns: f64,
    /// Connections that it is of.
    pub connections: u32,
    /// Samples that it is of: one a connection and epoch.
    pub samples: u64,
    /// Intervals that had to be looked back on to have enough connections; 1: the
    /// last one was enough.
    pub intervals: u32,
}

/// What was seen of a backend in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Its number. What a policy remembers of a backend, it remembers by this.
    pub real: u32,
    /// The weight that it was configured with; at least 0.
    pub configured: f64,
    /// None if nothing that is to be believed is known.
    pub latency: Option<Latency>,
    /// Requests, or batches of them, in the interval.
    pub requests: u64,
    /// Connections active at its end.
    pub active: u64,
    /// Healthy, and not draining.
    pub is_usable: bool,
}

impl Seen {
    /// Requests in the interval over connections active at its end: how soon what
    /// is known of the latency would show a change. Where none is active, all that was
    /// asked has been answered: that counts as one.
    pub fn freshness(&self) -> f64 {
        self.requests as f64 / self.active.max(1) as f64
    }
}

/// How much of a VIP's new connections a backend gets, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// In the unit of configured weights.
    pub weight: f64,
    /// What the last step was led by.
    pub why: Why,
}

impl Share {
    /// What a backend begins with.
    pub fn initial(configured: f64) -> Share {
        Share { weight: configured, why: Why::Initial }
    }
}

/// Why a share is what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// As configured; nothing was measured yet.
    Initial,
    /// As configured: the policy does not measure.
    Configured,
    /// Set by hand.
    Manual,
    /// Not healthy, or draining: it keeps its weight for when it is back.
    Unusable,
    /// No valid estimate: it keeps its weight.
    NoEstimate,
    /// Neither slow nor asked to take more.
    Kept,
    /// Gave weight away.
    Slow {
        /// Its latency over the least.
        times: f64,
    },
    /// Would have to give weight away, but has no more than the floor.
    Floor {
        /// Its latency over the least.
        times: f64,
    },
    /// Slow, but those that could take more have taken all they may, or there is none.
    NoTaker {
        /// Its latency over the least.
        times: f64,
    },
    /// Took weight from slow ones.
    Fast {
        /// Its latency over the least.
        times: f64,
    },
    /// Took as much as it may in an interval.
    Capped {
        /// Its latency over the least.
        times: f64,
    },
    /// Fast, but less is heard of it than of a slow one: it may be slow by now.
    NotFresh {
        /// Its freshness.
        freshness: f64,
        /// What it would need.
        needed: f64,
    },
    /// Nothing has changed for long: a little nearer to what was configured.
    Regressed,
}

impl Why {
    /// In one word, for output: programs read them, so that they stay.
    pub fn name(&self) -> &'static str {
        match self {
            Why::Initial => "initial",
            Why::Configured => "configured",
            Why::Manual => "manual",
            Why::Unusable => "unusable",
            Why::NoEstimate => "no_estimate",
            Why::Kept => "kept",
            Why::Slow { .. } => "slow",
            Why::Floor { .. } => "floor",
            Why::NoTaker { .. } => "no_taker",
            Why::Fast { .. } => "fast",
            Why::Capped { .. } => "capped",
            Why::NotFresh { .. } => "not_fresh",
            Why::Regressed => "regressed",
        }
    }
}

impl fmt::Display for Why {
    /// In plain words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Initial => f.write_str("as configured, nothing measured yet"),
            Why::Configured => f.write_str("as configured"),
            Why::Manual => f.write_str("set by hand"),
            Why::Unusable => f.write_str("keeps its weight for when it is usable again"),
            Why::NoEstimate => f.write_str("no valid estimate, keeps its weight"),
            Why::Kept => f.write_str("unchanged"),
            Why::Slow { times } => write!(f, "slow ({times:.2} times the least), gave weight"),
            Why::Floor { times } => write!(f, "slow ({times:.2} times the least), at the floor"),
            Why::NoTaker { times } => {
                write!(f, "slow ({times:.2} times the least), but nobody may take more")
            }
            Why::Fast { times } => write!(f, "fast ({times:.2} times the least), took weight"),
            Why::Capped { times } => write!(f, "fast ({times:.2} times the least), took as much as it may at once"),
            Why::NotFresh { freshness, needed } => {
                write!(f, "fast, but not fresh: {freshness:.2} requests a connection, {needed:.2} needed")
            }
            Why::Regressed => f.write_str("steady, back towards what is configured"),
        }
    }
}

/// How shares follow from what is seen.
pub trait Policy: Send {
    /// As in configuration.
    fn name(&self) -> &'static str;

    /// The shares for the next interval. `seen` and `shares` are of the same
    /// backends in the same order, as is what it returns. The sum of weights stays.
    fn step(&mut self, seen: &[Seen], shares: &[Share]) -> Vec<Share>;
}

/// Plain Maglev: weights are as configured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Maglev;

impl Policy for Maglev {
    fn name(&self) -> &'static str {
        "maglev"
    }

    fn step(&mut self, _: &[Seen], shares: &[Share]) -> Vec<Share> {
        kept(shares, Why::Configured)
    }
}

/// Weights are what an operator sets while it runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manual;

impl Policy for Manual {
    fn name(&self) -> &'static str {
        "weights"
    }

    fn step(&mut self, _: &[Seen], shares: &[Share]) -> Vec<Share> {
        kept(shares, Why::Manual)
    }
}

fn kept(shares: &[Share], why: Why) -> Vec<Share> {
    let kept = |share: &Share| Share { why, ..*share };
    shares.iter().map(kept).collect()
}
