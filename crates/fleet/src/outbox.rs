//! What an agent has measured and the collector has not stored yet.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::wire::{self, Batch, Content, FromAgent};

/// Batches in the order of their numbers, in at most so many bytes. Where there is no
/// room, the oldest goes.
#[derive(Debug)]
pub struct Outbox {
    most_bytes: usize,
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

/// What waits, and what was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Batches that wait.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches given up since the start, for want of room.
    pub dropped: u64,
}

/// What there is to send.
pub(crate) enum Next {
    /// The oldest batch: number and content of its frame.
    Batch(Arc<[u8]>),
    /// Nothing in the time that was given.
    Nothing,
    /// Nothing, and nothing will come.
    Over,
}

impl Outbox {
    /// An empty one.
    pub fn new(most_bytes: usize) -> Outbox {
        Outbox { most_bytes, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a batch.
    pub fn push(&self, content: Content) {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let batch = Batch { number, content };
        let Some(bytes) = wire::encode(&FromAgent::Batch(Box::new(batch))) else {
            state.dropped += 1;
            return;
        };
        state.bytes += bytes.len();
        state.queue.push_back((number, bytes.into()));
        while state.bytes > self.most_bytes {
            let Some((_, oldest)) = state.queue.pop_front() else {
                break;
            };
            state.bytes -= oldest.len();
            state.dropped += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What waits.
    pub fn backlog(&self) -> Backlog {
        let state = self.state();
        Backlog { batches: state.queue.len() as u64, bytes: state.bytes as u64, dropped: state.dropped }
    }

    /// All up to this number are stored.
    pub(crate) fn stored(&self, through: u64) {
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

    /// The oldest batch, for which it waits so long.
    pub(crate) fn next(&self, patience: Duration) -> Next {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if let Some((_, bytes)) = state.queue.front() {
                return Next::Batch(Arc::clone(bytes));
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.is_closed {
                return Next::Over;
            }
            if left.is_zero() {
                return Next::Nothing;
            }
            state = self.wait(state, left);
        }
    }

    /// No more will be pushed.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until all is stored; true if it is.
    pub(crate) fn empties(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.state();
        while !state.queue.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.wait(state, left);
        }
        true
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, left: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn content(bytes: usize) -> Content {
        Content { counters: vec![("x".repeat(bytes), 1)], ..Content::default() }
    }

    fn number(outbox: &Outbox) -> Option<u64> {
        match outbox.next(NONE) {
            Next::Batch(bytes) => match wire::decode(&bytes).unwrap() {
                FromAgent::Batch(batch) => Some(batch.number),
                other => panic!("{other:?}"),
            },
            Next::Nothing | Next::Over => None,
        }
    }

    #[test]
    fn a_batch_stays_until_it_is_stored() {
        let outbox = Outbox::new(1000);
        (0..3).for_each(|_| outbox.push(content(10)));
        assert_eq!((number(&outbox), number(&outbox)), (Some(1), Some(1)));
        outbox.stored(2);
        assert_eq!(number(&outbox), Some(3));
        assert!(!outbox.empties(NONE));
        outbox.stored(3);
        assert!(outbox.empties(NONE));
        assert_eq!(outbox.backlog(), Backlog::default());
    }

    #[test]
    fn where_there_is_no_room_the_oldest_goes_and_is_counted() {
        let outbox = Outbox::new(1000);
        (0..10).for_each(|_| outbox.push(content(300)));
        assert_eq!(number(&outbox), Some(8));
        let backlog = outbox.backlog();
        assert_eq!((backlog.batches, backlog.dropped), (3, 7));
        assert!((900..1000).contains(&backlog.bytes));
        // Greater than all of it.
        outbox.push(content(2000));
        assert_eq!(number(&outbox), None);
        assert_eq!(outbox.backlog().dropped, 11);
        outbox.push(content(1));
        assert_eq!(number(&outbox), Some(12));
    }

    #[test]
    fn what_is_closed_is_over_once_it_is_empty() {
        let outbox = Outbox::new(1000);
        outbox.push(content(1));
        outbox.close();
        assert_eq!(number(&outbox), Some(1));
        outbox.stored(1);
        assert!(matches!(outbox.next(Duration::from_secs(60)), Next::Over));
    }
}
