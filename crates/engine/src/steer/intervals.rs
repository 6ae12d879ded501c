//! Aggregates estimates of connections to statistics of each backend and interval.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{
    BackendStats, Constant, Latency, OutOfRange, Pending,
    distribution::Distribution,
    measured::Measured,
    networks::{self, Network, Networks, Weighted},
    range::{check_all, constants, intervals},
    strays::Strays,
};
use crate::{
    measure::{Endpoint, Protocol},
    response::{Answers, Estimate, Reason, Record, Truth},
};

/// Configuration of [`Intervals`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalsConfig {
    /// The number of connections that a latency needs; 2 to 1000. With fewer than two there is no standard error.
    pub min_connections: u32,
    /// The time that counts if the last interval has too few connections, with that one; 0.1 to 1000 s.
    pub look_back: Duration,
    /// The greatest weight of one connection, in responses; 1 to 1,000,000. Up to this, a connection counts once per
    /// response.
    pub most_responses: u32,
    /// The quantile of responses that weights follow from, up to 0.999; 0 for the mean, which is the paper's rule. A
    /// connection whose single responses are not known counts with its mean.
    pub quantile: f64,
}

impl Default for IntervalsConfig {
    fn default() -> IntervalsConfig {
        IntervalsConfig { min_connections: 5, look_back: Duration::from_secs(6), most_responses: 16, quantile: 0.0 }
    }
}

impl IntervalsConfig {
    /// All constants, with their ranges.
    pub const CONSTANTS: [Constant<IntervalsConfig>; 4] = constants! { IntervalsConfig:
        min_connections in 2 ..= 1000 as u32;
        look_back in 0.1 ..= 1000 as Duration;
        most_responses in 1 ..= 1_000_000 as u32;
        quantile in 0 ..= 0.999;
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
pub struct BackendState {
    /// The number of the backend.
    pub real: u32,
    /// The configured weight.
    pub configured: f64,
    /// The number of connections that were active within the active timeout.
    pub active: u64,
    /// The requests that wait for their answers.
    pub pending: Pending,
    /// The backend is healthy, and not draining.
    pub is_usable: bool,
}

/// Collects estimates of epochs, and aggregates them interval by interval.
#[derive(Debug, Clone)]
pub struct Intervals {
    config: IntervalsConfig,
    /// The number of intervals that count, with the last one.
    look_back: u32,
    /// How many connections a measured one stands for.
    stands_for: u32,
    reals: HashMap<u32, Real>,
    strays: Strays,
}

/// The history of a backend. The last interval is the current one.
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

/// The percentiles of [`Latency::percentiles_ns`].
const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// How many times the usual latency a request has waited when it counts as late: of exponential ones, 2 % wait longer.
const OVERDUE: u64 = 4;

/// A connection: client, server, protocol.
pub type Connection = (Endpoint, Endpoint, Protocol);

/// The responses of a connection in an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Responses {
    /// The number of responses.
    pub count: u64,
    /// The mean response latency.
    pub mean_ns: u64,
    /// Latencies, and the number of responses that took as long. Empty where single responses are not known.
    pub singles: Vec<(u64, u64)>,
}

/// The sums of one connection.
#[derive(Debug, Clone, Default)]
struct Sum {
    responses: f64,
    ns: f64,
    samples: u64,
    /// As in [`Responses`], of all epochs.
    singles: Vec<(u64, u64)>,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.responses += other.responses;
        self.ns += other.ns;
        self.samples += other.samples;
        self.singles.extend_from_slice(&other.singles);
    }
}

impl Intervals {
    /// Creates an empty aggregation of intervals of this length, which is not 0.
    ///
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn new(config: IntervalsConfig, interval: Duration) -> Result<Intervals, OutOfRange> {
        config.check()?;
        let look_back = intervals(config.look_back, interval);
        let strays = Strays::new(interval, look_back);
        Ok(Intervals { config, look_back, stands_for: 1, reals: HashMap::new(), strays })
    }

