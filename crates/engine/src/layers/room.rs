//! A bound on what hosts may have at once, of which none can take all.

use std::collections::HashMap;

/// The part of a bound that a host may always take; as long as less than half is taken, it may take more.
pub(super) const PARTS: usize = 8;

/// Room for a limited number of things, each of one host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    limit: usize,
    taken: usize,
    by_host: HashMap<u32, usize>,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Room {
        Room { limit, ..Room::default() }
    }

    /// Whether a host may take more: while half of the room is free, and later if it has less than one of `parts`.
    pub(crate) fn has_room(&self, host: u32, parts: usize) -> bool {
        let of_host = self.by_host.get(&host).copied().unwrap_or(0);
        self.taken < self.limit / 2 || self.taken < self.limit && of_host < self.limit / parts.clamp(1, PARTS)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.taken >= self.limit
    }

    pub(crate) fn take(&mut self, host: u32) {
        self.taken += 1;
        *self.by_host.entry(host).or_default() += 1;
    }

    pub(crate) fn give_back(&mut self, host: u32) {
        let Some(of_host) = self.by_host.get_mut(&host) else {
            return;
        };
        *of_host -= 1;
        self.taken -= 1;
        if *of_host == 0 {
            self.by_host.remove(&host);
        }
    }

    /// Hosts that have taken anything.
    pub(crate) fn hosts(&self) -> usize {
        self.by_host.len()
    }
}
