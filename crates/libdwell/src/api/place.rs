//! Where the session of the process is.
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

/// One session, or none. Nobody waits here for more than a few instructions of another thread, nor for a thread of
/// the process that this one was forked from.
pub struct Place {
    /// What `Arc::into_raw` gave, or null.
    session: AtomicPtr<Session>,
    /// The process whose thread is changing or copying it; 0: none is.
    holder: AtomicU32,
}

impl Place {
    /// Without one.
    pub const fn empty() -> Place {
        Place { session: AtomicPtr::new(null_mut()), holder: AtomicU32::new(0) }
    }

    /// The session.
    pub fn get(&self) -> Option<Arc<Session>> {
        self.alone(|| {
            let session = self.session.load(Relaxed);
            // SAFETY: of an `Arc` that the place has, and keeps meanwhile.
            (!session.is_null()).then(|| unsafe {
                Arc::increment_strong_count(session);
                Arc::from_raw(session)
            })
        })
    }

    /// Puts one. False if there is one, and then this is dropped.
    pub fn put(&self, session: Arc<Session>) -> bool {
        let new = Arc::into_raw(session).cast_mut();
        let is_put = self.alone(|| {
            let is_free = self.session.load(Relaxed).is_null();
            if is_free {
                self.session.store(new, Relaxed);
            }
            is_free
        });
        if !is_put {
            // SAFETY: from above, and nobody else has it.
            drop(unsafe { Arc::from_raw(new) });
        }
        is_put
    }

    /// Takes it away.
    pub fn take(&self) -> Option<Arc<Session>> {
        let session = self.alone(|| self.session.swap(null_mut(), Relaxed));
        // SAFETY: the place had it, and has it no more.
        (!session.is_null()).then(|| unsafe { Arc::from_raw(session) })
    }

    fn alone<T>(&self, act: impl FnOnce() -> T) -> T {
        let me = std::process::id();
        loop {
            let holder = self.holder.load(Relaxed);
            // A holder of another process was a thread of the parent: whatever it did, the pointer is whole.
            let is_taken = holder != me && self.holder.compare_exchange(holder, me, Acquire, Relaxed).is_ok();
            if is_taken {
                break;
            }
            std::thread::yield_now();
        }
        let done = act();
        self.holder.store(0, Release);
        done
    }
}