    /// Returns this aggregation for a sample of all connections: a request of one of these stands for requests of so many
    /// connections. Latencies, their errors, and the numbers of connections that they follow from are those of the sample.
    pub fn of_sample(self, stands_for: u32) -> Intervals {
        Intervals { stands_for, ..self }
    }

    /// Adds an epoch of a connection to a backend. It counts in the current interval; if its estimate is not valid,
    /// only its requests count. An estimate from a single response is accepted, because there are other connections:
    /// otherwise nothing would be known of a backend whose responses take as long as an epoch. So is one that is right to
    /// within about a tick of the server's clock and no better: otherwise nothing would be known of the fastest backends.
    pub fn add(&mut self, real: u32, record: &Record, estimate: &Estimate) {
        let is_short = estimate.reason == Some(Reason::CoarseClock);
        let is_of_use = estimate.is_valid() || is_short || is_single(record, estimate);
        let mean_ns = estimate.response_ns.filter(|_| is_of_use);
        let connection = (record.src, record.dst, record.protocol);
        let singles = || {
            let answers = Answers::of(&record.epoch, estimate)?;
            Some(answers.buckets().map(|bucket| (bucket.ns, bucket.count)).collect())
        };
        let responses = mean_ns.map(|mean_ns| Responses {
            count: estimate.batches,
            mean_ns,
            singles: singles().unwrap_or_default(),
        });
        self.record(real, connection, record.epoch.requests.into(), responses);
        if !is_of_use {
            self.strays.count(real, &connection, estimate.batches);
        }
    }

    /// Adds requests of a connection, and its responses, if any, that are known exactly.
    pub fn record(&mut self, real: u32, connection: Connection, requests: u64, responses: Option<Responses>) {
        let stats = self.reals.entry(real).or_default();
        stats.requests += requests;
        let Some(responses) = responses else { return };
        let Responses { count, mean_ns, singles } = responses;
        self.strays.count(real, &connection, count);
        let sum = Sum { responses: count as f64, ns: mean_ns as f64 * count as f64, samples: 1, singles };
        let newest = self.reals.get_mut(&real).and_then(|stats| stats.intervals.back_mut());
        newest.into_iter().for_each(|newest| newest.entry(connection).or_default().add(&sum));
    }

    /// Ends the interval. Returns the statistics of these backends, in their order, and drops the history of all
    /// others.
    pub fn end(&mut self, backends: &[BackendState]) -> Vec<BackendStats> {
        self.end_with(backends, |_, _, stats| stats)
    }

    /// Ends the interval as [`Intervals::end`] does. Returns in addition what was measured of each backend, to be merged
    /// with what other balancers have measured: also of backends with too few connections for a latency.
    pub fn end_measured(&mut self, backends: &[BackendState]) -> Vec<(BackendStats, Measured)> {
        let config = self.config;
        self.end_with(backends, |intervals, overdue, stats| {
            let window = config.window(intervals, overdue);
            (stats, config.gather(&window.sums, window.ages).measured(config.quantile > 0.0, window.intervals))
        })
    }

