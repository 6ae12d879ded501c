//! Calls that wrote, on their way from the hooks to the poller.
#![allow(unsafe_code)]

use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// So many calls fit in between two rounds.
const STAMPS: usize = 8192;

/// A call that wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// When it began.
    pub time_ns: u64,
    /// What it wrote.
    pub bytes: u64,
    /// Where.
    pub fd: i32,
    /// Which of the connections that the descriptor has been.
    pub generation: u8,
}

/// A queue that many put into and one takes from. Nobody waits: what does not fit is lost. Zeroes are an empty one.
#[repr(C)]
pub struct Stamps {
    head: AtomicU64,
    tail: AtomicU64,
    places: [Place; STAMPS],
}

#[repr(C)]
struct Place {
    /// The ticket of what is in it, and 1.
    filled: AtomicU64,
    stamp: UnsafeCell<Stamp>,
}

// SAFETY: a place is written by the one that has its ticket, and read when `filled` tells that this is done.
unsafe impl Sync for Stamps {}

impl Stamps {
    /// Puts one. False if there is no room.
    pub fn put(&self, stamp: Stamp) -> bool {
        let mut ticket = self.head.load(Relaxed);
        loop {
            if ticket.wrapping_sub(self.tail.load(Acquire)) >= STAMPS as u64 {
                return false;
            }
            match self.head.compare_exchange_weak(ticket, ticket + 1, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => ticket = now,
            }
        }
        let Some(place) = self.places.get(ticket as usize % STAMPS) else {
            return false;
        };
        // SAFETY: the ticket is this caller's alone, and the one that had the place before has been taken.
        unsafe { place.stamp.get().write(stamp) };
        place.filled.store(ticket + 1, Release);
        true
    }

    /// Takes all that are whole, in the order of their tickets. One caller at a time.
    pub fn take(&self, mut each: impl FnMut(Stamp)) {
        loop {
            let ticket = self.tail.load(Relaxed);
            let Some(place) = self.places.get(ticket as usize % STAMPS) else {
                return;
            };
            if place.filled.load(Acquire) != ticket + 1 {
                return;
            }
            // SAFETY: `filled` tells that it is written, and nobody writes it before `tail` has passed it.
            let stamp = unsafe { place.stamp.get().read() };
            self.tail.store(ticket + 1, Release);
            each(stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::memory::{Forked, Zeroes, zeroed};

    // SAFETY: numbers.
    unsafe impl Zeroes for Stamps {}

    #[test]
    fn what_many_put_one_takes_and_what_does_not_fit_is_refused() {
        // SAFETY: mapped for good.
        let stamps: &'static Stamps = unsafe { &*zeroed(Forked::Absent).unwrap() };
        let writers: Vec<_> = (1..=4)
            .map(|fd| {
                std::thread::spawn(move || {
                    let put =
                        (0..10_000_u64).filter(|&bytes| stamps.put(Stamp { time_ns: bytes, bytes, fd, generation: 0 }));
                    put.count()
                })
            })
            .collect();
        let mut last = [None; 5];
        let mut taken = 0;
        let mut take = |stamp: Stamp| {
            let before = last[stamp.fd as usize].replace(stamp.bytes);
            assert!(before < Some(stamp.bytes), "in their order");
            taken += 1;
        };
        while writers.iter().any(|writer| !writer.is_finished()) {
            stamps.take(&mut take);
        }
        stamps.take(&mut take);
        let put: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(taken, put);
        let more = (0..2 * STAMPS).filter(|_| stamps.put(Stamp::default()));
        assert_eq!(more.count(), STAMPS);
    }
}
