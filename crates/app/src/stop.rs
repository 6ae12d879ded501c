//! SIGINT, SIGTERM and SIGHUP: end the run and keep its results. A second one ends at
//! once, should the first not get through.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// The system refused to deliver signals to this process.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals: {0}")]
pub struct ListenError(io::Error);

/// Tells when to end.
#[derive(Debug, Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Listens for signals; ends by itself after `duration`, if there is one.
    pub fn listen(duration: Option<Duration>) -> Result<Stop, ListenError> {
        Stop::listen_for(&[SIGHUP, SIGINT, SIGTERM], duration)
    }

    /// The same where SIGHUP means something else.
    pub fn listen_but_for_hangup(duration: Option<Duration>) -> Result<Stop, ListenError> {
        Stop::listen_for(&[SIGINT, SIGTERM], duration)
    }

    fn listen_for(signals: &[i32], duration: Option<Duration>) -> Result<Stop, ListenError> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in signals.iter().copied() {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(ListenError)?;
        }
        Ok(Stop { asked, deadline: duration.and_then(|duration| Instant::now().checked_add(duration)) })
    }

    /// Set once a signal has come.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// True once the run should end.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
