//! Where what stands.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use dwell_engine::socket::{Account, Peaks};

use super::{orders, record};

/// So many sockets fit in. Only those that are in use take memory.
pub const SLOTS: usize = 16_384;

/// Whoever changes what stands where changes this.
pub(super) const VERSION: u64 = 2;

/// The first word.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"dwelltbl");

/// Reasons and error numbers that are counted apart.
pub(super) const REFUSALS: usize = 16;

/// The table. Zeroes are an empty one without a header.
#[repr(C)]
pub struct Layout {
    pub(super) header: Header,
    /// The cookie of each slot's socket, 0 for one that is free.
    pub(super) keys: [AtomicU64; SLOTS],
    pub(super) slots: [Slot; SLOTS],
}

#[repr(C, align(4096))]
pub(super) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU64,
    pub size: AtomicU64,
    pub orders: [AtomicU64; orders::WORDS],
    /// The process that reads the table; 0: none that may end before the others.
    pub reader: AtomicU64,
    /// Processes that look at sockets, as the reader has counted them.
    pub pollers: AtomicU64,
    /// No slot is farther than this from where it would be if it were alone.
    pub farthest: AtomicU64,
    pub counts: [AtomicU64; 8],
    pub refusals: [Refusal; REFUSALS],
}

/// How often one setting was refused for one reason.
#[repr(C)]
pub(super) struct Refusal {
    /// Setting and errno; 0 if free.
    pub what: AtomicU64,
    pub times: AtomicU64,
}

/// A socket.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Its phase and the process that writes: see [`Owner`].
    pub owner: AtomicU64,
    /// When that wrote last, or let go.
    pub beat_ns: AtomicU64,
    /// Longest delays since the reader asked last, and 1; 0: none.
    pub sender_peak: AtomicU64,
    pub receiver_peak: AtomicU64,
    /// How often it was written; the newest is in the copy that its last bit names.
    sequence: AtomicU32,
    copies: [[AtomicU64; record::WORDS]; 2],
}

/// The thread that writes a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poller {
    /// Its process.
    pub pid: u32,
    /// Its own number: it is gone as soon as the thread is, while the process may stay for long as a zombie.
    pub thread: u32,
}

/// Who has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody, or nobody any more.
    Nobody,
    /// This one writes it.
    Poller(Poller),
    /// dwell is about to free it.
    Reader,
}

impl Owner {
    /// Numbers of processes have 22 bits.
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
    /// Writes the copy that nobody reads, and then makes it the one to read. What is killed before that has changed
    /// nothing.
    pub fn write(&self, account: &Account) {
        let next = self.sequence.load(Relaxed).wrapping_add(1);
        let Some(copy) = self.copies.get((next & 1) as usize) else {
            return;
        };
        fence(Release);
        record::pass(&mut account.clone(), &mut Put(copy.iter()));
        self.sequence.store(next, Release);
    }

    /// What was written last. `None` if it was written again and again meanwhile, or never.
    pub fn read(&self) -> Option<Account> {
        const TRIES: u32 = 64;
        for _ in 0..TRIES {
            let sequence = self.sequence.load(Acquire);
            let copy = self.copies.get((sequence & 1) as usize)?;
            let mut account = record::blank();
            record::pass(&mut account, &mut Take(copy.iter()));
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

    /// The longest since it was asked last.
    pub fn take_peaks(&self) -> Peaks {
        let take = |place: &AtomicU64| place.swap(0, Relaxed).checked_sub(1);
        Peaks { sender_ns: take(&self.sender_peak), receiver_ns: take(&self.receiver_peak) }
    }
}

struct Put<'a>(std::slice::Iter<'a, AtomicU64>);

impl record::Words for Put<'_> {
    fn next(&mut self, word: &mut u64) {
        if let Some(place) = self.0.next() {
            place.store(*word, Relaxed);
        }
    }
}

struct Take<'a>(std::slice::Iter<'a, AtomicU64>);

impl record::Words for Take<'_> {
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
            beat_ns: AtomicU64::new(0),
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
        record::pass(&mut record::blank(), &mut count);
        assert!(count.0 <= record::WORDS, "{} words", count.0);
    }
}
