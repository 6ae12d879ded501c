//! Policies that choose which frames to send and their quality. They read no clock: times and figures are arguments. All
//! times are in nanoseconds of one clock.

use dwell_testbed::Bytes;

/// Frames per second.
pub const FRAMES_PER_SECOND: u64 = 30;
/// Time between the captures of two frames.
pub const FRAME_NS: u64 = 1_000_000_000 / FRAMES_PER_SECOND;
/// Most time from the capture of a frame to its complete arrival.
pub const DEADLINE_NS: u64 = 200 * MS;
const MS: u64 = 1_000_000;

/// A quality of the encoder; each has a rate a quarter higher than the level below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

/// The rates of the levels in kbit/s.
const RATES: [u64; 18] = [
    1000, 1250, 1560, 1950, 2440, 3050, 3810, 4770, 5960, 7450, 9310, 11_600, 14_600, 18_200, 22_700, 28_400, 35_500,
    44_400,
];

impl Level {
    /// The lowest quality, at which every policy starts.
    pub const LOWEST: Level = Level(0);

    /// The rate of the video at this quality.
    pub fn bits_per_second(self) -> u64 {
        RATES[self.0] * 1000
    }

    /// The size of a frame at this quality.
    pub fn frame(self) -> Bytes {
        Bytes(self.bits_per_second() / 8 / FRAMES_PER_SECOND)
    }

    /// The best quality within a rate.
    fn within(bits_per_second: u64) -> Level {
        let fits = RATES.partition_point(|rate| rate * 1000 <= bits_per_second);
        Level(fits.saturating_sub(1))
    }

    fn above(self) -> Level {
        Level((self.0 + 1).min(RATES.len() - 1))
    }

    fn below(self, levels: usize) -> Level {
        Level(self.0.saturating_sub(levels))
    }
}

/// The decision about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send it at this quality.
    Send(Level),
    /// Do not send it.
    Skip,
}

/// The figures of libdwell for the server's socket. Unknown figures are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Delay in the send buffer.
    pub sender_delay_ns: Option<u64>,
    /// Rate of acknowledged bytes.
    pub throughput_bps: Option<u64>,
    /// Smoothed round trip.
    pub rtt_ns: Option<u64>,
    /// Least round trip.
    pub min_rtt_ns: Option<u64>,
}

/// A server's policy.
pub trait Policy {
    /// Decides about a frame that was captured at `captured_ns`, by the figures at `now_ns`.
    fn decide(&mut self, now_ns: u64, captured_ns: u64, figures: &Figures) -> Decision;

    /// Records a write of a frame from `started_ns` to `ended_ns`.
    fn wrote(&mut self, started_ns: u64, ended_ns: u64, bytes: Bytes);
}

/// Goes by the figures of libdwell. It estimates the arrival of each frame: the delay in the send buffer, the queueing
/// delay in the network, the one-way delay, and the frame's own time on the link. A late frame is made smaller, and
/// skipped if that does not suffice. Quality rises by one level when the delay has been short for a while, and falls to
/// the acknowledged rate when the delay is long.
#[derive(Debug, Clone)]
pub struct Informed {
    level: Level,
    /// The time since which the delay has been short.
    calm_since_ns: Option<u64>,
    /// How long the delay must be short before the next level is tried.
    patience_ns: u64,
    /// When the level rose, if it has not fallen since.
    raised_ns: Option<u64>,
    /// When the effect of the last fall becomes visible.
    settled_ns: u64,
    /// When the last write ended.
    wrote_ns: u64,
}

/// Longest delay without congestion: a frame is delayed by its own first half.
const CALM_NS: u64 = 35 * MS;
/// Longest delay before the quality falls.
const CROWDED_NS: u64 = 60 * MS;
/// Intended delay of a frame; the rest of the deadline is a reserve for losses and the like.
const AIM_NS: u64 = 130 * MS;
/// Share of the acknowledged rate to send while the delay is long, in percent.
const RELIEF_PERCENT: u64 = 85;
/// Patience at the start.
const FIRST_PATIENCE_NS: u64 = 250 * MS;
/// Patience after the quality fell; it doubles with each level that was too high.
const NEXT_PATIENCE_NS: u64 = 2000 * MS;
/// Longest patience.
const LONGEST_PATIENCE_NS: u64 = 16_000 * MS;
/// A level that has lasted this long is not the cause of a delay.
const PROVEN_NS: u64 = 5000 * MS;
/// Levels to fall at once at most, to about half the rate: a loss also stops acknowledgements for a moment.
const MOST_LEVELS: usize = 3;
/// Time after a fall, in addition to a round trip, until its effect is visible.
const SETTLING_NS: u64 = 300 * MS;

