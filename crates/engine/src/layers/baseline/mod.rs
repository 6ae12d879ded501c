//! Whether segments take longer than they did, with how sure it is.
//!
//! Delays within an interval hang together: a queue that is long for one byte is
//! long for the next. So no test on the bytes themselves would hold. What is
//! compared are figures of whole intervals, by their ranks (Mann and Whitney
//! 1947) and by their size (Student 1908); where neighbouring intervals are alike
//! too, they count for less. What follows from that, and the false alarms that
//! were counted, is in `docs/method/stack.md`.

use std::collections::BTreeMap;

use super::Segment;
use crate::histogram::Histogram;

/// Intervals with bytes that a baseline must have of a segment.
pub const LEAST_BASELINE: usize = 30;
/// Intervals with bytes that are compared with it, at least.
pub const LEAST_RECENT: usize = 10;
/// And at most: the last ones, so that a change is seen before long.
pub const MOST_RECENT: usize = 30;
/// How often a comparison, over all its segments, may name one by chance.
pub const FALSE_ALARMS: f64 = 0.01;
/// Less than this, up or down, is no shift, however sure it is.
pub const LEAST_RATIO: f64 = 1.25;
/// Nor is less than this: a busy processor's caches make as much.
pub const LEAST_CHANGE_NS: u64 = 5_000;
/// Bytes without which an interval tells nothing of a segment, and of its p99.
const LEAST_BYTES: u64 = 10;
const LEAST_BYTES_P99: u64 = 200;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Figure {
    /// Half of the bytes took longer.
    Median,
    /// One of 100 bytes took longer.
    P99,
    /// What they took on average.
    Mean,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 3] = [Figure::Median, Figure::P99, Figure::Mean];
}

/// What a segment took in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Stamped bytes.
    pub count: u64,
    /// By [`Figure`], in nanoseconds; `None` where there were too few bytes.
    pub ns: [Option<u64>; 3],
}

impl From<&Histogram> for Figures {
    fn from(histogram: &Histogram) -> Figures {
        let count = histogram.count();
        let from = |least: u64, ns: Option<u64>| ns.filter(|_| count >= least);
        Figures {
            count,
            ns: [
                from(LEAST_BYTES, histogram.quantile_ns(0.5)),
                from(LEAST_BYTES_P99, histogram.quantile_ns(0.99)),
                from(LEAST_BYTES, histogram.mean_ns()),
            ],
        }
    }
}

/// What the segments took in an interval.
pub type Interval = BTreeMap<Segment, Figures>;

/// A segment beside its baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Which segment.
    pub segment: Segment,
    /// Intervals of the baseline with bytes, and of now.
    pub intervals: [usize; 2],
    /// Stamped bytes in the middle one of those intervals: another load may be why.
    pub bytes: [u64; 2],
    /// Each figure, where there was enough of it on both sides.
    pub changes: BTreeMap<Figure, Change>,
    /// The figure that is furthest from chance; of those that changed enough, if any
    /// did.
    pub by: Option<Figure>,
    /// How probable it is that any segment of this comparison would come out like
    /// this with nothing changed, at most. `None` where there were too few intervals.
    pub chance: Option<f64>,
    /// Whether it has shifted; `None` where there were too few intervals.
    pub shifted: Option<bool>,
}

/// A figure, then and now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// In the middle one of the baseline's intervals.
    pub was_ns: u64,
    /// In the middle one of those now.
    pub is_ns: u64,
    /// How often chance alone makes such a difference of this figure.
    chance: f64,
}

impl Change {
    /// What it takes now over what it took. Less than 1 ns is taken for 1 ns.
    pub fn ratio(&self) -> f64 {
        self.is_ns.max(1) as f64 / self.was_ns.max(1) as f64
    }

    fn is_large(&self) -> bool {
        let ratio = self.ratio();
        self.was_ns.abs_diff(self.is_ns) >= LEAST_CHANGE_NS && (ratio >= LEAST_RATIO || ratio <= 1.0 / LEAST_RATIO)
    }
}

impl Compared {
    /// The change that says most.
    pub fn change(&self) -> Option<&Change> {
        self.changes.get(&self.by?)
    }
}

