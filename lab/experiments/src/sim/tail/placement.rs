//! Policies that place a connection on a server.

use std::{collections::VecDeque, fmt, str::FromStr, time::Duration};

use dwell_engine::steer::{BackendStats, LatencyConfig, LatencySteering, Maglev, Policy, Share, draw, least_crowded};
use rand::{RngExt, rngs::StdRng, seq::index::sample};

/// What a policy may see of the servers when a connection begins.
#[derive(Debug)]
pub struct View<'a> {
    /// In seconds.
    pub now: f64,
    /// Open connections, by server.
    pub open: &'a [u64],
    /// Requests without an answer, by server.
    pub waiting: &'a [u64],
}

/// A policy.
pub trait Placement {
    /// Returns the server of a new connection.
    fn place(&mut self, view: &View<'_>, random: &mut StdRng) -> usize;

    /// Learns of an answer: its latency in seconds, and how many requests waited at the server when it was asked for.
    fn answered(&mut self, _server: usize, _behind: u64, _latency: f64) {}

    /// Learns what an interval measured. Returns the weights of the servers from now on.
    fn interval(&mut self, _seen: &[BackendStats]) -> Vec<f64> {
        Vec::new()
    }
}

/// Among how many servers a connection chooses: `choices` of a VIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choices {
    Of(u32),
    All,
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choices::Of(choices) => write!(f, "{choices}"),
            Choices::All => f.write_str("all"),
        }
    }
}

impl FromStr for Choices {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Choices, &'static str> {
        match text.parse() {
            Ok(choices @ 1..=4) => Ok(Choices::Of(choices)),
            _ if text == "all" => Ok(Choices::All),
            _ => Err("1 to 4, or all"),
        }
    }
}

/// The balancer's: of some servers that are drawn by weight the one with the fewest open connections gets the new one, or of
/// all the one with the fewest for its weight.
pub struct Weighted {
    policy: Box<dyn Policy>,
    shares: Vec<Share>,
    choices: Choices,
}

impl Weighted {
    /// By latency, as `policy = "latency"`, with intervals of this length in seconds.
    pub fn by_latency(servers: usize, choices: Choices, interval: f64) -> Weighted {
        let policy = LatencySteering::new(LatencyConfig::default(), Duration::from_secs_f64(interval));
        Weighted::new(Box::new(policy.expect("the defaults are in their ranges")), servers, choices)
    }

    /// With equal weights: `policy = "maglev"` with one choice, power of two with two, least connections with all.
    pub fn equal(servers: usize, choices: Choices) -> Weighted {
        Weighted::new(Box::new(Maglev), servers, choices)
    }

    fn new(policy: Box<dyn Policy>, servers: usize, choices: Choices) -> Weighted {
        Weighted { policy, shares: vec![Share::initial(1.0); servers], choices }
    }
}

impl Placement for Weighted {
    fn place(&mut self, view: &View<'_>, random: &mut StdRng) -> usize {
        let mut drawn = || draw(&self.shares, random.random());
        let Choices::Of(choices) = self.choices else {
            return least_crowded(&self.shares, view.open, drawn());
        };
        let drawn = (0..choices).map(|_| drawn());
        drawn.min_by_key(|server| view.open[*server]).unwrap_or(0)
    }

    fn interval(&mut self, seen: &[BackendStats]) -> Vec<f64> {
        self.shares = self.policy.step(seen, &self.shares);
        self.shares.iter().map(|share| share.weight).collect()
    }
}

/// After Prequal (NSDI 2024, section 4), once per connection in place of once per query, and with probes that take no
/// time: each placement asks [`PROBES`] servers for their requests in flight and their latency; those with more requests in
/// flight than most are hot; the cold one with the least latency gets the connection, or if all are hot the one with
/// the fewest requests.
pub struct Prequal {
    pool: VecDeque<Probe>,
    /// The last answers of each server: requests in flight when asked for, and latency.
    answers: Vec<VecDeque<(u64, f64)>>,
    /// The requests in flight of the last probes, from which follows which are many.
    seen: VecDeque<u64>,
    removes_oldest: bool,
}

struct Probe {
    server: usize,
    in_flight: u64,
    latency: f64,
    asked: f64,
    uses: f64,
}

