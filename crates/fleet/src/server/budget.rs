//! The memory for batches that are being received or wait to be stored, over all agents.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of frames that the server holds at once at most.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    taken: AtomicUsize,
    skipped: AtomicU64,
}

/// The part of the budget that one frame takes, until this is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Budget {
        Budget { limit, taken: AtomicUsize::new(0), skipped: AtomicU64::new(0) }
    }

    /// Starts a share, which is empty.
    pub(super) fn share(&self) -> BudgetShare<'_> {
        BudgetShare { budget: self, bytes: 0 }
    }

    /// Counts a batch that was not read for lack of memory.
    pub(super) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}

impl BudgetShare<'_> {
    /// Takes more bytes, if there are as many.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.budget.limit);
        let is_granted = self.budget.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.bytes += if is_granted { bytes } else { 0 };
        is_granted
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_returned_and_never_exceed_the_budget() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.grow(60) && !second.grow(41) && second.grow(40) && !first.grow(1));
        drop(first);
        assert!(second.grow(60));
        drop(second);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }
}
