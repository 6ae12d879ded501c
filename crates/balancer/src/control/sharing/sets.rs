//! The set of weights that counts, those that will soon, and what has been proposed.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use crate::shared::{
    member::LEAD_TIME,
    set::{VipWeights, WeightSet},
};

/// Sets of weights, and the time from which each counts.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The set that counts.
    pub counting: Option<WeightSet>,
    /// Sets that are to count from some time on, the newest last.
    next: VecDeque<(Instant, WeightSet)>,
    /// The weights that have been proposed and are not in a set yet.
    pub proposed: Option<BTreeMap<String, VipWeights>>,
}

impl Sets {
    pub(super) fn new(counting: Option<WeightSet>) -> Sets {
        Sets { counting, ..Sets::default() }
    }

    /// Takes a set that is new. `unix_ms` is the Unix time in milliseconds.
    pub(super) fn arrive(&mut self, set: WeightSet, now: Instant, unix_ms: u64) {
        // Whatever a clock says, a set counts soon.
        let wait = Duration::from_millis(set.from_ms.saturating_sub(unix_ms)).min(LEAD_TIME);
        self.next.push_back((now + wait, set));
        self.proposed = None;
    }

    /// Lets the newest set count whose time has come. True if there is one.
    pub(super) fn switch(&mut self, now: Instant) -> bool {
        let newest = self.next.iter().rposition(|(due, _)| *due <= now);
        let due = newest.and_then(|newest| self.next.drain(..=newest).next_back());
        let is_new = due.is_some();
        self.counting = due.map(|(_, set)| set).or(self.counting.take());
        is_new
    }

    /// Returns the weights that the next proposal is compared with.
    pub(super) fn last(&self) -> Option<&BTreeMap<String, VipWeights>> {
        let newest = self.next.back().map(|(_, set)| set).or(self.counting.as_ref());
        self.proposed.as_ref().or(newest.map(|set| &set.vips))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX_MS: u64 = 1_700_000_000_000;

    fn set(number: u64, from_ms: u64) -> WeightSet {
        let vips =
            BTreeMap::from([("web".to_owned(), VipWeights { digest: number.to_string(), ..Default::default() })]);
        WeightSet { number, from_ms, vips, ..WeightSet::default() }
    }

    fn number(sets: &Sets) -> Option<u64> {
        sets.counting.as_ref().map(|set| set.number)
    }

    #[test]
    fn each_set_counts_from_its_time_on_however_fast_others_follow() {
        let begin = Instant::now();
        let mut sets = Sets::default();
        // They are written every 200 ms, and count half a second later.
        for step in 0..10 {
            let (now, unix_ms) = (begin + Duration::from_millis(200 * step), UNIX_MS + 200 * step);
            sets.arrive(set(step, unix_ms + 500), now, unix_ms);
            sets.switch(now);
            assert_eq!(number(&sets), step.checked_sub(3), "at step {step}");
            assert_eq!(sets.last().map(|last| last["web"].digest.clone()), Some(step.to_string()));
        }
        assert!(sets.switch(begin + Duration::from_secs(9)));
        assert_eq!(number(&sets), Some(9));
        assert!(!sets.switch(begin + Duration::from_secs(99)), "nothing is new");
        assert_eq!(number(&sets), Some(9));
    }

    #[test]
    fn whatever_clocks_say_a_set_counts_within_the_lead_time_and_after_those_before() {
        let now = Instant::now();
        let mut sets = Sets::new(Some(set(1, 0)));
        sets.arrive(set(2, u64::MAX), now, UNIX_MS);
        sets.arrive(set(3, 0), now, UNIX_MS);
        assert!(sets.switch(now));
        assert_eq!(number(&sets), Some(3));
        assert!(!sets.switch(now + LEAD_TIME), "the older one does not come back");
    }
}
