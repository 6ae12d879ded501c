//! SIGINT and SIGTERM, noted for as long as an experiment runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// Notes a request to stop, for as long as it lives.
pub struct Signals {
    /// True once a signal came.
    pub stop: Arc<AtomicBool>,
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    /// Starts to watch; handlers are removed on drop.
    pub fn watch() -> Result<Self> {
        let mut signals = Self { stop: Arc::new(AtomicBool::new(false)), registered: Vec::new() };
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let id = signal_hook::flag::register(signal, Arc::clone(&signals.stop))
                .map_err(Error::io("watch for signals"))?;
            signals.registered.push(id);
        }
        Ok(signals)
    }

    /// Sleeps, and fails with [`Error::Interrupted`] as soon as a signal comes.
    pub fn pause(&self, duration: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < duration {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
