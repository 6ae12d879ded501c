//! What listens to packets for names and labels, and what it may cost.

use std::{os::fd::AsFd, time::Duration};

use dwell_engine::observe::Observation;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::tap::Tap;
use crate::{
    clock::{monotonic_ns, thread_cpu_ns},
    outside::pace::Pace,
};

/// The share of a core that reading requests may use.
const BUDGET: f64 = 0.01;
/// Time that they have in reserve.
const RESERVE: Duration = Duration::from_secs(1);

/// Packets that tell names and labels. Without CAP_NET_RAW there are none.
#[derive(Debug)]
pub(super) struct Listener {
    answers: Option<Tap>,
    requests: Option<Tap>,
    pace: Pace,
}

impl Listener {
    /// Listens to nothing.
    pub(super) fn none() -> Listener {
        Listener { answers: None, requests: None, pace: Pace::new(Duration::ZERO, BUDGET).with_reserve(RESERVE) }
    }

    /// Listens to answers of DNS, and to requests if it `has_labels`, which are read after a pause at the earliest.
    pub(super) fn open(has_labels: bool) -> Listener {
        const PAUSE: Duration = Duration::from_millis(5);
        let requests = has_labels.then(Tap::of_requests).and_then(Result::ok);
        let pace = Pace::new(PAUSE, BUDGET).with_reserve(RESERVE);
        Listener { answers: Tap::of_answers().ok(), requests, pace }
    }

    /// Listens to requests alone, which are read whenever they are asked for, within a budget that leaves most of the time to
    /// whoever asks.
    pub(super) fn of_requests() -> Listener {
        const SMALL_BUDGET: f64 = 0.003;
        Listener {
            requests: Tap::of_requests().ok(),
            pace: Pace::new(Duration::ZERO, SMALL_BUDGET),
            ..Listener::none()
        }
    }

    /// Waits for a packet, for so many milliseconds at most.
    pub(super) fn wait(&self, timeout_ms: u8) {
        let until_due_ns = self.pace.due_ns().saturating_sub(monotonic_ns());
        let requests = self.requests.as_ref().filter(|_| until_due_ns == 0);
        let timeout_ms = match (&self.requests, until_due_ns.div_ceil(1_000_000)) {
            (Some(_), due_ms @ 1..) => timeout_ms.min(due_ms.try_into().unwrap_or(u8::MAX)),
            _ => timeout_ms,
        };
        let taps = self.answers.iter().chain(requests);
        let mut sockets: Vec<_> =
            taps.flat_map(Tap::sockets).map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        // A signal ends the wait, which does no harm.
        let _ = poll(&mut sockets, PollTimeout::from(timeout_ms));
    }

    /// Passes the packets that are there, unless requests have cost too much by now. Returns whether these were all.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Observation<'_>)) -> bool {
        if let Some(answers) = &mut self.answers {
            answers.drain(&mut each);
        }
        let Some(requests) = &mut self.requests else {
            return true;
        };
        let now_ns = monotonic_ns();
        if !self.pace.is_due(now_ns) {
            return false;
        }
        let used_ns = thread_cpu_ns();
        let is_all = requests.drain(&mut each);
        self.pace.record(now_ns, thread_cpu_ns() - used_ns);
        is_all
    }

    /// Returns the number of answers, and of requests, that came too fast to be read.
    pub(super) fn lost(&self) -> (u64, u64) {
        let lost = |tap: &Option<Tap>| tap.as_ref().map_or(0, Tap::lost);
        (lost(&self.answers), lost(&self.requests))
    }
}
