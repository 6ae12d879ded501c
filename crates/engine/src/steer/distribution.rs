//! The latencies of a backend's responses, of which each counts with a weight.

use std::collections::BTreeMap;

/// The number of parts of an octave in a histogram: its middle is within 3 % of what is in it.
const PARTS: f64 = 12.0;

/// A latency with the weight of the responses that took as long.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    ns: f64,
    weight: f64,
}

/// The latencies, in ascending order.
#[derive(Debug, Clone, Default)]
pub(super) struct Distribution {
    points: Vec<Point>,
    weight: f64,
    /// The weight of responses whose own latency is known; of the others it is the mean of their connection.
    single: f64,
    /// The sum of the squared weights of connections.
    squares: f64,
}

impl Distribution {
    /// Adds the responses of a connection: their mean, and if they are known their own latencies with the number of each,
    /// multiplied by `factor`.
    pub(super) fn add(&mut self, mean_ns: f64, singles: &[(u64, u64)], factor: f64, weight: f64) {
        let count: f64 = singles.iter().map(|(_, count)| *count as f64).sum();
        if count > 0.0 {
            let point =
                |(ns, number): &(u64, u64)| Point { ns: *ns as f64 * factor, weight: weight * *number as f64 / count };
            self.points.extend(singles.iter().map(point));
            self.single += weight;
        } else {
            self.points.push(Point { ns: mean_ns, weight });
        }
        self.weight += weight;
        self.squares += weight * weight;
    }

    /// Adds requests that wait for so long already.
    pub(super) fn add_overdue(&mut self, age_ns: u64, count: u32) {
        let count = f64::from(count);
        self.points.push(Point { ns: age_ns as f64, weight: count });
        self.weight += count;
        self.single += count;
        self.squares += count;
    }

    /// Returns a distribution of the weight in each octave's [`PARTS`]th, as [`Distribution::histogram`] has them. `squares`
    /// is the sum of the squared weights of connections.
    pub(super) fn of_histogram(histogram: &BTreeMap<u16, f64>, squares: f64) -> Distribution {
        let middle = |part: u16| 2f64.powf((f64::from(part) + 0.5) / PARTS);
        let points = histogram.iter().map(|(part, weight)| Point { ns: middle(*part), weight: *weight });
        let weight = histogram.values().sum();
        Distribution { points: points.collect(), weight, single: weight, squares }
    }

    /// Returns the weight in each octave's [`PARTS`]th, numbered from 1 ns on.
    pub(super) fn histogram(&self) -> BTreeMap<u16, f64> {
        let mut histogram = BTreeMap::new();
        for point in &self.points {
            *histogram.entry((point.ns.max(1.0).log2() * PARTS) as u16).or_insert(0.0) += point.weight;
        }
        histogram
    }

    /// Returns the distribution, which nothing is added to any more.
    pub(super) fn sorted(mut self) -> Distribution {
        self.points.sort_by(|a, b| a.ns.total_cmp(&b.ns).then(a.weight.total_cmp(&b.weight)));
        self
    }

    /// Returns whether the latencies of at least half of the responses are their own.
    pub(super) fn is_of_singles(&self) -> bool {
        self.single >= 0.5 * self.weight
    }

    /// Returns a quantile, from 0 to 1: the least latency that so many responses do not exceed.
    pub(super) fn quantile_ns(&self, q: f64) -> f64 {
        let mut below = 0.0;
        let reaches = |point: &&Point| {
            below += point.weight;
            // Sums of weights are rounded.
            below >= q * self.weight * (1.0 - 1e-9)
        };
        self.points.iter().find(reaches).or(self.points.last()).map_or(0.0, |point| point.ns)
    }

    /// Returns the standard error of a quantile: half the distance between those a standard error of its rank below and
    /// above. Responses of a connection are alike, so that it counts as one observation, of its weight. Infinite if the
    /// observations are too few to tell the quantile from the maximum: fewer than q / (1 - q).
    pub(super) fn error_ns(&self, q: f64) -> f64 {
        let observations = self.weight * self.weight / self.squares;
        if observations < 1.5 {
            return f64::INFINITY;
        }
        let rank = (q * (1.0 - q) / observations).sqrt();
        if q + rank > 1.0 {
            return f64::INFINITY;
        }
        (self.quantile_ns(q + rank) - self.quantile_ns((q - rank).max(0.0))) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_responses_by_their_weight() {
        let mut latencies = Distribution::default();
        latencies.add(550.0, &[(100, 9), (1_000, 1)], 1.0, 10.0);
        latencies.add(300.0, &[], 1.0, 10.0);
        let latencies = latencies.sorted();
        assert_eq!(
            [0.2, 0.45, 0.5, 0.95, 1.0].map(|q| latencies.quantile_ns(q)),
            [100.0, 100.0, 300.0, 300.0, 1_000.0]
        );
        assert!(latencies.is_of_singles());
    }

    #[test]
    fn the_error_shrinks_with_connections_and_not_with_their_responses() {
        let of = |connections: u32, weight: f64| {
            let mut latencies = Distribution::default();
            for connection in 0..connections {
                latencies.add(0.0, &[(u64::from(connection) * 1_000 / u64::from(connections), 1)], 1.0, weight);
            }
            latencies.sorted().error_ns(0.5)
        };
        assert_eq!(of(1, 16.0), f64::INFINITY);
        assert_eq!(of(100, 1.0), of(100, 16.0));
        // Of evenly spread latencies up to 1000 ns: 1000 · sqrt(0.25 / n).
        assert!((of(100, 1.0) - 50.0).abs() <= 5.0 && (of(10_000, 1.0) - 5.0).abs() <= 0.5);
    }

    #[test]
    fn a_quantile_that_is_the_maximum_of_few_has_no_error() {
        let of = |connections: usize, q| {
            let mut latencies = Distribution::default();
            (1..connections).for_each(|_| latencies.add(10e6, &[], 1.0, 1.0));
            latencies.add(100e6, &[], 1.0, 1.0);
            latencies.sorted().error_ns(q)
        };
        for (connections, q) in [(5, 0.95), (8, 0.9), (18, 0.95), (98, 0.99)] {
            assert_eq!(of(connections, q), f64::INFINITY, "{connections} at {q}");
        }
        assert!([(9, 0.9), (20, 0.95), (100, 0.99)].iter().all(|(connections, q)| of(*connections, *q).is_finite()));
    }

    #[test]
    fn requests_that_wait_make_the_tail() {
        let mut latencies = Distribution::default();
        for _ in 0..80 {
            latencies.add(100.0, &[], 1.0, 1.0);
        }
        latencies.add_overdue(1_000_000, 20);
        let latencies = latencies.sorted();
        assert_eq!((latencies.quantile_ns(0.5), latencies.quantile_ns(0.9)), (100.0, 1_000_000.0));
        assert!(!latencies.is_of_singles());
    }
}
