//! Chooses when to poll a socket again.

use super::Delays;

/// The error of a measurement is a part of the time between two polls. To keep the relative error constant, a socket is
/// polled twenty times within the delay of its bytes, within bounds around the requested interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct PollPacer {
    /// The recent delay, biased towards shorter delays.
    wait_ns: u64,
    /// The time of the last observed delay; 0 for never.
    seen_ns: u64,
}

/// The number of polls within the delay of bytes: the mean error is then below 2 %.
const POLLS: u64 = 20;
/// The greatest pause, as a multiple of the requested one.
const LONGEST: u64 = 4;
/// Shorter delays do not shorten the pause.
const NEAR_NS: u64 = 1_000_000;
/// Older observations are ignored.
const MEMORY_NS: u64 = 1_000_000_000;

impl PollPacer {
    /// The least pause is the requested one divided by this.
    pub const SHORTEST: u64 = 10;

    /// Records the delays of a poll.
    pub fn observe(&mut self, now_ns: u64, delays: &Delays) {
        let waits = [delays.sender, delays.receiver];
        let waits = waits.iter().flatten().map(|delay| delay.ns);
        let Some(wait_ns) = waits.filter(|&wait_ns| wait_ns >= NEAR_NS).min() else {
            return;
        };
        let known = Some(self.wait_ns).filter(|_| self.is_known(now_ns));
        self.wait_ns = match known {
            Some(known) if known < wait_ns => known + (wait_ns - known) / 8,
            _ => wait_ns,
        };
        self.seen_ns = now_ns;
    }

    /// Returns the time until the next poll, where `poll_ns` is requested.
    pub fn pause_ns(&self, now_ns: u64, poll_ns: u64) -> u64 {
        if !self.is_known(now_ns) {
            return poll_ns;
        }
        (self.wait_ns / POLLS).max(poll_ns / Self::SHORTEST).min(poll_ns.saturating_mul(LONGEST))
    }

    fn is_known(&self, now_ns: u64) -> bool {
        self.seen_ns > 0 && now_ns.saturating_sub(self.seen_ns) < MEMORY_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Delay;

    const MS: u64 = 1_000_000;

    fn sent(wait_ms: u64) -> Delays {
        Delays { sender: Some(Delay { ns: wait_ms * MS, ..Delay::default() }), receiver: None }
    }

    #[test]
    fn longer_delays_mean_rarer_polls() {
        for (wait_ms, pause_ms) in [(0, 10), (7, 1), (40, 2), (100, 5), (500, 25), (5_000, 40)] {
            let mut rhythm = PollPacer::default();
            rhythm.observe(MS, &sent(wait_ms));
            assert_eq!(rhythm.pause_ns(MS, 10 * MS), pause_ms * MS, "{wait_ms} ms");
        }
    }

    #[test]
    fn short_waits_count_at_once_and_long_ones_after_a_while() {
        let mut rhythm = PollPacer::default();
        rhythm.observe(MS, &sent(200));
        rhythm.observe(2 * MS, &sent(40));
        assert_eq!(rhythm.pause_ns(2 * MS, 10 * MS), 2 * MS);
        rhythm.observe(3 * MS, &sent(200));
        assert_eq!(rhythm.pause_ns(3 * MS, 10 * MS), 3 * MS);
        for poll in 4..40 {
            rhythm.observe(poll * MS, &sent(200));
        }
        assert!(rhythm.pause_ns(40 * MS, 10 * MS) > 9 * MS);
    }

    #[test]
    fn old_observations_are_ignored() {
        let mut rhythm = PollPacer::default();
        rhythm.observe(MS, &sent(7));
        assert_eq!(rhythm.pause_ns(900 * MS, 10 * MS), MS);
        assert_eq!(rhythm.pause_ns(1_100 * MS, 10 * MS), 10 * MS);
    }
}
