//! Ctrl-C ends a benchmark with an error, so that everything it made is removed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the user has asked to stop.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Runs a benchmark that ends after SIGINT, SIGTERM or SIGHUP.
    pub fn heeded_by<T>(benchmark: impl FnOnce(&Stop) -> Result<T>) -> Result<T> {
        let stop = Stop::listen()?;
        let result = benchmark(&stop);
        // A system call that was interrupted may have been the first to fail.
        stop.check().and(result)
    }

    /// Notes from now on whether one of them has come.
    pub fn listen() -> Result<Stop> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stop(asked))
    }

    /// Fails once the user has asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Sleeps, and fails as soon as the user asks to stop.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