    fn end_with<T>(
        &mut self,
        backends: &[BackendState],
        mut result: impl FnMut(&VecDeque<HashMap<Connection, Sum>>, &Overdue, BackendStats) -> T,
    ) -> Vec<T> {
        let mut next = HashMap::with_capacity(backends.len());
        let answered: Vec<Option<Latency>> = backends
            .iter()
            .map(|backend| self.config.latency(&self.reals.get(&backend.real)?.intervals, &Overdue::default()))
            .collect();
        let (usual_ns, stands_for) = (median_ns(&answered), u64::from(self.stands_for));
        let waiting = self.strays.take(backends);
        self.strays.end(backends);
        let found = backends.iter().zip(answered).zip(waiting);
        let stats = found.map(|((backend, answered), (pending, strays))| {
            let mut real = self.reals.remove(&backend.real).unwrap_or_default();
            let overdue = Overdue::of(&pending, answered.map(|own| own.mean_ns).or(usual_ns));
            let stats = BackendStats {
                real: backend.real,
                configured: backend.configured,
                latency: match overdue.ages.is_empty() {
                    true => answered,
                    false => self.config.latency(&real.intervals, &overdue),
                },
                requests: real.requests * stands_for,
                active: backend.active,
                strays: strays * stands_for,
                is_usable: backend.is_usable,
            };
            let result = result(&real.intervals, &overdue, stats);
            real.requests = 0;
            real.intervals.push_back(HashMap::new());
            while real.intervals.len() > self.look_back as usize {
                real.intervals.pop_front();
            }
            next.insert(backend.real, real);
            result
        });
        let stats = stats.collect();
        self.reals = next;
        stats
    }
}

/// Returns the median of the backends' latencies. `None` if no backend has one.
fn median_ns(latencies: &[Option<Latency>]) -> Option<u64> {
    let mut means: Vec<u64> = latencies.iter().flatten().map(|latency| latency.mean_ns).collect();
    means.sort_unstable();
    means.get(means.len() / 2).copied()
}

/// Requests that have waited for [`OVERDUE`] times what is usual.
#[derive(Debug, Default)]
struct Overdue {
    /// By age: the least age, and their number.
    ages: Vec<(u64, u32)>,
    /// The networks of their clients.
    networks: Networks,
}

impl Overdue {
    fn of(pending: &Pending, usual_ns: Option<u64>) -> Overdue {
        let age_ns = usual_ns.map_or(u64::MAX, |usual_ns| usual_ns.saturating_mul(OVERDUE));
        Overdue { ages: pending.at_least(age_ns).collect(), networks: pending.networks(age_ns) }
    }

    fn count(&self) -> usize {
        self.ages.iter().map(|(_, count)| *count as usize).sum()
    }
}

/// Returns whether the estimate is of a single response, with no other objection to it.
fn is_single(record: &Record, estimate: &Estimate) -> bool {
    let epoch = &record.epoch;
    estimate.reason == Some(Reason::TooFew)
        && estimate.batches == 1
        && estimate.truth == Truth::All
        && epoch.slow == 0
        && epoch.surplus == 0
}

impl IntervalsConfig {
    /// Returns the latency over the newest intervals that together have enough connections. An overdue request that is no stray counts as
    /// a response that took as long as it has waited: a backend that answers nothing makes no estimate, and that is not
    /// good news. Such requests of few of the networks whose clients are answered count for nothing: they may have been
    /// sent to wait.
    fn latency(&self, intervals: &VecDeque<HashMap<Connection, Sum>>, overdue: &Overdue) -> Option<Latency> {
        let window = self.window(intervals, overdue);
        window.is_enough.then(|| self.gather(&window.sums, window.ages).latency(self.quantile, window.intervals))
    }

