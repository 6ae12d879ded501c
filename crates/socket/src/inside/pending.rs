//! Descriptors that hooks have seen and the poller has not.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed, SeqCst},
};

/// Descriptors from here on are found only by scans.
pub const DESCRIPTORS: usize = 65_536;

const WORDS: usize = DESCRIPTORS / 64;

/// One bit per descriptor. Zeroes are an empty set.
#[repr(C)]
pub struct Pending {
    words: [AtomicU64; WORDS],
    /// One bit per word that is not zero.
    summary: [AtomicU64; WORDS / 64],
    /// Greatest descriptor that was ever inserted, plus one.
    end: AtomicU64,
}

impl Pending {
    /// Inserts a descriptor. Returns true if it was there already: then the socket that it stood for is gone.
    pub fn insert(&self, fd: i32) -> bool {
        let Ok(fd) = usize::try_from(fd) else {
            return false;
        };
        self.end.fetch_max(fd as u64 + 1, Relaxed);
        let word = fd / 64;
        let (Some(bits_of_word), Some(summary)) = (self.words.get(word), self.summary.get(word / 64)) else {
            return false;
        };
        let bit = 1 << (fd % 64);
        let before = bits_of_word.fetch_or(bit, AcqRel);
        // The inserting thread checks next whether the poller sleeps; the poller checks for content before it sleeps.
        summary.fetch_or(1 << (word % 64), SeqCst);
        before & bit != 0
    }

    /// Removes all descriptors, the smallest first.
    pub fn drain(&self, mut each: impl FnMut(i32)) {
        for (group, summary) in self.summary.iter().enumerate() {
            if summary.load(Relaxed) == 0 {
                continue;
            }
            for inner in bits(summary.swap(0, AcqRel)) {
                let word = group * 64 + inner;
                let Some(bits_of_word) = self.words.get(word) else {
                    continue;
                };
                for bit in bits(bits_of_word.swap(0, AcqRel)) {
                    each((word * 64 + bit) as i32);
                }
            }
        }
    }

    /// Removes a descriptor. Returns true if it was there.
    pub fn take(&self, fd: i32) -> bool {
        let fd = usize::try_from(fd).unwrap_or(usize::MAX);
        let bit = 1 << (fd % 64);
        self.words.get(fd / 64).is_some_and(|word| word.fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.summary.iter().all(|word| word.load(SeqCst) == 0)
    }

    /// Returns true if the set contains the descriptor.
    pub fn contains(&self, fd: i32) -> bool {
        let fd = usize::try_from(fd).unwrap_or(usize::MAX);
        let word = self.words.get(fd / 64);
        word.is_some_and(|word| word.load(SeqCst) >> (fd % 64) & 1 == 1)
    }

    /// Returns the greatest descriptor that was ever inserted, plus one.
    pub fn end(&self) -> i32 {
        self.end.load(Relaxed).min(i32::MAX as u64) as i32
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once() {
        let pending = Pending {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            summary: std::array::from_fn(|_| AtomicU64::new(0)),
            end: AtomicU64::new(0),
        };
        assert!(pending.is_empty());
        for fd in [65_535, 0, 63, 64, 4096] {
            assert!(!pending.insert(fd));
        }
        assert!(pending.insert(64), "it was there");
        assert!(pending.contains(64) && !pending.contains(65) && !pending.contains(-1));
        pending.insert(-1);
        pending.insert(i32::MAX);
        assert_eq!(pending.end(), i32::MAX);
        let mut taken = Vec::new();
        pending.drain(|fd| taken.push(fd));
        assert_eq!(taken, [0, 63, 64, 4096, 65_535]);
        assert!(pending.is_empty());
        pending.drain(|fd| panic!("{fd}"));
    }
}
