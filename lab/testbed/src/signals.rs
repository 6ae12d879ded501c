//! SIGINT and SIGTERM during an experiment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// Records a request to stop. Handlers are installed until it is dropped.
pub struct Signals {
    /// True once a signal has arrived.
    pub stop: Arc<AtomicBool>,
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    /// Installs the handlers.
    pub fn watch() -> Result<Self> {
        let mut signals = Self { stop: Arc::new(AtomicBool::new(false)), registered: Vec::new() };
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let id = signal_hook::flag::register(signal, Arc::clone(&signals.stop))
                .map_err(Error::io("watch for signals"))?;
            signals.registered.push(id);
        }
        Ok(signals)
    }

    /// Sleeps, and fails with [`Error::Interrupted`] as soon as a signal arrives, or at once if one has.
    pub fn pause(&self, duration: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if begun.elapsed() >= duration {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_no_time_notices_an_earlier_signal() {
        let signals = Signals { stop: Arc::default(), registered: Vec::new() };
        assert!(signals.pause(Duration::ZERO).is_ok());
        signals.stop.store(true, Ordering::Relaxed);
        assert!(matches!(signals.pause(Duration::ZERO), Err(Error::Interrupted)));
    }
}