/// Probes per placement, and how many a pool has at most (of fewer servers, half as many as these).
const PROBES: usize = 3;
const POOL: usize = 16;
/// The quantile of requests in flight above which a server is hot, 2^-0.25.
const HOT: f64 = 0.84;
/// The age at which a probe no longer counts, in seconds.
const STALE: f64 = 1.0;
/// The answers from which latency is estimated: the median of those whose requests in flight come closest.
const ANSWERS: usize = 64;
const CLOSEST: usize = 16;
/// From how many probes the quantile is taken.
const SEEN: usize = 256;

impl Prequal {
    pub fn new(servers: usize) -> Prequal {
        let answers = vec![VecDeque::new(); servers];
        Prequal { pool: VecDeque::new(), answers, seen: VecDeque::new(), removes_oldest: false }
    }

    fn size(&self) -> usize {
        POOL.min(self.answers.len() / 2).max(2)
    }

    /// How often a probe may be used, so that as many come as go (section 4, with delta 1 and one removal per query).
    fn reuse(&self) -> f64 {
        let fresh = (1.0 - self.size() as f64 / self.answers.len() as f64) * PROBES as f64 - 1.0;
        if fresh > 0.0 { (2.0 / fresh).max(1.0) } else { f64::INFINITY }
    }

    fn latency(&self, server: usize, in_flight: u64) -> f64 {
        let mut near: Vec<(u64, f64)> = self.answers[server].iter().copied().collect();
        near.sort_by_key(|(behind, _)| behind.abs_diff(in_flight));
        near.truncate(CLOSEST);
        let mut latencies: Vec<f64> = near.into_iter().map(|(_, latency)| latency).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        latencies.get(latencies.len() / 2).copied().unwrap_or(0.0)
    }

    /// The requests in flight above which a server is hot.
    fn limit(&self) -> u64 {
        let mut sorted: Vec<u64> = self.seen.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get((sorted.len().saturating_sub(1) as f64 * HOT) as usize).copied().unwrap_or(0)
    }

    fn probe(&mut self, view: &View<'_>, random: &mut StdRng) {
        for server in sample(random, view.open.len(), PROBES.min(view.open.len())) {
            let in_flight = view.waiting[server];
            if self.seen.len() == SEEN {
                self.seen.pop_front();
            }
            self.seen.push_back(in_flight);
            let (latency, uses) = (self.latency(server, in_flight), self.reuse());
            self.pool.retain(|probe| probe.server != server);
            self.pool.push_back(Probe { server, in_flight, latency, asked: view.now, uses });
        }
        while self.pool.len() > self.size() {
            self.pool.pop_front();
        }
    }

    /// Removes the oldest probe and the worst in turns.
    fn remove(&mut self) {
        self.removes_oldest = !self.removes_oldest;
        if self.removes_oldest {
            self.pool.pop_front();
            return;
        }
        let limit = self.limit();
        let worst =
            (0..self.pool.len()).max_by(|a, b| rank(&self.pool[*a], limit).total_cmp(&rank(&self.pool[*b], limit)));
        worst.map(|at| self.pool.remove(at));
    }
}

/// Orders probes from the best to the worst: cold ones by latency, and behind them hot ones by requests in flight.
fn rank(probe: &Probe, limit: u64) -> f64 {
    const HOUR: f64 = 3600.0;
    if probe.in_flight > limit { HOUR + probe.in_flight as f64 } else { probe.latency }
}

impl Placement for Prequal {
    fn place(&mut self, view: &View<'_>, random: &mut StdRng) -> usize {
        self.pool.retain(|probe| view.now - probe.asked < STALE);
        let limit = self.limit();
        let best = self.pool.iter_mut().min_by(|a, b| rank(a, limit).total_cmp(&rank(b, limit)));
        let server = match best {
            Some(probe) => {
                probe.in_flight += 1;
                probe.uses -= 1.0;
                probe.server
            }
            None => random.random_range(0..view.open.len()),
        };
        self.pool.retain(|probe| probe.uses > 0.0);
        if self.pool.len() >= self.size() {
            self.remove();
        }
        self.probe(view, random);
        server
    }

    fn answered(&mut self, server: usize, behind: u64, latency: f64) {
        let answers = &mut self.answers[server];
        if answers.len() == ANSWERS {
            answers.pop_front();
        }
        answers.push_back((behind, latency));
    }
}
