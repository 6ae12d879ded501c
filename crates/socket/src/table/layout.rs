//! The layout of the table in memory.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use dwell_engine::socket::{Account, Peaks};

use super::{raw_config, record};

/// Number of slots. Only slots in use occupy memory.
pub const SLOTS: usize = 16_384;

/// Version of the layout; every change of the layout increments it.
pub(super) const VERSION: u64 = 3;

/// The first word of the table.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"dwelltbl");

/// Number of pairs of option and error number that are counted separately.
pub(super) const REFUSALS: usize = 16;

/// The table. Zeroes are an empty table without a header.
#[repr(C)]
pub struct Layout {
    pub(super) header: Header,
    /// Cookie of each slot's socket; 0 if the slot is free.
    pub(super) keys: [AtomicU64; SLOTS],
    pub(super) slots: [Slot; SLOTS],
}

#[repr(C, align(4096))]
pub(super) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU64,
    pub size: AtomicU64,
    pub config: [AtomicU64; raw_config::WORDS],
    /// Process that reads the table; 0 if none that may end before the writers.
    pub reader: AtomicU64,
    /// Number of pollers, as last counted by the reader.
    pub pollers: AtomicU64,
    /// Greatest distance of a slot from its home position.
    pub max_probe_length: AtomicU64,
    pub counts: [AtomicU64; 8],
    pub refusals: [Refusal; REFUSALS],
}

/// Number of times that the kernel refused an option with a certain error.
#[repr(C)]
pub(super) struct Refusal {
    /// Option and error number; 0 if unused.
    pub what: AtomicU64,
    pub times: AtomicU64,
}

/// The slot of one socket.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// The process that writes the slot; see [`Owner`].
    pub owner: AtomicU64,
    /// Time of the last write, or of the release.
    pub heartbeat_ns: AtomicU64,
    /// Longest delays since the reader last took them, plus one; 0 if none.
    pub sender_peak: AtomicU64,
    pub receiver_peak: AtomicU64,
    /// Number of writes. Its last bit selects the copy that is valid.
    sequence: AtomicU32,
    copies: [[AtomicU64; record::WORDS]; 2],
}

/// A thread that writes slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poller {
    /// The process.
    pub pid: u32,
    /// Number of the thread, which becomes invalid as soon as the thread ends; the process may remain as a zombie.
    pub thread: u32,
}

/// The owner of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The slot was never owned, or was released.
    Nobody,
    /// This poller writes the slot.
    Poller(Poller),
    /// dwell is about to free the slot.
    Reader,
}

impl Owner {
    /// Bits of a process number. Linux uses 22.
    const BITS: u32 = 31;

    pub fn word(self) -> u64 {
        match self {
            Owner::Nobody => 0,
            Owner::Poller(Poller { pid, thread }) => {
                1 << (2 * Owner::BITS) | u64::from(pid) << Owner::BITS | u64::from(thread)
            }
            Owner::Reader => 2 << (2 * Owner::BITS),
        }
    }

    pub fn from_word(word: u64) -> Owner {
        let mask = (1 << Owner::BITS) - 1;
        match word >> (2 * Owner::BITS) {
            0 => Owner::Nobody,
            1 => Owner::Poller(Poller { pid: (word >> Owner::BITS & mask) as u32, thread: (word & mask) as u32 }),
            _ => Owner::Reader,
        }
    }
}

impl Slot {
    /// Writes the copy that is not valid, and then makes it the valid one. A process that is killed in between has
    /// changed nothing.
    pub fn write(&self, account: &Account) {
        let next = self.sequence.load(Relaxed).wrapping_add(1);
        let Some(copy) = self.copies.get((next & 1) as usize) else {
            return;
        };
        fence(Release);
        record::transfer(&mut account.clone(), &mut WordWriter(copy.iter()));
        self.sequence.store(next, Release);
    }

    /// Returns the last record. Returns `None` if there is none, or if it kept changing during the read.
    pub fn read(&self) -> Option<Account> {
        const TRIES: u32 = 64;
        for _ in 0..TRIES {
            let sequence = self.sequence.load(Acquire);
            let copy = self.copies.get((sequence & 1) as usize)?;
            let mut account = record::blank();
            record::transfer(&mut account, &mut WordReader(copy.iter()));
            fence(Acquire);
            if self.sequence.load(Relaxed) == sequence {
                return (sequence != 0).then_some(account);
            }
        }
        None
    }

    pub fn raise_peaks(&self, peaks: Peaks) {
        for (place, peak) in [(&self.sender_peak, peaks.sender_ns), (&self.receiver_peak, peaks.receiver_ns)] {
            if let Some(peak) = peak {
                place.fetch_max(peak.saturating_add(1), Relaxed);
            }
        }
    }

    /// Returns the longest delays since the last call.
    pub fn take_peaks(&self) -> Peaks {
        let take = |place: &AtomicU64| place.swap(0, Relaxed).checked_sub(1);
        Peaks { sender_ns: take(&self.sender_peak), receiver_ns: take(&self.receiver_peak) }
    }
}

struct WordWriter<'a>(std::slice::Iter<'a, AtomicU64>);

impl record::Words for WordWriter<'_> {
    fn next(&mut self, word: &mut u64) {
        if let Some(place) = self.0.next() {
            place.store(*word, Relaxed);
        }
    }
}

struct WordReader<'a>(std::slice::Iter<'a, AtomicU64>);

impl record::Words for WordReader<'_> {
    fn next(&mut self, word: &mut u64) {
        *word = self.0.next().map_or(0, |place| place.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_stops_halfway_leaves_what_it_wrote_before() {
        let slot = Slot {
            owner: AtomicU64::new(0),
            heartbeat_ns: AtomicU64::new(0),
            sender_peak: AtomicU64::new(0),
            receiver_peak: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            copies: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        };
        assert_eq!(slot.read(), None, "nothing was written");
        let mut account = record::blank();
        account.cookie = 7;
        slot.write(&account);
        let next = &slot.copies[((slot.sequence.load(Relaxed) + 1) & 1) as usize];
        for place in next.iter().take(record::WORDS / 2) {
            place.store(u64::MAX, Relaxed);
        }
        assert_eq!(slot.read(), Some(account));
        account.cookie = 8;
        slot.write(&account);
        assert_eq!(slot.read(), Some(account), "the next one goes over it");
    }

    #[test]
    fn all_of_an_account_fits() {
        struct Count(usize);
        impl record::Words for Count {
            fn next(&mut self, word: &mut u64) {
                self.0 += 1;
                *word = u64::MAX;
            }
        }
        let mut count = Count(0);
        record::transfer(&mut record::blank(), &mut count);
        assert!(count.0 <= record::WORDS, "{} words", count.0);
    }
}
