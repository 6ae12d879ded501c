//! The values of a row in the last intervals.

use super::{Figures, Metric};

/// How many intervals are kept.
pub const PAST: usize = 24;

/// The last values of each metric, in a ring.
#[derive(Debug, Clone)]
pub struct Past {
    /// NaN where a value was unknown.
    values: [[f32; PAST]; Metric::ALL.len()],
    next: u8,
}

impl Default for Past {
    fn default() -> Past {
        Past { values: [[f32::NAN; PAST]; Metric::ALL.len()], next: 0 }
    }
}

impl Past {
    /// Adds the figures of an interval; the oldest ones are lost.
    pub(super) fn push(&mut self, figures: &Figures) {
        let at = usize::from(self.next);
        for (ring, metric) in self.values.iter_mut().zip(Metric::ALL) {
            ring[at] = figures.value(metric).map_or(f32::NAN, |value| value as f32);
        }
        self.next = ((at + 1) % PAST) as u8;
    }

    /// Returns the values of a metric, the oldest first; `None` where a value was unknown.
    pub fn of(&self, metric: Metric) -> impl Iterator<Item = Option<f64>> + use<'_> {
        let ring = &self.values[metric as usize];
        let (newer, older) = ring.split_at(usize::from(self.next));
        older.iter().chain(newer).map(|value| (!value.is_nan()).then_some(f64::from(*value)))
    }
}
