//! The recent and the past values of one figure, in a fixed number of bytes.

use super::LEAST_RATIO;
use crate::baseline::{LEAST_BASELINE, LEAST_RECENT, MOST_RECENT};

/// Intervals of the past with which the recent ones are compared at most: an hour at 10 s.
pub const PAST: usize = 360;
/// All intervals that are kept.
pub(super) const SLOTS: usize = PAST + MOST_RECENT;
/// A subject with a value in fewer than one of this many intervals has too few recent ones to be compared.
pub const SPARSEST: u64 = (MOST_RECENT / LEAST_RECENT) as u64;
/// Intervals at the beginning of the recent ones in which there has to be a value.
const SETTLING: usize = 6;
/// Intervals after which the median of the past is counted anew.
const REFRESH: u64 = MOST_RECENT as u64;
/// The same until there are enough.
const FIRST: u64 = 8;

/// The logarithm of a value, in 3,500 steps per factor of e, so that two bytes hold 1 µs to 68 s within 0.02 %.
pub(super) type Code = u16;
/// Stands for all smaller values, whose differences are of no interest, so that their noise is not a change by a large factor:
/// 1 µs, or 0.1 %.
const FLOOR: f64 = 1_000.0;
const STEPS: f64 = 3_500.0;
const MISSING: Code = Code::MAX;

/// Returns the number of steps of a factor.
pub(super) fn steps(factor: f64) -> i32 {
    (factor.ln() * STEPS).round() as i32
}

/// Returns the code of a value.
pub(super) fn encode(value: u64) -> Code {
    let code = (value as f64 / FLOOR).max(1.0).ln() * STEPS;
    code.round().min(f64::from(MISSING - 1)) as Code
}

/// Returns the value of a code, or of one with more or fewer steps.
pub(super) fn decode(code: i32) -> u64 {
    (FLOOR * (f64::from(code) / STEPS).exp()).round() as u64
}

/// The values of one figure of one subject, one per interval.
#[derive(Debug, Clone)]
pub(super) struct Series {
    ring: Box<[Code; SLOTS]>,
    /// The median of the past; `None` with fewer than [`LEAST_BASELINE`] values.
    past: Option<Code>,
    /// The median deviation of the past from that, in steps.
    spread: i32,
    /// Intervals since the last value.
    idle: usize,
    /// What exceeds the past by [`LEAST_RATIO`], if that is known.
    high: i32,
    /// The number of recent values, and of those among them that are as high.
    recent: [usize; 2],
}

impl Default for Series {
    fn default() -> Series {
        Series { ring: Box::new([MISSING; SLOTS]), past: None, spread: 0, idle: 0, high: i32::MAX, recent: [0; 2] }
    }
}

impl Series {
    /// Begins an interval, without a value at first. Returns false if no value is left.
    pub(super) fn turn(&mut self, tick: u64, number: usize) -> bool {
        self.count(self.ring[slot(tick, MOST_RECENT)], |number| number - 1);
        self.ring[slot(tick, 0)] = MISSING;
        self.idle += 1;
        // Not all at once.
        if (tick + number as u64).is_multiple_of(if self.past.is_some() { REFRESH } else { FIRST }) {
            self.refresh(tick);
        }
        self.idle <= SLOTS
    }

    fn refresh(&mut self, tick: u64) {
        let (mut codes, mut count) = ([0; PAST], 0);
        for (_, code) in self.values(tick, MOST_RECENT..SLOTS) {
            codes[count] = code;
            count += 1;
        }
        let codes = &mut codes[..count];
        self.past = (count >= LEAST_BASELINE).then(|| middle(codes)).flatten();
        self.high = self.past.map_or(i32::MAX, |past| i32::from(past) + steps(LEAST_RATIO));
        if let Some(past) = self.past {
            codes.iter_mut().for_each(|code| *code = code.abs_diff(past));
            self.spread = middle(codes).unwrap_or(0).into();
        }
        self.recent = [0; 2];
        (0..MOST_RECENT).for_each(|age| self.count(self.ring[slot(tick, age)], |number| number + 1));
    }

