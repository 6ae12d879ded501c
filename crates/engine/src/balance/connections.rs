//! What a sweep of the connection table finds.

use crate::{abi, steer::Pending};

/// The number of connections by backend. A connection is active if it had a packet within the active timeout, or has a
/// request that waits for its answer, and its client has not closed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveConnections {
    words: Vec<u64>,
    pending: Vec<Pending>,
}

/// Returns the core's reason for a sweep of a connection table in which `taken` of `slots` are taken. While a quarter is
/// free, connections that may go on are not forgotten.
pub fn sweep_reason(taken: u64, slots: u64) -> u32 {
    let has_room = 4 * taken <= 3 * slots;
    abi::DWELL_CLOSE_IDLE | if has_room { abi::DWELL_SWEEP_HAS_ROOM } else { 0 }
}

impl ActiveConnections {
    /// Converts from the core's format, by the numbers of backends.
    pub fn from_core(mut words: Vec<u64>, pending: &[abi::dwell_pending]) -> ActiveConnections {
        // No backend has the number 0.
        if let Some(first) = words.first_mut() {
            *first = 0;
        }
        ActiveConnections { words, pending: pending.iter().map(Pending::from_core).collect() }
    }

    /// Returns the number of active connections of a backend.
    pub fn of(&self, real: u32) -> u64 {
        self.word(real) & u64::from(u32::MAX)
    }

    /// Returns the number of a backend's connections in the connection table: their packets still go to the backend.
    pub fn tracked(&self, real: u32) -> u64 {
        self.word(real) >> 32
    }

    /// Returns the number of active connections of all backends.
    pub fn total(&self) -> u64 {
        self.words.iter().map(|word| word & u64::from(u32::MAX)).sum()
    }

    /// Returns the requests to a backend that wait for their answers.
    pub fn pending(&self, real: u32) -> Pending {
        self.pending.get(real as usize).copied().unwrap_or_default()
    }

    /// Returns the open connections of backends, of which some end without a packet that says so: those that were found
    /// active. `before` is what packets had told when the sweep began, `now` when it ended. Of what has changed meanwhile,
    /// the sweep has seen half on average.
    pub fn open(&self, before: &[i64], now: &[i64]) -> Vec<i64> {
        let told = (0u32..).zip(before.iter().zip(now));
        told.map(|(number, (before, now))| self.of(number).cast_signed() + (now - before) / 2).collect()
    }

    fn word(&self, real: u32) -> u64 {
        self.words.get(real as usize).copied().unwrap_or(0)
    }
}
