//! How soon a socket is worth another look.

use super::Observed;

/// A look is off by a part of the time between two looks. So that this is a like part of what bytes wait, a socket is
/// looked at twenty times in that time, within bounds around the time that is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rhythm {
    /// What bytes wait, of late: the shorter waits.
    wait_ns: u64,
    /// When that was seen; 0: never.
    seen_ns: u64,
}

/// Looks in the time that bytes wait: the mean error is then below 2 %.
const LOOKS: u64 = 20;
/// At most so many times that.
const LONGEST: u64 = 4;
/// Shorter waits are nothing to look at closely.
const NEAR_NS: u64 = 1_000_000;
/// What was seen so long ago says nothing about now.
const MEMORY_NS: u64 = 1_000_000_000;

impl Rhythm {
    /// The time between two looks is at least what is asked for, divided by this.
    pub const SHORTEST: u64 = 10;

    /// A look has shown this.
    pub fn observe(&mut self, now_ns: u64, observed: &Observed) {
        let waits = [observed.sender, observed.receiver];
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

    /// The time until the next look, where `poll_ns` is asked for.
    pub fn pause_ns(&self, now_ns: u64, poll_ns: u64) -> u64 {
        if !self.is_known(now_ns) {
            return poll_ns;
        }
        (self.wait_ns / LOOKS).max(poll_ns / Self::SHORTEST).min(poll_ns.saturating_mul(LONGEST))
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

    fn sent(wait_ms: u64) -> Observed {
        Observed { sender: Some(Delay { ns: wait_ms * MS, ..Delay::default() }), receiver: None }
    }

    #[test]
    fn the_longer_bytes_wait_the_rarer_are_looks() {
        for (wait_ms, pause_ms) in [(0, 10), (7, 1), (40, 2), (100, 5), (500, 25), (5_000, 40)] {
            let mut rhythm = Rhythm::default();
            rhythm.observe(MS, &sent(wait_ms));
            assert_eq!(rhythm.pause_ns(MS, 10 * MS), pause_ms * MS, "{wait_ms} ms");
        }
    }

    #[test]
    fn short_waits_count_at_once_and_long_ones_after_a_while() {
        let mut rhythm = Rhythm::default();
        rhythm.observe(MS, &sent(200));
        rhythm.observe(2 * MS, &sent(40));
        assert_eq!(rhythm.pause_ns(2 * MS, 10 * MS), 2 * MS);
        rhythm.observe(3 * MS, &sent(200));
        assert_eq!(rhythm.pause_ns(3 * MS, 10 * MS), 3 * MS);
        for look in 4..40 {
            rhythm.observe(look * MS, &sent(200));
        }
        assert!(rhythm.pause_ns(40 * MS, 10 * MS) > 9 * MS);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut rhythm = Rhythm::default();
        rhythm.observe(MS, &sent(7));
        assert_eq!(rhythm.pause_ns(900 * MS, 10 * MS), MS);
        assert_eq!(rhythm.pause_ns(1_100 * MS, 10 * MS), 10 * MS);
    }
}