    /// Returns the median of the values of these ages, if there are enough of them.
    fn median(&self, tick: u64, ages: std::ops::Range<usize>, least: usize) -> Option<Code> {
        let (mut codes, mut count) = ([0; MOST_RECENT], 0);
        for (_, code) in self.values(tick, ages) {
            codes[count] = code;
            count += 1;
        }
        (count >= least).then(|| middle(&mut codes[..count])).flatten()
    }

    /// Counts a value that is recent now, or no longer.
    fn count(&mut self, code: Code, change: impl Fn(usize) -> usize) {
        if code == MISSING {
            return;
        }
        self.recent[0] = change(self.recent[0]);
        if i32::from(code) >= self.high {
            self.recent[1] = change(self.recent[1]);
        }
    }

    /// Sets the value of the present interval.
    pub(super) fn set(&mut self, tick: u64, code: Code) {
        let before = std::mem::replace(&mut self.ring[slot(tick, 0)], code);
        self.count(before, |number| number - 1);
        self.count(code, |number| number + 1);
        self.idle = 0;
    }

    /// Returns the median of the past.
    pub(super) fn past(&self) -> Option<Code> {
        self.past
    }

    /// Returns how uncertain the recent median is, in steps, were all values independent, but for a factor that is the same for all.
    pub(super) fn noise(&self) -> f64 {
        f64::from(self.spread) / (self.recent[0].max(1) as f64).sqrt()
    }

    /// Returns the value of this many intervals ago.
    pub(super) fn at(&self, tick: u64, age: usize) -> Option<Code> {
        Some(self.ring[slot(tick, age)]).filter(|code| *code != MISSING)
    }

    /// Returns the values of these ages with them, the oldest first.
    pub(super) fn values(&self, tick: u64, ages: std::ops::Range<usize>) -> impl Iterator<Item = (usize, Code)> + '_ {
        ages.rev().filter_map(move |age| Some((age, self.at(tick, age)?)))
    }

    /// Returns the median of the recent values, if they are enough, and not only of the last ones: a host that has just started has
    /// to load what it had in memory before.
    pub(super) fn recent(&self, tick: u64) -> Option<Code> {
        self.is_settled(tick).then(|| self.median(tick, 0..MOST_RECENT, LEAST_RECENT)).flatten()
    }

    /// Returns whether there are values in the first intervals of the recent ones.
    fn is_settled(&self, tick: u64) -> bool {
        (MOST_RECENT - SETTLING..MOST_RECENT).any(|age| self.at(tick, age).is_some())
    }

    /// Returns the median of the last [`LEAST_RECENT`] intervals, if at least half of them have a value.
    pub(super) fn lately(&self, tick: u64) -> Option<Code> {
        self.median(tick, 0..LEAST_RECENT, LEAST_RECENT / 2)
    }

    /// Returns whether the median of the recent values may exceed that of the past by [`LEAST_RATIO`].
    pub(super) fn has_risen(&self) -> bool {
        let [count, high] = self.recent;
        count >= LEAST_RECENT && high * 2 >= count
    }

    /// Forgets the values of the intervals before the last [`LEAST_RECENT`], up to this many: they are not what is usual.
    pub(super) fn blank(&mut self, tick: u64, count: usize) {
        let ages = LEAST_RECENT..SLOTS.min(LEAST_RECENT.saturating_add(count));
        ages.for_each(|age| self.ring[slot(tick, age)] = MISSING);
        self.refresh(tick);
    }

    /// Returns the number of intervals since the last value.
    pub(super) fn idle(&self) -> usize {
        self.idle
    }
}

fn slot(tick: u64, age: usize) -> usize {
    // The tick is counted from the number of slots on.
    ((tick - age as u64) % SLOTS as u64) as usize
}

/// Returns the median, the lower one of two.
pub(super) fn middle<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    let rank = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(rank).1)
}