impl Default for Informed {
    fn default() -> Self {
        Self {
            level: Level::LOWEST,
            calm_since_ns: None,
            patience_ns: FIRST_PATIENCE_NS,
            raised_ns: None,
            settled_ns: 0,
            wrote_ns: 0,
        }
    }
}

impl Policy for Informed {
    fn decide(&mut self, now_ns: u64, captured_ns: u64, figures: &Figures) -> Decision {
        let least = figures.min_rtt_ns.unwrap_or_default();
        let in_network = figures.rtt_ns.unwrap_or(least).saturating_sub(least);
        let waits = figures.sender_delay_ns.unwrap_or_default() + in_network;
        self.adapt(now_ns, waits, figures);
        // Figures do not change once all bytes are acknowledged, while the queue drains.
        let idle = now_ns.saturating_sub(self.wrote_ns + FRAME_NS + least);
        let waits = waits.saturating_sub(idle);
        let spent = now_ns.saturating_sub(captured_ns);
        let arrives = |level: Level| spent + waits + least / 2 + on_the_link(level, figures);
        let mut level = self.level;
        while arrives(level) > AIM_NS {
            if level == Level::LOWEST {
                return Decision::Skip;
            }
            level = level.below(1);
        }
        Decision::Send(level)
    }

    fn wrote(&mut self, _started_ns: u64, ended_ns: u64, _bytes: Bytes) {
        self.wrote_ns = ended_ns;
    }
}

impl Informed {
    fn adapt(&mut self, now_ns: u64, waits_ns: u64, figures: &Figures) {
        if waits_ns > CALM_NS {
            self.calm_since_ns = None;
        }
        if waits_ns > CROWDED_NS && now_ns >= self.settled_ns {
            let relief = figures.throughput_bps.unwrap_or_default() / 100 * RELIEF_PERCENT;
            let least = self.level.below(MOST_LEVELS);
            self.level = Level::within(relief).clamp(least, self.level.below(1));
            // Either the level was too high, or the congestion has another cause.
            let patience_ns = match self.raised_ns.take() {
                Some(raised) if now_ns.saturating_sub(raised) < PROVEN_NS => self.patience_ns * 2,
                _ => NEXT_PATIENCE_NS,
            };
            self.patience_ns = patience_ns.clamp(NEXT_PATIENCE_NS, LONGEST_PATIENCE_NS);
            self.settled_ns = now_ns + figures.rtt_ns.unwrap_or_default() + SETTLING_NS;
        }
        if waits_ns <= CALM_NS {
            let since = *self.calm_since_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since) >= self.patience_ns {
                self.level = self.level.above();
                self.calm_since_ns = Some(now_ns);
                self.raised_ns = Some(now_ns);
            }
        }
    }
}

/// How long a frame occupies the link, as far as that is known: an idle link is faster than the acknowledged rate, and
/// carries one frame at a time.
fn on_the_link(level: Level, figures: &Figures) -> u64 {
    let bits = level.frame().0 * 8;
    let by_rate = figures.throughput_bps.filter(|&rate| rate > 0).map(|rate| bits.saturating_mul(1_000_000_000) / rate);
    by_rate.unwrap_or(FRAME_NS).min(2 * FRAME_NS)
}

/// Goes by the throughput of its writes in the last second, less a tenth: bytes divided by the time in the calls. That is
/// the network's rate only while the socket is full.
#[derive(Debug, Clone, Default)]
pub struct Naive {
    writes: Writes,
}

impl Policy for Naive {
    fn decide(&mut self, _now_ns: u64, _captured_ns: u64, _figures: &Figures) -> Decision {
        let (bits, took) = self.writes.0.iter().fold((0, 0), |(bits, took), write| {
            (bits + write.bytes.0 * 8, took + write.ended_ns.saturating_sub(write.started_ns))
        });
        let rate = u128::from(bits) * 1_000_000_000 / u128::from(took.max(1));
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Decision::Send(Level::within(rate / 10 * 9))
    }

    fn wrote(&mut self, started_ns: u64, ended_ns: u64, bytes: Bytes) {
        self.writes.record(started_ns, ended_ns, bytes);
    }
}

/// Goes by whether its writes block, as a careful server without libdwell can. Quality rises by one level after each
/// second without a blocked write. After a blocked write it falls to the rate of the last second, less a tenth. A frame
/// that is late before it is written is skipped.
#[derive(Debug, Clone, Default)]
pub struct Cautious {
    level: usize,
    writes: Writes,
    /// When the level last changed; 0 before the first frame.
    changed_ns: u64,
}

