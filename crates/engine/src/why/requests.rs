//! How long requests were waited for, by what they asked.

use std::{collections::HashMap, sync::Arc};

use super::Silences;

/// Labels that are kept apart; requests of others are counted.
const MAX_LABELS: usize = 1024;

/// Requests by their label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests {
    by_label: HashMap<Arc<str>, Silences>,
    omitted: u64,
}

impl Requests {
    /// Adds a request and the wait for its answer.
    pub fn add(&mut self, label: &Arc<str>, wait_ns: u64) {
        if !self.by_label.contains_key(label) && self.by_label.len() >= MAX_LABELS {
            self.omitted += 1;
            return;
        }
        self.by_label.entry(Arc::clone(label)).or_default().add(wait_ns);
    }

    /// Returns the labels whose requests were waited for longest in the mean, the slowest first, at most `most`.
    pub fn slowest(&self, most: usize) -> Vec<(&str, Silences)> {
        let mut all: Vec<_> = self.by_label.iter().map(|(label, waits)| (&**label, *waits)).collect();
        let mean = |waits: &Silences| waits.mean_ns().unwrap_or(0.0);
        all.sort_by(|(a_label, a), (b_label, b)| mean(b).total_cmp(&mean(a)).then_with(|| a_label.cmp(b_label)));
        all.truncate(most);
        all
    }

    /// Returns the number of requests that found no room.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_those_beyond_the_bound_are_counted() {
        let mut requests = Requests::default();
        for (label, wait_ns) in [("GET /a", 10), ("GET /b", 30), ("GET /a", 30), ("GET /c", 1)] {
            requests.add(&label.into(), wait_ns);
        }
        let slowest: Vec<_> = requests.slowest(2).into_iter().map(|(label, waits)| (label, waits.count)).collect();
        assert_eq!(slowest, [("GET /b", 1), ("GET /a", 2)]);
        for number in 0..2000 {
            requests.add(&format!("GET /{number}").into(), 1);
        }
        assert_eq!((requests.by_label.len(), requests.omitted()), (MAX_LABELS, 2003 - MAX_LABELS as u64));
    }
}
