//! The queue of calls from the hooks to the poller.
#![allow(unsafe_code)]

use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Most calls between two rounds.
const STAMPS: usize = 8192;

/// An event of a call that writes or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallEvent {
    /// A call is about to write.
    #[default]
    WriteBegins,
    /// It has returned, and has written this number of bytes.
    WriteEnds(u64),
    /// A call has read this number of bytes.
    Read(u64),
}

/// An event with its time and connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Time of the event.
    pub time_ns: u64,
    /// The event.
    pub event: CallEvent,
    /// Descriptor of the call.
    pub fd: i32,
    /// Generation of the descriptor, which identifies the connection.
    pub generation: u8,
}

/// A queue with many producers and one consumer. Nobody waits: what does not fit is lost. Zeroes are an empty queue.
#[repr(C)]
pub struct Stamps {
    head: AtomicU64,
    tail: AtomicU64,
    slots: [QueueSlot; STAMPS],
}

#[repr(C)]
struct QueueSlot {
    /// Ticket of the content, plus one.
    filled: AtomicU64,
    stamp: UnsafeCell<Stamp>,
}

// SAFETY: a slot is written by the thread that has its ticket, and read once `filled` shows that it is complete.
unsafe impl Sync for Stamps {}

impl Stamps {
    /// Appends a stamp. Returns false if the queue is full.
    pub fn push(&self, stamp: Stamp) -> bool {
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
        let Some(slot) = self.slots.get(ticket as usize % STAMPS) else {
            return false;
        };
        // SAFETY: the ticket belongs to this caller alone, and the slot's previous stamp has been consumed.
        unsafe { slot.stamp.get().write(stamp) };
        slot.filled.store(ticket + 1, Release);
        true
    }

    /// Consumes all complete stamps in the order of their tickets. Only one thread may call it at a time.
    pub fn drain(&self, mut each: impl FnMut(Stamp)) {
        loop {
            let ticket = self.tail.load(Relaxed);
            let Some(slot) = self.slots.get(ticket as usize % STAMPS) else {
                return;
            };
            if slot.filled.load(Acquire) != ticket + 1 {
                return;
            }
            // SAFETY: `filled` shows that the stamp is complete, and nobody writes it before `tail` has passed it.
            let stamp = unsafe { slot.stamp.get().read() };
            self.tail.store(ticket + 1, Release);
            each(stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::memory::{OnFork, Zeroable, zeroed};

    // SAFETY: numbers.
    unsafe impl Zeroable for Stamps {}

    #[test]
    fn stamps_of_many_threads_arrive_in_order_and_those_that_do_not_fit_are_refused() {
        // SAFETY: mapped for good.
        let stamps: &'static Stamps = unsafe { &*zeroed(OnFork::Absent).unwrap() };
        let writers: Vec<_> = (1..=4)
            .map(|fd| {
                std::thread::spawn(move || {
                    let put = (0..10_000_u64).filter(|&time_ns| stamps.push(Stamp { time_ns, fd, ..Stamp::default() }));
                    put.count()
                })
            })
            .collect();
        let mut last = [None; 5];
        let mut taken = 0;
        let mut take = |stamp: Stamp| {
            let before = last[stamp.fd as usize].replace(stamp.time_ns);
            assert!(before < Some(stamp.time_ns), "in their order");
            taken += 1;
        };
        while writers.iter().any(|writer| !writer.is_finished()) {
            stamps.drain(&mut take);
        }
        stamps.drain(&mut take);
        let put: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(taken, put);
        let more = (0..2 * STAMPS).filter(|_| stamps.push(Stamp::default()));
        assert_eq!(more.count(), STAMPS);
    }
}
