//! What listens to packets for names and labels, and what it may cost.

use std::{os::fd::AsFd, time::Duration};

use dwell_engine::observe::Observation;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::tap::Tap;
use crate::{
    clock::{monotonic_ns, thread_cpu_ns},
    outside::pace::Pace,
};

/// The share of a core that reading answers may use, which anybody can send from port 53, and that of requests.
const ANSWERS_BUDGET: f64 = 0.03;
const BUDGET: f64 = 0.01;
/// Time that each has in reserve.
const RESERVE: Duration = Duration::from_secs(1);

/// Packets that tell names and labels. Without CAP_NET_RAW, and by default, there are none.
#[derive(Debug, Default)]
pub(super) struct Listener {
    answers: Option<Paced>,
    requests: Option<Paced>,
}

impl Listener {
    /// Listens to answers of DNS, and to requests if it `has_labels`, which are read after a pause at the earliest.
    pub(super) fn open(has_labels: bool) -> Listener {
        const PAUSE: Duration = Duration::from_millis(5);
        let pace = |pause, budget| Pace::new(pause, budget).with_reserve(RESERVE);
        let answers = Tap::of_answers().ok().map(|tap| Paced { tap, pace: pace(Duration::ZERO, ANSWERS_BUDGET) });
        let requests = has_labels.then(Tap::of_requests).and_then(Result::ok);
        Listener { answers, requests: requests.map(|tap| Paced { tap, pace: pace(PAUSE, BUDGET) }) }
    }

    /// Listens to requests alone, which are read whenever they are asked for, within a budget that leaves most of the time to
    /// whoever asks.
    pub(super) fn of_requests() -> Listener {
        const SMALL_BUDGET: f64 = 0.003;
        let requests = Tap::of_requests().ok();
        Listener {
            requests: requests.map(|tap| Paced { tap, pace: Pace::new(Duration::ZERO, SMALL_BUDGET) }),
            answers: None,
        }
    }

    /// Waits for a packet, for at most `timeout_ms`.
    pub(super) fn wait(&self, timeout_ms: u8) {
        let now_ns = monotonic_ns();
        let (mut timeout_ms, mut sockets) = (timeout_ms, Vec::new());
        for Paced { tap, pace } in self.answers.iter().chain(&self.requests) {
            match pace.due_ns().saturating_sub(now_ns).div_ceil(1_000_000) {
                0 => sockets.extend(tap.sockets().iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))),
                due_ms => timeout_ms = timeout_ms.min(due_ms.try_into().unwrap_or(u8::MAX)),
            }
        }
        // A signal ends the wait, which does no harm.
        let _ = poll(&mut sockets, PollTimeout::from(timeout_ms));
    }

    /// Passes the packets that are there, unless packets of their kind have cost too much by now. Returns whether these were all
    /// requests.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&Observation<'_>)) -> bool {
        if let Some(answers) = &mut self.answers {
            answers.drain(&mut each);
        }
        self.requests.as_mut().is_none_or(|requests| requests.drain(&mut each))
    }

    /// Returns the number of answers, and of requests, that came too fast to be read.
    pub(super) fn lost(&self) -> (u64, u64) {
        let lost = |paced: &Option<Paced>| paced.as_ref().map_or(0, |paced| paced.tap.lost());
        (lost(&self.answers), lost(&self.requests))
    }
}

/// Packets of one kind, and what reading them may cost. Those that are not read in time are counted as lost.
#[derive(Debug)]
struct Paced {
    tap: Tap,
    pace: Pace,
}

impl Paced {
    /// Passes the packets that are there, unless it is too early. Returns whether these were all.
    fn drain(&mut self, each: impl FnMut(&Observation<'_>)) -> bool {
        let now_ns = monotonic_ns();
        if !self.pace.is_due(now_ns) {
            return false;
        }
        let used_ns = thread_cpu_ns();
        let is_all = self.tap.drain(each);
        self.pace.record(now_ns, thread_cpu_ns() - used_ns);
        is_all
    }
}
