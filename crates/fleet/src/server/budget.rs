//! The memory for batches that are being received or wait to be stored, over all agents.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// When half of the budget is taken, agents at one address have at most this part of it.
const PARTS: usize = 8;

/// Bytes of batches that the server holds at once at most.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    taken: Mutex<Taken>,
    skipped: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The part of the budget that one batch takes, until this is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare<'a> {
    budget: &'a Budget,
    /// Whose agent sends the batch.
    address: IpAddr,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Budget {
        Budget { limit, taken: Mutex::default(), skipped: AtomicU64::new(0) }
    }

    /// Starts a share, which is empty.
    pub(super) fn share(&self, address: IpAddr) -> BudgetShare<'_> {
        BudgetShare { budget: self, address, bytes: 0 }
    }

    /// Counts a batch that was not read for lack of memory.
    pub(super) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare<'_> {
    /// Takes more bytes, if there are as many.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let limit = self.budget.limit;
        let mut taken = self.budget.taken();
        let (all, of_address) = (taken.all, taken.by_address.get(&self.address).copied().unwrap_or(0));
        let fits = |taken: usize, limit: usize| taken.checked_add(bytes).is_some_and(|taken| taken <= limit);
        if !fits(all, limit) || !fits(all, limit / 2) && !fits(of_address, limit / PARTS) {
            return false;
        }
        taken.all += bytes;
        *taken.by_address.entry(self.address).or_default() += bytes;
        self.bytes += bytes;
        true
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.budget.taken();
        taken.all -= self.bytes;
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= self.bytes;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_returned_and_never_exceed_the_budget() {
        let budget = Budget::new(800);
        let [greedy, modest, other] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut shares: Vec<_> = (0..4).map(|_| budget.share(greedy)).collect();
        assert!(shares.iter_mut().all(|share| share.grow(100)), "half of it");
        assert!(!shares[0].grow(1), "the rest is for others");
        let (mut first, mut second) = (budget.share(modest), budget.share(other));
        assert!(first.grow(60) && !first.grow(41) && first.grow(40));
        assert!(second.grow(100) && !second.grow(usize::MAX));
        drop(shares);
        assert!(second.grow(200));
        drop((first, second));
        let taken = budget.taken();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }
}