/// Puts each segment that the baseline knows beside it, in the order of a byte's
/// way. Both sides in the order of time; of `recent`, the last [`MOST_RECENT`].
pub fn compare(baseline: &[Interval], recent: &[Interval]) -> Vec<Compared> {
    let recent = &recent[recent.len().saturating_sub(MOST_RECENT)..];
    let segments = Segment::ALL.into_iter().filter(|segment| segment.name() != "unexplained");
    let mut compared: Vec<_> = segments.filter_map(|segment| beside(segment, baseline, recent)).collect();
    // Bonferroni: as many chances for a false alarm as figures were looked at.
    let tests: usize = compared.iter().map(|segment| segment.changes.len()).sum();
    for segment in &mut compared {
        segment.judge(tests as f64);
    }
    compared
}

/// `None` where the baseline has too few intervals of it.
fn beside(segment: Segment, baseline: &[Interval], recent: &[Interval]) -> Option<Compared> {
    let of = |intervals: &[Interval]| -> Vec<Figures> {
        let figures = intervals.iter().filter_map(|interval| interval.get(&segment));
        figures.filter(|figures| figures.count >= LEAST_BYTES).copied().collect()
    };
    let (then, now) = (of(baseline), of(recent));
    if then.len() < LEAST_BASELINE {
        return None;
    }
    let changes = Figure::ALL.into_iter().filter_map(|figure| {
        let series = |side: &[Figures]| -> Vec<u64> {
            let values = side.iter().filter_map(|figures| figures.ns[figure as usize]);
            values.collect()
        };
        Some((figure, change(&series(&then), &series(&now))?))
    });
    let bytes = |side: &[Figures]| {
        let counts: Vec<u64> = side.iter().map(|figures| figures.count).collect();
        middle(&counts)
    };
    Some(Compared {
        segment,
        intervals: [then.len(), now.len()],
        bytes: [bytes(&then), bytes(&now)],
        changes: changes.collect(),
        by: None,
        chance: None,
        shifted: None,
    })
}

/// `None` where one of the sides has too few intervals.
fn change(then: &[u64], now: &[u64]) -> Option<Change> {
    let is_enough = then.len() >= LEAST_BASELINE && now.len() >= LEAST_RECENT;
    is_enough.then(|| Change { was_ns: middle(then), is_ns: middle(now), chance: chance(then, now) })
}

impl Compared {
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

/// The middle one of the sorted values, the lower of two; 0 of none.
fn middle(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// How often two samples of one process, each in the order of time, differ by as much, at
/// most: the likelier of no difference by ranks and by size, twice, as two were asked.
/// Ranks hold for any shape of a distribution. But where each interval resembles the one
/// before, they cannot tell a wander of a hundredth from tenfold times; sizes can.
fn chance(then: &[u64], now: &[u64]) -> f64 {
    let both = [then, now].concat();
    let (ranks, ties) = ranks(&both);
    let first = then.len();
    let logs = [without_outliers(then), without_outliers(now)].concat();
    let least = by_ranks(&ranks, ties, first).min(by_size(&logs, first));
    (2.0 * least).min(1.0)
}

/// The rank sum test in its normal approximation, which errs towards no difference far
/// from the middle. Neighbours that resemble each other widen it.
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

/// Student's test on logarithms, in Wallace's approximation (1959): with fewer degrees of
/// freedom, and a larger error of the means, where neighbours resemble each other.
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

/// Logarithms, of which those far out are drawn in to three interquartile ranges beyond
/// the quartiles (Tukey 1977): a stall of two intervals must not hide what all others
/// show. Less than the least ratio is not far out.
fn without_outliers(values: &[u64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let [low, high] = [sorted.len() / 4, sorted.len() * 3 / 4].map(|place| log(sorted[place]));
    let far = (3.0 * (high - low)).max(LEAST_RATIO.ln());
    values.iter().map(|ns| log(*ns).clamp(low - far, high + far)).collect()
}

/// How often a normal deviate is as far from 0 as that, or further.
fn two_sided(deviation: f64) -> f64 {
    libm::erfc(deviation / std::f64::consts::SQRT_2)
}

/// The rank of each value, from 1; equal ones share the mean of theirs. And the sum over
/// groups of t equal ones of t^3 - t.
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

/// The sum of squares within both sides, of which `first` is the length of the first; and
/// how much a value resembles the one before: the autocorrelation within the sides. That
/// comes out too low on short series, by (1 + 3r) / n on each (Kendall 1954), which is put
/// right; and as it is only known to one standard error, that is added. At most 0.95.
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
