//! What several balancers have measured of a backend, merged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{IntervalsConfig, Latency, distribution::Distribution};

/// What a balancer has measured of a backend's response latency: sums, so that those of several balancers add up to what
/// one would have measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The number of connections, and of requests that have waited for too long.
    #[serde(rename = "n")]
    pub connections: u32,
    /// The number of samples: one per connection and epoch.
    #[serde(rename = "s", default)]
    pub samples: u64,
    /// The number of past intervals that were looked back at.
    #[serde(rename = "i", default)]
    pub intervals: u32,
    /// The sum of the weights of connections.
    #[serde(rename = "w")]
    pub weight: f64,
    /// The sum of weight times latency in nanoseconds.
    #[serde(rename = "wx")]
    pub weighted_ns: f64,
    /// The sums of the squared weight times 1, the latency, and the squared latency.
    #[serde(rename = "w2")]
    pub squares: [f64; 3],
    /// The weight of responses by latency, in twelfths of an octave from 1 ns on; empty where only means are wanted.
    #[serde(rename = "h", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histogram: BTreeMap<u16, f64>,
}

/// The greatest number of a part of a histogram: 2^64 ns.
const MOST_PART: u16 = 64 * 12;
/// The greatest weight that is believed.
const MOST_WEIGHT: f64 = 1e12;
/// The longest mean latency that is believed, in nanoseconds: a day.
const MOST_NS: f64 = 86_400e9;

impl Measured {
    /// Adds connections that each have this mean latency and weight.
    pub(super) fn add(&mut self, ns: f64, weight: f64, connections: u32) {
        let count = f64::from(connections);
        self.connections += connections;
        self.weight += count * weight;
        self.weighted_ns += count * weight * ns;
        for (power, sum) in self.squares.iter_mut().enumerate() {
            *sum += count * weight * weight * ns.powi(power as i32);
        }
    }

    /// Returns whether these are sums that a balancer can have measured. Others would make what they are merged with
    /// useless.
    pub fn is_plausible(&self) -> bool {
        let is_sum = |sum: f64| (0.0..=MOST_WEIGHT * MOST_WEIGHT * MOST_NS * MOST_NS).contains(&sum);
        let parts = self.histogram.iter().all(|(part, weight)| *part <= MOST_PART && is_weight(*weight));
        parts
            && is_weight(self.weight)
            && self.weighted_ns <= self.weight * MOST_NS
            && is_sum(self.weighted_ns)
            && self.squares.iter().all(|sum| is_sum(*sum))
    }

    fn merge(&mut self, other: &Measured) {
        self.connections = self.connections.saturating_add(other.connections);
        self.samples = self.samples.saturating_add(other.samples);
        self.intervals = self.intervals.max(other.intervals);
        self.weight += other.weight;
        self.weighted_ns += other.weighted_ns;
        self.squares.iter_mut().zip(other.squares).for_each(|(sum, other)| *sum += other);
        for (part, weight) in &other.histogram {
            *self.histogram.entry(*part).or_insert(0.0) += weight;
        }
    }
}

fn is_weight(weight: f64) -> bool {
    (0.0..=MOST_WEIGHT).contains(&weight)
}