/// A write that takes longer was blocked by a full socket.
const WAITED_NS: u64 = 5 * MS;

impl Policy for Cautious {
    fn decide(&mut self, now_ns: u64, captured_ns: u64, _figures: &Figures) -> Decision {
        if now_ns.saturating_sub(captured_ns) > DEADLINE_NS {
            return Decision::Skip;
        }
        if self.changed_ns == 0 {
            self.changed_ns = now_ns;
        }
        if now_ns.saturating_sub(self.changed_ns) >= SECOND_NS {
            self.level = Level(self.level).above().0;
            self.changed_ns = now_ns;
        }
        Decision::Send(Level(self.level))
    }

    fn wrote(&mut self, started_ns: u64, ended_ns: u64, bytes: Bytes) {
        self.writes.record(started_ns, ended_ns, bytes);
        if ended_ns.saturating_sub(started_ns) > WAITED_NS {
            let taken: u64 = self.writes.0.iter().map(|write| write.bytes.0 * 8).sum();
            self.level = self.level.min(Level::within(taken / 10 * 9).0);
            self.changed_ns = ended_ns;
        }
    }
}

/// The writes of the last second.
#[derive(Debug, Clone, Default)]
struct Writes(Vec<Call>);

#[derive(Debug, Clone, Copy)]
struct Call {
    started_ns: u64,
    ended_ns: u64,
    bytes: Bytes,
}

const SECOND_NS: u64 = 1000 * MS;

