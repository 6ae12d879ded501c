//! Detects whether something takes longer than before, and with what confidence: a segment of the host, a group of round
//! trips, the responses of a server.
//!
//! Delays within an interval are correlated: a queue that is long for one byte is long for the next. Therefore tests on
//! individual samples would be invalid. Instead, figures of whole intervals are compared by rank (Mann and Whitney 1947)
//! and by size (Student 1908), and correlated neighbouring intervals count for less. The consequences, and the measured
//! rate of false alarms, are in `docs/method/stack.md`.

use std::collections::BTreeMap;

use crate::histogram::Histogram;

/// The number of intervals with samples that a baseline needs for a key.
pub const LEAST_BASELINE: usize = 30;
/// The least number of recent intervals with samples that are compared with the baseline.
pub const LEAST_RECENT: usize = 10;
/// The greatest number of recent intervals that are compared: only the last ones count, so that a change is noticed
/// soon.
pub const MOST_RECENT: usize = 30;
/// The probability that a comparison reports any of its keys by chance.
pub const FALSE_ALARMS: f64 = 0.01;
/// A smaller ratio, up or down, is not a shift, however significant.
pub const LEAST_RATIO: f64 = 1.25;
/// A smaller change is not a shift either: the caches of a busy processor cause as much.
pub const LEAST_CHANGE_NS: u64 = 5_000;
/// The number of samples that an interval needs to count for a key, and to count for its p99.
const LEAST_SAMPLES: u64 = 10;
const LEAST_SAMPLES_P99: u64 = 200;

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Figure {
    /// The time that half of the samples exceeded.
    Median,
    /// The time that one of 100 samples exceeded.
    P99,
    /// The mean time.
    Mean,
}

impl Figure {
    /// All figures.
    pub const ALL: [Figure; 3] = [Figure::Median, Figure::P99, Figure::Mean];
}

/// The figures of a key in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// The number of samples.
    pub count: u64,
    /// The figures in nanoseconds, indexed by [`Figure`]; `None` if there were too few samples.
    pub ns: [Option<u64>; 3],
}

impl From<&Histogram> for Figures {
    fn from(histogram: &Histogram) -> Figures {
        let count = histogram.count();
        let from = |least: u64, ns: Option<u64>| ns.filter(|_| count >= least);
        Figures {
            count,
            ns: [
                from(LEAST_SAMPLES, histogram.quantile_ns(0.5)),
                from(LEAST_SAMPLES_P99, histogram.quantile_ns(0.99)),
                from(LEAST_SAMPLES, histogram.mean_ns()),
            ],
        }
    }
}

/// The figures of all keys in one interval.
pub type Interval<K> = BTreeMap<K, Figures>;

/// The comparison of a key with its baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison<K> {
    /// What is compared.
    pub key: K,
    /// The number of intervals with samples: of the baseline, and recent ones.
    pub intervals: [usize; 2],
    /// The median number of samples of those intervals: a different load may be the cause of a shift.
    pub samples: [u64; 2],
    /// The change of each figure that had enough data on both sides.
    pub changes: BTreeMap<Figure, Change>,
    /// The most significant figure, preferably one that changed enough to count as a shift.
    pub by: Option<Figure>,
    /// An upper bound of the probability that any key of this comparison would look like this although nothing
    /// changed. `None` if there were too few intervals.
    pub chance: Option<f64>,
    /// Whether the key has shifted; `None` if there were too few intervals.
    pub shifted: Option<bool>,
}

/// A figure before and now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The median over the intervals of the baseline.
    pub was_ns: u64,
    /// The median over the recent intervals.
    pub is_ns: u64,
    /// The probability that chance alone makes such a difference of this figure.
    chance: f64,
}

impl Change {
    /// Returns the current time as a multiple of the earlier one. Times below 1 ns count as 1 ns.
    pub fn ratio(&self) -> f64 {
        self.is_ns.max(1) as f64 / self.was_ns.max(1) as f64
    }

    fn is_large(&self) -> bool {
        let ratio = self.ratio();
        self.was_ns.abs_diff(self.is_ns) >= LEAST_CHANGE_NS && (ratio >= LEAST_RATIO || ratio <= 1.0 / LEAST_RATIO)
    }
}

