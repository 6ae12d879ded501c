//! The recent and the past values of one figure, in a fixed number of bytes.

use crate::baseline::{LEAST_BASELINE, LEAST_RECENT, MOST_RECENT};

/// Intervals of the past with which the recent ones are compared at most: an hour at 10 s.
pub const PAST: usize = 360;
/// All intervals that are kept.
pub(super) const SLOTS: usize = PAST + MOST_RECENT;
/// Intervals after which the median of the past is counted anew.
const REFRESH: u64 = 8;

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
    /// Intervals since the last value.
    idle: usize,
}

impl Default for Series {
    fn default() -> Series {
        Series { ring: Box::new([MISSING; SLOTS]), past: None, idle: 0 }
    }
}

impl Series {
    /// Begins an interval, without a value at first. Returns false if no value is left.
    pub(super) fn turn(&mut self, tick: u64, number: usize) -> bool {
        self.ring[slot(tick, 0)] = MISSING;
        self.idle += 1;
        // Not all at once.
        if (tick + number as u64).is_multiple_of(REFRESH) {
            self.refresh(tick);
        }
        self.idle <= SLOTS
    }

    fn refresh(&mut self, tick: u64) {
        let mut past: Vec<Code> = self.past_values(tick).map(|(_, code)| code).collect();
        self.past = (past.len() >= LEAST_BASELINE).then(|| middle(&mut past)).flatten();
    }

    /// Sets the value of the present interval.
    pub(super) fn set(&mut self, tick: u64, code: Code) {
        self.ring[slot(tick, 0)] = code;
        self.idle = 0;
    }

    /// Returns the median of the past.
    pub(super) fn past(&self) -> Option<Code> {
        self.past
    }

    /// Returns the value of this many intervals ago.
    pub(super) fn at(&self, tick: u64, age: usize) -> Option<Code> {
        Some(self.ring[slot(tick, age)]).filter(|code| *code != MISSING)
    }

    fn values(&self, tick: u64, ages: std::ops::Range<usize>) -> impl Iterator<Item = (usize, Code)> + '_ {
        ages.rev().filter_map(move |age| Some((age, self.at(tick, age)?)))
    }

    /// Returns the values of the past with their ages, the oldest first.
    pub(super) fn past_values(&self, tick: u64) -> impl Iterator<Item = (usize, Code)> + '_ {
        self.values(tick, MOST_RECENT..SLOTS)
    }

    /// Returns the recent values with their ages, the oldest first.
    pub(super) fn recent_values(&self, tick: u64) -> impl Iterator<Item = (usize, Code)> + '_ {
        self.values(tick, 0..MOST_RECENT)
    }

    /// Returns the median of the recent values, if they are enough.
    pub(super) fn recent(&self, tick: u64) -> Option<Code> {
        let mut codes: Vec<Code> = self.recent_values(tick).map(|(_, code)| code).collect();
        (codes.len() >= LEAST_RECENT).then(|| middle(&mut codes)).flatten()
    }

    /// Returns the median of the last [`LEAST_RECENT`] intervals, if at least half of them have a value.
    pub(super) fn lately(&self, tick: u64) -> Option<Code> {
        let mut codes: Vec<Code> = self.values(tick, 0..LEAST_RECENT).map(|(_, code)| code).collect();
        (codes.len() >= LEAST_RECENT / 2).then(|| middle(&mut codes)).flatten()
    }

    /// Returns whether the median of the recent values is at least this, without sorting.
    pub(super) fn reaches(&self, tick: u64, least: i32) -> bool {
        let (mut count, mut below) = (0, 0);
        for (_, code) in self.recent_values(tick) {
            count += 1;
            below += usize::from(i32::from(code) < least);
        }
        count >= LEAST_RECENT && below <= (count - 1) / 2
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
