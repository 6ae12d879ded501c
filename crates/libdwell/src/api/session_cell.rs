//! The session of the process.
#![allow(unsafe_code)]

use std::{
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{
            AtomicPtr, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use dwell_socket::Session;

/// Holds one session or none. A caller waits at most for a few instructions of another thread, and never for a thread of
/// the process that this one was forked from.
pub struct SessionCell {
    /// Result of `Arc::into_raw`, or null.
    session: AtomicPtr<Session>,
    /// The process of the thread that is changing or copying the pointer; 0 if there is none.
    holder: AtomicU32,
}

impl SessionCell {
    /// Creates an empty cell.
    pub const fn empty() -> SessionCell {
        SessionCell { session: AtomicPtr::new(null_mut()), holder: AtomicU32::new(0) }
    }

    /// Returns the session.
    pub fn get(&self) -> Option<Arc<Session>> {
        self.exclusively(|| {
            let session = self.session.load(Relaxed);
            // SAFETY: from an `Arc` that the cell owns, and keeps during the call.
            (!session.is_null()).then(|| unsafe {
                Arc::increment_strong_count(session);
                Arc::from_raw(session)
            })
        })
    }

    /// Stores a session. Returns false, and drops it, if there is one already.
    pub fn set(&self, session: Arc<Session>) -> bool {
        let new = Arc::into_raw(session).cast_mut();
        let is_set = self.exclusively(|| {
            let is_free = self.session.load(Relaxed).is_null();
            if is_free {
                self.session.store(new, Relaxed);
            }
            is_free
        });
        if !is_set {
            // SAFETY: from `into_raw` above, and without another owner.
            drop(unsafe { Arc::from_raw(new) });
        }
        is_set
    }

    /// Removes the session and returns it.
    pub fn take(&self) -> Option<Arc<Session>> {
        let session = self.exclusively(|| self.session.swap(null_mut(), Relaxed));
        // SAFETY: the cell owned it, and no longer does.
        (!session.is_null()).then(|| unsafe { Arc::from_raw(session) })
    }

    fn exclusively<T>(&self, act: impl FnOnce() -> T) -> T {
        let me = std::process::id();
        loop {
            let holder = self.holder.load(Relaxed);
            // A holder of another process was a thread of the parent: wherever it stopped, the pointer is valid.
            let is_taken = holder != me && self.holder.compare_exchange(holder, me, Acquire, Relaxed).is_ok();
            if is_taken {
                break;
            }
            std::thread::yield_now();
        }
        let result = act();
        self.holder.store(0, Release);
        result
    }
}
