//! SIGINT, SIGTERM and SIGHUP: end the run and keep its results. A second one ends at
//! once, should the first not get through. Main loops ask here in each turn, so a service manager is notified from here too.

use std::{
    fs, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::service::Service;

/// The system refused to deliver signals to this process.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals: {0}")]
pub struct ListenError(io::Error);

/// Is set whenever SIGHUP arrives. Where that signal is ignored, as under nohup, it stays so: programs inherit it.
pub fn hangups() -> Result<Arc<AtomicBool>, ListenError> {
    let hangup = Arc::new(AtomicBool::new(false));
    if ignored().map_err(ListenError)? & 1 << (SIGHUP - 1) == 0 {
        flag::register(SIGHUP, Arc::clone(&hangup)).map_err(ListenError)?;
    }
    Ok(hangup)
}

/// Reads the mask of ignored signals: one bit per signal, from SIGHUP on.
pub fn ignored() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| {
        let mask = line.strip_prefix("SigIgn:")?.trim();
        u64::from_str_radix(mask, 16).ok()
    });
    Ok(mask.unwrap_or(0))
}

/// Tells when to end.
#[derive(Debug, Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    duration: Option<Duration>,
    /// When the main loop first asked: the duration runs from then on.
    started: Arc<OnceLock<Instant>>,
    service: Option<Arc<Service>>,
}

impl Stop {
    /// Listens for signals. Ends by itself after `duration`, if there is one, which begins when
    /// [`is_asked`](Self::is_asked) is first called: setting up takes none of it.
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
        Ok(Stop { asked, duration, started: Arc::default(), service: Service::of_environment().map(Arc::new) })
    }

    /// Set once a signal has come.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// The rest of the run's duration, if it has one; all of it before the first turn of the main loop.
    pub fn left(&self) -> Option<Duration> {
        let elapsed = self.started.get().map(Instant::elapsed).unwrap_or_default();
        self.duration.map(|duration| duration.saturating_sub(elapsed))
    }

    /// True once the run should end. A main loop calls this in each turn, and for the first time when all is set up:
    /// the service manager, if there is one, learns then that the service is ready.
    pub fn is_asked(&self) -> bool {
        let now = Instant::now();
        let elapsed = now.duration_since(*self.started.get_or_init(|| now));
        let is_over = self.asked.load(Ordering::Relaxed) || self.duration.is_some_and(|duration| elapsed >= duration);
        if let Some(service) = &self.service {
            service.turn(is_over);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_duration_begins_when_all_is_set_up() {
        let stop = Stop::listen(Some(Duration::from_millis(1))).unwrap();
        // Loading programs into the kernel takes seconds on a busy host.
        thread::sleep(Duration::from_millis(20));
        assert!(!stop.is_asked());
        thread::sleep(Duration::from_millis(20));
        assert!(stop.is_asked());
    }
}