impl<K> Comparison<K> {
    /// Returns the most significant change.
    pub fn change(&self) -> Option<&Change> {
        self.changes.get(&self.by?)
    }
}

/// Compares each key that has enough intervals in the baseline, in the order of the keys. Both lists are in the order of
/// time; only the last [`MOST_RECENT`] recent intervals count.
pub fn compare<K: Ord + Clone>(baseline: &[Interval<K>], recent: &[Interval<K>]) -> Vec<Comparison<K>> {
    let recent = &recent[recent.len().saturating_sub(MOST_RECENT)..];
    let (mut then, now) = (by_key(baseline), by_key(recent));
    then.retain(|_, figures| figures.len() >= LEAST_BASELINE);
    let mut compared: Vec<_> =
        then.iter().map(|(key, then)| compare_key(*key, then, now.get(key).map_or(&[], Vec::as_slice))).collect();
    // Bonferroni correction: there are as many chances for a false alarm as there are tests.
    let tests: usize = compared.iter().map(|one| one.changes.len()).sum();
    for one in &mut compared {
        one.judge(tests as f64);
    }
    compared
}

/// Returns the figures of each key, in the order of time, without those of too few samples.
fn by_key<K: Ord>(intervals: &[Interval<K>]) -> BTreeMap<&K, Vec<Figures>> {
    let mut series: BTreeMap<&K, Vec<Figures>> = BTreeMap::new();
    for (key, figures) in intervals.iter().flatten().filter(|(_, figures)| figures.count >= LEAST_SAMPLES) {
        series.entry(key).or_default().push(*figures);
    }
    series
}

/// Compares one key.
fn compare_key<K: Clone>(key: &K, then: &[Figures], now: &[Figures]) -> Comparison<K> {
    let changes = Figure::ALL.into_iter().filter_map(|figure| {
        let series = |side: &[Figures]| -> Vec<u64> {
            let values = side.iter().filter_map(|figures| figures.ns[figure as usize]);
            values.collect()
        };
        Some((figure, change(&series(then), &series(now))?))
    });
    let samples = |side: &[Figures]| {
        let counts: Vec<u64> = side.iter().map(|figures| figures.count).collect();
        middle(&counts)
    };
    Comparison {
        key: key.clone(),
        intervals: [then.len(), now.len()],
        samples: [samples(then), samples(now)],
        changes: changes.collect(),
        by: None,
        chance: None,
        shifted: None,
    }
}

/// Compares one figure. `None` if one of the sides has too few intervals.
fn change(then: &[u64], now: &[u64]) -> Option<Change> {
    let is_enough = then.len() >= LEAST_BASELINE && now.len() >= LEAST_RECENT;
    is_enough.then(|| Change { was_ns: middle(then), is_ns: middle(now), chance: chance(then, now) })
}

impl<K> Comparison<K> {
    fn judge(&mut self, tests: f64) {
        let all = || self.changes.iter().map(|(figure, change)| (*figure, change));
        let least = |changes: &mut dyn Iterator<Item = (Figure, &Change)>| {
            changes
                .min_by(|(_, one), (_, other)| one.chance.total_cmp(&other.chance))
                .map(|(figure, change)| (figure, (change.chance * tests).min(1.0)))
        };
        let large = least(&mut all().filter(|(_, change)| change.is_large()));
        let Some((by, chance)) = large.or_else(|| least(&mut all())) else {
            return;
        };
        self.by = Some(by);
        self.chance = Some(chance);
        self.shifted = Some(large.is_some() && chance <= FALSE_ALARMS);
    }
}