    /// Returns the newest intervals that together have enough connections, or all.
    fn window<'a>(&self, intervals: &VecDeque<HashMap<Connection, Sum>>, overdue: &'a Overdue) -> Window<'a> {
        let enough = self.min_connections as usize;
        let mut window = Window { sums: HashMap::new(), ages: &[], intervals: 0, is_enough: false };
        for (back, interval) in intervals.iter().rev().enumerate() {
            for (connection, new) in interval {
                window.sums.entry(*connection).or_default().add(new);
            }
            let mut answered = Networks::default();
            window.sums.keys().for_each(|(client, _, _)| answered.add_client(client.address));
            window.ages = if overdue.networks.are_many_of(answered) { &overdue.ages } else { &[] };
            let late = if window.ages.is_empty() { 0 } else { overdue.count() };
            window.intervals = back as u32 + 1;
            window.is_enough = window.sums.len() + late >= enough;
            if window.is_enough {
                break;
            }
        }
        window
    }

    /// Gathers connections' responses, and overdue requests by age.
    fn gather(&self, sums: &HashMap<Connection, Sum>, overdue: &[(u64, u32)]) -> Gathered {
        let answered = sums.iter().filter(|(_, sum)| sum.responses > 0.0).map(|((client, _, _), sum)| {
            let weight = sum.responses.min(self.most_responses.into());
            (Weighted { network: Network::of(client.address), ns: sum.ns / sum.responses, weight }, sum)
        });
        let mut answered: Vec<(Weighted, &Sum)> = answered.collect();
        // Sorted, because the result of a floating-point sum depends on the order.
        answered.sort_by(|(a, _), (b, _)| a.ns.total_cmp(&b.ns).then(a.weight.total_cmp(&b.weight)));
        let mut bounded: Vec<Weighted> = answered.iter().map(|(mean, _)| *mean).collect();
        networks::bound(&mut bounded);
        let mut all = Distribution::default();
        for (bounded, (mean, sum)) in bounded.iter().zip(&answered) {
            let factor = if mean.ns > 0.0 { bounded.ns / mean.ns } else { 1.0 };
            all.add(bounded.ns, &sum.singles, factor, bounded.weight);
        }
        overdue.iter().for_each(|(age_ns, count)| all.add_overdue(*age_ns, *count));
        let bounded = bounded.iter().map(|mean| (mean.ns, mean.weight, 1));
        let overdue = overdue.iter().map(|(age_ns, count)| (*age_ns as f64, 1.0, *count));
        let samples = sums.values().map(|sum| sum.samples).sum();
        Gathered { means: bounded.chain(overdue).collect(), all: all.sorted(), samples }
    }
}

/// The newest intervals that together have enough connections, or all.
struct Window<'a> {
    sums: HashMap<Connection, Sum>,
    /// The overdue requests that count.
    ages: &'a [(u64, u32)],
    /// The number of intervals.
    intervals: u32,
    is_enough: bool,
}

/// The responses of a backend.
struct Gathered {
    /// Means of connections: latency, weight, and the number of connections.
    means: Vec<(f64, f64, u32)>,
    all: Distribution,
    samples: u64,
}

impl Gathered {
    /// Returns the mean of connections' responses, and of overdue requests by age, and their quantiles.
    fn latency(&self, quantile: f64, intervals: u32) -> Latency {
        let all = &self.all;
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            self.means.iter().map(|(ns, weight, count)| f64::from(*count) * of(*ns, *weight)).sum()
        };
        let (count, weight) = (sum(&|_, _| 1.0), sum(&|_, weight| weight));
        let mean = sum(&|ns, weight| ns * weight) / weight;
        let squares = sum(&|ns, weight| ((ns - mean) * weight).powi(2));
        let error = if count > 1.0 { (squares * count / (count - 1.0)).sqrt() / weight } else { f64::INFINITY };
        let (ns, error_ns) = match quantile {
            q if q > 0.0 => (all.quantile_ns(q), all.error_ns(q)),
            _ => (mean, error),
        };
        Latency {
            ns: ns.round() as u64,
            error_ns,
            mean_ns: mean.round() as u64,
            percentiles_ns: all.is_of_singles().then(|| PERCENTILES.map(|q| all.quantile_ns(q).round() as u64)),
            connections: count as u32,
            samples: self.samples,
            intervals,
        }
    }

    /// Returns the sums from which the latency follows, and the histogram if quantiles are wanted.
    fn measured(&self, is_histogram_wanted: bool, intervals: u32) -> Measured {
        let mut measured = Measured { samples: self.samples, intervals, ..Measured::default() };
        for (ns, weight, count) in &self.means {
            measured.add(*ns, *weight, *count);
        }
        if is_histogram_wanted {
            measured.histogram = self.all.histogram();
        }
        measured
    }
}
