//! The queue of batches that the collector has not stored yet.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::wire::{self, AgentMessage, Batch, Content};

/// A queue of encoded batches in the order of their numbers, bounded by their size. When it is full, the oldest batch is
/// dropped and counted.
#[derive(Debug)]
pub struct Outbox {
    max_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(u64, Arc<[u8]>)>,
    bytes: usize,
    last: u64,
    dropped: u64,
    is_closed: bool,
}

/// Size of an outbox, and its losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Number of waiting batches.
    pub batches: u64,
    /// Size of the waiting batches, in bytes.
    pub bytes: u64,
    /// Number of batches dropped since the start because the outbox was full.
    pub dropped: u64,
}

/// The result of waiting for a batch.
pub(crate) enum Next {
    /// The oldest batch, as the content of a frame.
    Batch(Arc<[u8]>),
    /// The outbox stayed empty.
    Timeout,
    /// The outbox is empty and closed.
    Closed,
}

impl Outbox {
    /// Creates an empty outbox for at most `max_bytes` of batches.
    pub fn new(max_bytes: usize) -> Outbox {
        Outbox { max_bytes, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Appends a batch under the next number. A batch that is too long for a frame is dropped and counted.
    pub fn push(&self, content: Content) {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let batch = Batch { number, content };
        let Some(bytes) = wire::encode(&AgentMessage::Batch(Box::new(batch))) else {
            state.dropped += 1;
            return;
        };
        state.bytes += bytes.len();
        state.queue.push_back((number, bytes.into()));
        while state.bytes > self.max_bytes {
            let Some((_, oldest)) = state.queue.pop_front() else {
                break;
            };
            state.bytes -= oldest.len();
            state.dropped += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the current size and losses.
    pub fn backlog(&self) -> Backlog {
        let state = self.state();
        Backlog { batches: state.queue.len() as u64, bytes: state.bytes as u64, dropped: state.dropped }
    }

    /// Removes the batches up to this number: the collector has stored them.
    pub(crate) fn acknowledge(&self, through: u64) {
        let mut state = self.state();
        while let Some((number, _)) = state.queue.front() {
            if *number > through {
                break;
            }
            if let Some((_, bytes)) = state.queue.pop_front() {
                state.bytes -= bytes.len();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the oldest batch without removing it; waits at most `timeout` for one.
    pub(crate) fn next(&self, timeout: Duration) -> Next {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            if let Some((_, bytes)) = state.queue.front() {
                return Next::Batch(Arc::clone(bytes));
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if state.is_closed {
                return Next::Closed;
            }
            if remaining.is_zero() {
                return Next::Timeout;
            }
            state = self.wait(state, remaining);
        }
    }

    /// Marks the end: nothing more will be pushed.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits at most `timeout` until all batches are stored. Returns whether they are.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while !state.queue.is_empty() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return false;
            }
            state = self.wait(state, remaining);
        }
        true
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    fn content(bytes: usize) -> Content {
        let names = (0..bytes).step_by(60).map(|at| "x".repeat(60.min(bytes - at)));
        Content { counters: names.map(|name| (name, 1)).collect(), ..Content::default() }
    }

    fn next_number(outbox: &Outbox) -> Option<u64> {
        match outbox.next(NO_WAIT) {
            Next::Batch(bytes) => match wire::decode(&bytes).unwrap() {
                AgentMessage::Batch(batch) => Some(batch.number),
                other => panic!("{other:?}"),
            },
            Next::Timeout | Next::Closed => None,
        }
    }

    #[test]
    fn a_batch_stays_until_it_is_stored() {
        let outbox = Outbox::new(1000);
        (0..3).for_each(|_| outbox.push(content(10)));
        assert_eq!((next_number(&outbox), next_number(&outbox)), (Some(1), Some(1)));
        outbox.acknowledge(2);
        assert_eq!(next_number(&outbox), Some(3));
        assert!(!outbox.wait_until_empty(NO_WAIT));
        outbox.acknowledge(3);
        assert!(outbox.wait_until_empty(NO_WAIT));
        assert_eq!(outbox.backlog(), Backlog::default());
    }

    #[test]
    fn a_full_outbox_drops_the_oldest_batch_and_counts_it() {
        let outbox = Outbox::new(1000);
        (0..10).for_each(|_| outbox.push(content(300)));
        assert_eq!(next_number(&outbox), Some(8));
        let backlog = outbox.backlog();
        assert_eq!((backlog.batches, backlog.dropped), (3, 7));
        assert!((900..1000).contains(&backlog.bytes));
        // A batch that is larger than the outbox.
        outbox.push(content(2000));
        assert_eq!(next_number(&outbox), None);
        assert_eq!(outbox.backlog().dropped, 11);
        outbox.push(content(1));
        assert_eq!(next_number(&outbox), Some(12));
    }

    #[test]
    fn a_closed_outbox_ends_once_it_is_empty() {
        let outbox = Outbox::new(1000);
        outbox.push(content(1));
        outbox.close();
        assert_eq!(next_number(&outbox), Some(1));
        outbox.acknowledge(1);
        assert!(matches!(outbox.next(Duration::from_secs(60)), Next::Closed));
    }
}
