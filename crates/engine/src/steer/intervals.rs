//! From estimates of connections to what was seen of each backend in an interval.

use std::collections::{HashMap, VecDeque};

use super::{
    Constant, Latency, OutOfRange, Seen,
    range::{check_all, constants},
};
use crate::{
    measure::{Endpoint, Protocol},
    response::{Estimate, Reason, Record, Truth},
};

/// How much of what is needed of a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalsConfig {
    /// A latency is of at least so many connections; 2 to 1000. Fewer than two tell
    /// no standard error.
    pub min_connections: u32,
    /// Where the last interval has fewer, those before it count too, up to so many
    /// in all; 1 to 1000.
    pub look_back: u32,
    /// A connection counts as often as it has responses, up to so many; 1 to 1,000,000.
    pub most_responses: u32,
}

impl Default for IntervalsConfig {
    fn default() -> IntervalsConfig {
        IntervalsConfig { min_connections: 5, look_back: 6, most_responses: 16 }
    }
}

impl IntervalsConfig {
    /// All constants.
    pub const CONSTANTS: [Constant<IntervalsConfig>; 3] = constants! { IntervalsConfig:
        min_connections in 2 ..= 1000 as u32;
        look_back in 1 ..= 1000 as u32;
        most_responses in 1 ..= 1_000_000 as u32;
    };

    /// Checks that all constants are in their ranges.
    ///
    /// # Errors
    ///
    /// The first constant that is out of its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check_all(&Self::CONSTANTS, self)
    }
}

/// What only the caller knows of a backend at the end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backend {
    /// Its number.
    pub real: u32,
    /// The weight that it was configured with.
    pub configured: f64,
    /// Connections that were active in the idle time before.
    pub active: u64,
    /// Healthy, and not draining.
    pub is_usable: bool,
}

/// Collects estimates of epochs, and sums them up an interval at a time.
#[derive(Debug, Clone)]
pub struct Intervals {
    config: IntervalsConfig,
    reals: HashMap<u32, Real>,
}

/// What is remembered of a backend: the newest interval last, which is not over.
#[derive(Debug, Clone)]
struct Real {
    requests: u64,
    intervals: VecDeque<HashMap<Connection, Sum>>,
}

impl Default for Real {
    fn default() -> Real {
        Real { requests: 0, intervals: VecDeque::from([HashMap::new()]) }
    }
}

/// Client, server, transport.
pub type Connection = (Endpoint, Endpoint, Protocol);

/// Responses of a connection in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Responses {
    /// So many.
    pub count: u64,
    /// How long they took on average.
    pub mean_ns: u64,
}

/// Of one connection.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    responses: f64,
    ns: f64,
    samples: u64,
}

impl Intervals {
    /// # Errors
    ///
    /// A number is out of its range.
    pub fn new(config: IntervalsConfig) -> Result<Intervals, OutOfRange> {
        config.check()?;
        Ok(Intervals { config, reals: HashMap::new() })
    }

    /// Adds an epoch of a connection to a backend. It counts for the interval in
    /// which it is told; if its estimate is not to be believed, only its requests do.
    /// One of a single response is believed, as there are others to it: without such,
    /// nothing would be known of a backend that takes as long as an epoch.
    pub fn add(&mut self, real: u32, record: &Record, estimate: &Estimate) {
        let is_of_use = estimate.is_valid() || is_single(record, estimate);
        let mean_ns = estimate.response_ns.filter(|_| is_of_use);
        let connection = (record.src, record.dst, record.protocol);
        let responses = mean_ns.map(|mean_ns| Responses { count: estimate.batches, mean_ns });
        self.note(real, connection, record.epoch.requests.into(), responses);
    }

    /// The same of what is known to be so: requests of a connection, and its responses, if it had any.
    pub fn note(&mut self, real: u32, connection: Connection, requests: u64, responses: Option<Responses>) {
        let seen = self.reals.entry(real).or_default();
        seen.requests += requests;
        let (Some(responses), Some(newest)) = (responses, seen.intervals.back_mut()) else {
            return;
        };
        let sum = newest.entry(connection).or_default();
        sum.responses += responses.count as f64;
        sum.ns += responses.mean_ns as f64 * responses.count as f64;
        sum.samples += 1;
    }

    /// Ends the interval: what was seen of these backends, in their order. All that
    /// is known of others is forgotten.
    pub fn end(&mut self, backends: &[Backend]) -> Vec<Seen> {
        let mut next = HashMap::with_capacity(backends.len());
        let seen = backends.iter().map(|backend| {
            let mut real = self.reals.remove(&backend.real).unwrap_or_default();
            let seen = Seen {
                real: backend.real,
                configured: backend.configured,
                latency: self.config.latency(&real.intervals),
                requests: real.requests,
                active: backend.active,
                is_usable: backend.is_usable,
            };
            real.requests = 0;
            real.intervals.push_back(HashMap::new());
            while real.intervals.len() > self.config.look_back as usize {
                real.intervals.pop_front();
            }
            next.insert(backend.real, real);
            seen
        });
        let seen = seen.collect();
        self.reals = next;
        seen
    }
}

/// One response, and nothing against it but that it is one.
fn is_single(record: &Record, estimate: &Estimate) -> bool {
    let epoch = &record.epoch;
    estimate.reason == Some(Reason::TooFew)
        && estimate.batches == 1
        && estimate.truth == Truth::All
        && epoch.slow == 0
        && epoch.surplus == 0
}

impl IntervalsConfig {
    /// The mean of the newest intervals that have enough connections together.
    fn latency(&self, intervals: &VecDeque<HashMap<Connection, Sum>>) -> Option<Latency> {
        let enough = self.min_connections as usize;
        let mut sums: HashMap<Connection, Sum> = HashMap::new();
        for (back, interval) in intervals.iter().rev().enumerate() {
            for (connection, new) in interval {
                let sum = sums.entry(*connection).or_default();
                sum.responses += new.responses;
                sum.ns += new.ns;
                sum.samples += new.samples;
            }
            if sums.len() >= enough {
                return Some(self.mean(&sums, back as u32 + 1));
            }
        }
        None
    }

    fn mean(&self, sums: &HashMap<Connection, Sum>, intervals: u32) -> Latency {
        // connections in an order of their own, as floating-point sums have one
        let mut means: Vec<(f64, f64)> = sums
            .values()
            .filter(|sum| sum.responses > 0.0)
            .map(|sum| {
                let counted = sum.responses.min(self.most_responses.into());
                (sum.ns / sum.responses, counted)
            })
            .collect();
        means.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let count = means.len() as f64;
        let weight: f64 = means.iter().map(|(_, counted)| counted).sum();
        let mean = means.iter().map(|(ns, counted)| ns * counted).sum::<f64>() / weight;
        let squares: f64 = means.iter().map(|(ns, counted)| ((ns - mean) * counted).powi(2)).sum();
        let error_ns = match means.len() {
            0 | 1 => f64::INFINITY,
            _ => (squares * count / (count - 1.0)).sqrt() / weight,
        };
        Latency {
            mean_ns: mean.round() as u64,
            error_ns,
            connections: means.len() as u32,
            samples: sums.values().map(|sum| sum.samples).sum(),
            intervals,
        }
    }
}