impl IntervalsConfig {
    /// Returns the latency that one balancer would have measured where several have; `None` if they have too few
    /// connections together. A quantile is of the histogram, exact within 3 %; percentiles are not known.
    pub fn merged<'a>(&self, parts: impl IntoIterator<Item = &'a Measured>) -> Option<Latency> {
        let mut all = Measured::default();
        parts.into_iter().for_each(|part| all.merge(part));
        if all.connections < self.min_connections || all.weight <= 0.0 {
            return None;
        }
        let (count, mean) = (f64::from(all.connections), all.weighted_ns / all.weight);
        let [ones, linear, squared] = all.squares;
        // The sum of ((ns - mean) · weight)², which rounding may make negative.
        let squares = (squared - 2.0 * mean * linear + mean * mean * ones).max(0.0);
        let error = if count > 1.0 { (squares * count / (count - 1.0)).sqrt() / all.weight } else { f64::INFINITY };
        let (ns, error_ns) = match self.quantile {
            q if q > 0.0 && !all.histogram.is_empty() => {
                let distribution = Distribution::of_histogram(&all.histogram, ones);
                (distribution.quantile_ns(q), distribution.error_ns(q))
            }
            _ => (mean, error),
        };
        Some(Latency {
            ns: ns.round() as u64,
            error_ns,
            mean_ns: mean.round() as u64,
            percentiles_ns: None,
            connections: all.connections,
            samples: all.samples,
            intervals: all.intervals,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        measure::{Endpoint, Protocol},
        steer::{BackendState, Intervals, Pending, Responses},
    };

    /// Ends an interval with a connection of each mean latency, from networks of their own.
    fn interval(config: IntervalsConfig, latencies: &[(u8, u64)]) -> (Option<Latency>, Measured) {
        let mut intervals = Intervals::new(config, Duration::from_secs(1)).expect("the constants are in their ranges");
        for (network, mean_ns) in latencies {
            let client = Endpoint { address: [198, 51, *network, 1].into(), port: 1 };
            let server = Endpoint { address: [192, 0, 2, 1].into(), port: 80 };
            let responses = Responses { count: 4, mean_ns: *mean_ns, singles: vec![(*mean_ns, 4)] };
            intervals.record(1, (client, server, Protocol(6)), 4, Some(responses));
        }
        let state = BackendState { real: 1, configured: 1.0, active: 1, pending: Pending::default(), is_usable: true };
        let (stats, measured) = intervals.end_measured(&[state]).remove(0);
        (stats.latency, measured)
    }

    #[test]
    fn parts_of_the_connections_make_the_latency_of_all() {
        let all: Vec<(u8, u64)> = (0..30).map(|at| (at, 1_000_000 + 137_000 * u64::from(at).pow(2))).collect();
        for quantile in [0.0, 0.5, 0.9] {
            let config = IntervalsConfig { quantile, ..IntervalsConfig::default() };
            let alone = interval(config, &all).0.expect("there are enough connections");
            let parts: Vec<Measured> = all.chunks(4).map(|part| interval(config, part).1).collect();
            let merged = config.merged(&parts).expect("there are enough connections together");
            let near =
                |merged: f64, alone: f64, by: f64| assert!((merged - alone).abs() <= by * alone, "{merged} {alone}");
            // Networks that stand out are bounded within each part alone.
            near(merged.mean_ns as f64, alone.mean_ns as f64, 0.1);
            near(merged.ns as f64, alone.ns as f64, 0.1);
            assert_eq!(merged.connections, 30);
            assert_eq!((merged.samples, merged.intervals), (30, 1));
        }
    }

    #[test]
    fn the_mean_and_its_error_are_exact_where_nothing_stands_out() {
        let config = IntervalsConfig::default();
        let all: Vec<(u8, u64)> = (0..8).map(|at| (at, 2_000_000 + 50_000 * u64::from(at))).collect();
        let alone = interval(config, &all).0.expect("there are enough connections");
        let parts = [interval(config, &all[..3]).1, interval(config, &all[3..]).1];
        assert_eq!(interval(config, &all[..3]).0, None, "three are too few");
        let merged = config.merged(&parts).expect("together they are enough");
        assert_eq!((merged.mean_ns, merged.ns), (alone.mean_ns, alone.ns));
        assert!((merged.error_ns - alone.error_ns).abs() < 1e-6 * alone.error_ns);
        assert_eq!(config.merged(&parts[..1]), None);
        assert_eq!(config.merged(&[]), None);
    }

    #[test]
    fn sums_that_nobody_measures_are_not_plausible() {
        let good = interval(IntervalsConfig { quantile: 0.9, ..IntervalsConfig::default() }, &[(1, 5_000_000)]).1;
        assert!(good.is_plausible() && !good.histogram.is_empty());
        let bad = |change: &dyn Fn(&mut Measured)| {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(!bad.is_plausible(), "{bad:?}");
        };
        bad(&|bad| bad.weight = f64::NAN);
        bad(&|bad| bad.weight = -1.0);
        bad(&|bad| bad.weighted_ns = 1e30);
        bad(&|bad| bad.squares[2] = f64::INFINITY);
        bad(&|bad| bad.histogram = BTreeMap::from([(u16::MAX, 1.0)]));
        bad(&|bad| bad.histogram = BTreeMap::from([(1, -1.0)]));
    }
}
