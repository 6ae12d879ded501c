//! What systemd learns about a service (sd_notify(3)): that it is ready, that its main loop still runs, and that it ends.

use std::{
    env,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

/// The notifications of a process that a service manager has started.
#[derive(Debug)]
pub struct Service {
    /// Time between two signs of life, a third of what the service manager waits for; `None` if it waits for none.
    period: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Starting,
    /// When the last sign of life was sent.
    Running(Instant),
    Stopping,
}

impl Service {
    /// Returns the service, or `None` if nobody waits for its notifications.
    pub fn of_environment() -> Option<Service> {
        env::var_os("NOTIFY_SOCKET")?;
        let period = sd_notify::watchdog_enabled().map(|longest| longest / 3);
        Some(Service { period, state: Mutex::new(State::Starting) })
    }

    /// Sends what is due in a turn of the main loop: READY=1 in the first one, WATCHDOG=1 from time to time, and
    /// STOPPING=1 once the loop is to end.
    pub fn turn(&self, is_over: bool) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, message) = match *state {
            State::Stopping => return,
            _ if is_over => (State::Stopping, NotifyState::Stopping),
            State::Starting => (State::Running(now), NotifyState::Ready),
            State::Running(last) if self.period.is_some_and(|period| now - last >= period) => {
                (State::Running(now), NotifyState::Watchdog)
            }
            State::Running(_) => return,
        };
        *state = next;
        // A manager that is not there any more waits for nothing.
        let _ = sd_notify::notify(&[message]);
    }
}