/// Returns the median, the lower one of two; 0 if there are no values.
fn middle(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Returns an upper bound of the probability that two samples of one process, each in the order of time, differ this
/// much: the smaller probability of the test by rank and the test by size, doubled, because two tests were made. The
/// rank test holds for any distribution. But if each interval resembles the previous one, it cannot distinguish a drift
/// of one percent from a tenfold increase, whereas the test by size can.
pub(crate) fn chance(then: &[u64], now: &[u64]) -> f64 {
    let both = [then, now].concat();
    let (ranks, ties) = ranks(&both);
    let first = then.len();
    let logs = [without_outliers(then), without_outliers(now)].concat();
    let least = by_ranks(&ranks, ties, first).min(by_size(&logs, first));
    (2.0 * least).min(1.0)
}

/// The rank sum test in its normal approximation, which is conservative in the tails. Correlation between neighbours
/// increases the variance.
fn by_ranks(ranks: &[f64], ties: f64, first: usize) -> f64 {
    let both = ranks.len() as f64;
    let (n, m) = (first as f64, both - first as f64);
    let excess = ranks[first..].iter().sum::<f64>() - m * (both + 1.0) / 2.0;
    let variance = n * m / 12.0 * (both + 1.0 - ties / (both * (both - 1.0)));
    if variance <= 0.0 {
        return 1.0; // all values are the same
    }
    let (_, likeness) = within(ranks, first);
    let widened = variance * (1.0 + likeness) / (1.0 - likeness);
    two_sided((excess.abs() - 0.5).max(0.0) / widened.sqrt())
}

/// Student's test on logarithms, in Wallace's approximation (1959). Correlation between neighbours reduces the degrees
/// of freedom and increases the error of the means.
fn by_size(logs: &[f64], first: usize) -> f64 {
    let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len() as f64;
    let both = logs.len() as f64;
    let (n, m) = (first as f64, both - first as f64);
    let (squares, likeness) = within(logs, first);
    let alike = (1.0 + likeness) / (1.0 - likeness);
    let freedom = (both / alike - 2.0).max(1.0);
    let error = squares / (both - 2.0) * alike * (1.0 / n + 1.0 / m);
    let difference = mean(&logs[first..]) - mean(&logs[..first]);
    if error <= 0.0 {
        return 1.0; // all are the same, or ranks tell
    }
    let narrowed = (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0);
    two_sided(narrowed * (freedom * (difference * difference / error / freedom).ln_1p()).sqrt())
}

/// Returns logarithms, with outliers limited to three interquartile ranges beyond the quartiles (Tukey 1977): a stall
/// of two intervals must not hide the rest. A deviation below the least ratio is not an outlier.
fn without_outliers(values: &[u64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let [low, high] = [sorted.len() / 4, sorted.len() * 3 / 4].map(|place| log(sorted[place]));
    let far = (3.0 * (high - low)).max(LEAST_RATIO.ln());
    values.iter().map(|ns| log(*ns).clamp(low - far, high + far)).collect()
}

/// Returns the probability that a normal deviate is at least this far from 0.
fn two_sided(deviation: f64) -> f64 {
    libm::erfc(deviation / std::f64::consts::SQRT_2)
}

/// Returns the rank of each value, from 1, where equal values share their mean rank; and the sum of t^3 - t over groups
/// of t equal values.
fn ranks(values: &[u64]) -> (Vec<f64>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&index| values[index]);
    let mut ranks = vec![0.0; values.len()];
    let (mut before, mut ties) = (0, 0.0);
    for equal in order.chunk_by(|&one, &other| values[one] == values[other]) {
        let size = equal.len() as f64;
        for &index in equal {
            ranks[index] = before as f64 + (size + 1.0) / 2.0;
        }
        before += equal.len();
        ties += size.powi(3) - size;
    }
    (ranks, ties)
}

/// Returns the sum of squares within both sides, where `first` is the length of the first side, and the autocorrelation
/// within the sides. The estimate of the autocorrelation on short series is too low by (1 + 3r) / n on each side
/// (Kendall 1954), which is corrected; and because it is only known to one standard error, that is added. At most 0.95.
fn within(values: &[f64], first: usize) -> (f64, f64) {
    let (mut products, mut squares) = (0.0, 0.0);
    for side in [&values[..first], &values[first..]] {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        let deviations: Vec<f64> = side.iter().map(|value| value - mean).collect();
        products += deviations.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        squares += deviations.iter().map(|one| one * one).sum::<f64>();
    }
    let found = if squares > 0.0 { products / squares } else { 0.0 };
    let both = values.len() as f64;
    let found = (found + 2.0 * (1.0 + 3.0 * found) / both).clamp(0.0, 0.95);
    let doubt = ((1.0 - found * found) / both).sqrt();
    (squares, (found + doubt).min(0.95))
}

#[cfg(test)]
mod tests;