impl Writes {
    fn record(&mut self, started_ns: u64, ended_ns: u64, bytes: Bytes) {
        self.0.push(Call { started_ns, ended_ns, bytes });
        self.0.retain(|write| ended_ns.saturating_sub(write.ended_ns) < SECOND_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing waits, and the link takes much.
    const CALM: Figures = Figures {
        sender_delay_ns: Some(0),
        throughput_bps: Some(8_000_000),
        rtt_ns: Some(55 * MS),
        min_rtt_ns: Some(50 * MS),
    };
    /// Frame after frame at these figures. Gives the last decision.
    fn frames(policy: &mut impl Policy, from: u64, count: u64, figures: &Figures) -> Decision {
        let mut last = Decision::Skip;
        for number in from..from + count {
            let at = number * FRAME_NS;
            last = policy.decide(at, at, figures);
            if let Decision::Send(level) = last {
                policy.wrote(at, at, level.frame());
            }
        }
        last
    }

    #[test]
    fn levels_are_what_fits() {
        assert_eq!(Level::within(999_999), Level(0), "there is nothing less");
        assert_eq!(Level::within(1_250_000), Level(1));
        assert_eq!(Level::within(u64::MAX), Level(RATES.len() - 1));
        assert_eq!(Level::LOWEST.frame(), Bytes(4166));
        assert!(RATES.is_sorted());
    }

    #[test]
    fn quality_rises_while_nothing_waits() {
        let mut policy = Informed::default();
        assert_eq!(frames(&mut policy, 0, 1, &CALM), Decision::Send(Level(0)));
        let Decision::Send(level) = frames(&mut policy, 1, 90, &CALM) else { panic!("a frame was skipped") };
        assert!(level >= Level(8), "{level:?}");
    }

    #[test]
    fn with_much_waiting_quality_falls_below_what_is_acknowledged() {
        let mut policy = Informed::default();
        frames(&mut policy, 0, 110, &CALM);
        let before = policy.level;
        let crowded =
            Figures { sender_delay_ns: Some(40 * MS), rtt_ns: Some(75 * MS), throughput_bps: Some(6_000_000), ..CALM };
        frames(&mut policy, 110, 1, &crowded);
        assert_eq!(policy.level, Level::within(5_100_000).max(before.below(MOST_LEVELS)));
        assert!(policy.level < before);
        // The effect is not visible at once: no further fall before a round trip and more.
        let after = policy.level;
        frames(&mut policy, 111, 10, &crowded);
        assert_eq!(policy.level, after);
        frames(&mut policy, 121, 10, &crowded);
        assert!(policy.level < after);
    }

    #[test]
    fn a_level_that_was_too_much_is_tried_again_later_and_later() {
        let crowded = Figures { sender_delay_ns: Some(100 * MS), ..CALM };
        let mut policy = Informed::default();
        // The level rises after each calm, and is too high at once.
        let mut at = 0;
        for patience in [250, 2000, 4000, 8000, 16_000, 16_000] {
            assert_eq!(policy.patience_ns, patience * MS);
            let calm = patience * MS / FRAME_NS;
            frames(&mut policy, at, calm, &CALM);
            assert_eq!(policy.level, Level::LOWEST);
            frames(&mut policy, at + calm, 2, &CALM);
            assert_eq!(policy.level, Level(1));
            frames(&mut policy, at + calm + 2, 1, &crowded);
            assert_eq!(policy.level, Level::LOWEST);
            at += calm + 30;
        }
    }

    #[test]
    fn congestion_that_a_proven_level_did_not_cause_costs_less() {
        let mut policy =
            Informed { level: Level(8), patience_ns: LONGEST_PATIENCE_NS, raised_ns: Some(0), ..Informed::default() };
        let stalled = Figures { sender_delay_ns: Some(100 * MS), throughput_bps: Some(0), ..CALM };
        policy.decide(PROVEN_NS, PROVEN_NS, &stalled);
        assert_eq!(policy.level, Level(5));
        assert_eq!(policy.patience_ns, NEXT_PATIENCE_NS);
    }

    #[test]
    fn a_frame_that_would_be_late_is_made_smaller_or_skipped() {
        let mut policy = Informed { level: Level(9), settled_ns: u64::MAX, ..Informed::default() };
        let slow = Figures { throughput_bps: Some(4_000_000), ..CALM };
        // 25 ms there, 62 ms on the link, and 45 ms old: too much for level 9.
        let Decision::Send(level) = policy.decide(45 * MS, 0, &slow) else { panic!("a smaller one is in time") };
        assert!(level < Level(9) && level > Level::LOWEST, "{level:?}");
        policy.wrote_ns = 45 * MS;
        let stuck = Figures { sender_delay_ns: Some(150 * MS), ..CALM };
        assert_eq!(policy.decide(45 * MS, 45 * MS, &stuck), Decision::Skip);
    }

    #[test]
    fn after_skipping_for_the_length_of_the_delay_frames_are_sent_again() {
        // The figures of an idle network do not change.
        let stale = Figures { sender_delay_ns: Some(100 * MS), rtt_ns: Some(350 * MS), ..CALM };
        let mut policy = Informed { wrote_ns: 1000 * MS, ..Informed::default() };
        assert_eq!(policy.decide(1000 * MS, 1000 * MS, &stale), Decision::Skip);
        assert_eq!(policy.decide(1300 * MS, 1300 * MS, &stale), Decision::Skip);
        assert_ne!(policy.decide(1400 * MS, 1400 * MS, &stale), Decision::Skip);
    }

    #[test]
    fn nothing_known_is_no_reason_to_skip() {
        let unknown = Figures::default();
        let first = Informed::default().decide(5, 5, &unknown);
        assert_eq!(first, Decision::Send(Level::LOWEST));
    }

    #[test]
    fn a_socket_with_room_looks_like_a_fast_network_to_its_writer() {
        let mut policy = Naive::default();
        assert_eq!(policy.decide(1, 1, &Figures::default()), Decision::Send(Level::LOWEST));
        // 4 KB in 20 us, each.
        for number in 1..30 {
            let begin = number * FRAME_NS;
            policy.wrote(begin, begin + 20_000, Level::LOWEST.frame());
        }
        let best = Level(RATES.len() - 1);
        let decision = policy.decide(SECOND_NS, SECOND_NS, &Figures::default());
        assert_eq!(decision, Decision::Send(best));
        // A second later the socket is full, and writes go at the network's rate.
        for number in 0..31 {
            let begin = 2 * SECOND_NS + number * FRAME_NS;
            policy.wrote(begin, begin + FRAME_NS, Level(9).frame());
        }
        let decision = policy.decide(3 * SECOND_NS, 3 * SECOND_NS, &Figures::default());
        assert_eq!(decision, Decision::Send(Level(8)));
    }

    #[test]
    fn writes_that_do_not_block_look_like_a_faster_network() {
        let mut policy = Cautious::default();
        frames(&mut policy, 1, 33 * 5, &Figures::default());
        assert_eq!(policy.level, 5);
    }

    #[test]
    fn a_blocked_write_leads_to_the_rate_of_the_last_second() {
        let mut policy = Cautious { level: 12, ..Cautious::default() };
        for number in 0..30 {
            let end = number * FRAME_NS;
            policy.wrote(end, end, Level(9).frame());
        }
        let end = 30 * FRAME_NS;
        policy.wrote(end - 20 * MS, end, Level(9).frame());
        assert_eq!(policy.level, 8, "nine tenths of level 9's rate");
        assert_eq!(policy.decide(end + DEADLINE_NS + 1, end, &Figures::default()), Decision::Skip);
    }
}
