//! What a sender waited for, as later packets show it: a repair, room in the window of the peer, an acknowledgement, or a congestion
//! window that had become small.

use super::{
    super::{
        super::{
            Part,
            connection::{FEW_SEGMENTS, SHORTEST_TIMEOUT_NS, SLOW_START_ROUNDS},
        },
        sequence::is_after,
    },
    Path, Sender,
};
use crate::rtt::native::Segment;

/// A packet that is late by less was overtaken and not lost, where no round trip is known.
const OVERTAKEN_NS: u64 = 3_000_000;
/// The least timeout of Linux beside duplicate acknowledgements (TCP_RTO_MIN is 200 ms).
const RTO_NS: u64 = 180_000_000;

impl Sender {
    /// Data that was sent again without any answer stalled until now.
    pub(in crate::why::capture) fn settle_stall(&mut self, now_ns: u64) {
        if self.in_flight() > 0 && self.is_sent_again {
            let since = self.progress_ns.max(self.flight_ns);
            self.figures.stalled_ns = self.figures.stalled_ns.max(now_ns.saturating_sub(since));
        }
    }

    pub(super) fn send_again(&mut self, segment: &Segment, end: u32, path: Path, own_reach_ns: u64, segments: u64) {
        let now_ns = segment.time_ns;
        if let Some(hole) = self.holes.fill(segment.seq, end) {
            let overtaken_ns = (own_reach_ns * 9 / 10).max(OVERTAKEN_NS);
            let is_older = hole.is_filled_by_older(segment.stamps.map(|(value, _)| value), path.base_ns);
            if is_older.unwrap_or(now_ns.saturating_sub(hole.seen_ns) < overtaken_ns) {
                self.figures.overtaken += segments;
                self.holes.overtake(segment.seq, end);
                // Its gap is counted here, and not once more where the peer reports it.
                self.reported = None;
                return;
            }
        }
        self.figures.again += segments;
        self.figures.seen_spurious += if self.holes.was_overtaken(segment.seq, end) { segments } else { 0 };
        self.reported = None;
        self.flights.lose();
        self.sent.iter_mut().filter(|sent| is_after(sent.end, segment.seq)).for_each(|sent| sent.again = true);
        let last = self.last_sent_ns.unwrap_or(now_ns).max(self.progress_ns);
        let silent_ns = now_ns.saturating_sub(last);
        let least = SHORTEST_TIMEOUT_NS.max(path.current_ns.max(path.base_ns) * 3 / 2);
        if silent_ns >= least && (self.duplicates == 0 || silent_ns >= RTO_NS) {
            self.figures.timeouts.add(silent_ns);
            self.is_sent_again = true;
            // More in flight would have shown the loss sooner, had more of it arrived.
            let few = FEW_SEGMENTS * self.mss();
            let into = if self.in_flight() <= few { Part::Timeout } else { Part::Loss };
            let late_ns = silent_ns.saturating_sub(path.base_ns) as f64;
            let parts =
                [Part::Answer, Part::Loss, Part::RemoteQueue, Part::Transfer, Part::Distance, Part::ReceiverWindow];
            self.since_progress.shift_from(&parts, into, late_ns);
        }
        self.recovery = self.next;
    }

    /// The peer's window is full. If it was so a round trip ago, it has been the limit since: a sender that paces spreads over that
    /// time what the window allows.
    pub(super) fn fill_window(&mut self, path: Path) {
        let most_ns = path.current_ns.max(path.base_ns) * 3 / 2;
        let unfilled_ns = std::mem::take(&mut self.unfilled_ns);
        if unfilled_ns <= most_ns {
            self.shift_latest(&[Part::Transfer, Part::RemoteQueue], Part::ReceiverWindow, unfilled_ns as f64);
        }
    }

    /// There was more to send than the peer had room for, unless it had room long before.
    pub(super) fn settle_room(&mut self, now_ns: u64, path: Path) {
        let soon_ns = SHORTEST_TIMEOUT_NS.max(path.base_ns / 4);
        let waited = self.is_busy() || now_ns.saturating_sub(self.progress_ns) <= soon_ns;
        let without_room_ns = std::mem::take(&mut self.without_room_ns);
        if waited {
            self.shift_latest(&[Part::Answer, Part::Distance], Part::ReceiverWindow, without_room_ns as f64);
        }
    }

    /// A small segment that follows a delayed acknowledgement at once was held back for it (Nagle). What it waited is taken out of
    /// the silence as far as it did not count as data under way.
    pub(super) fn settle_held(&mut self, segment: &Segment, own_reach_ns: u64, silence_ns: &mut u64) {
        let Some((passed_ns, waited_ns)) = self.delayed.take() else {
            return;
        };
        let after_ns = segment.time_ns.saturating_sub(passed_ns);
        if after_ns <= soon_ns(own_reach_ns) && segment.payload_bytes < self.mss() {
            self.figures.held.add(waited_ns);
            let left_ns = self.times.shift_from(&[Part::Answer], Part::Held, waited_ns as f64);
            let silent_ns = silence_ns.saturating_sub(after_ns).min(left_ns as u64);
            *silence_ns -= silent_ns;
            self.times.add(Part::Held, silent_ns as f64);
        }
    }

    /// Nagle's algorithm lets no small segment leave before the small one before is acknowledged, but for the end of the data. Where
    /// two are under way beside each other, nothing is held back.
    pub(super) fn settle_beside(&mut self, segment: &Segment) {
        let is_tiny = segment.payload_bytes * 2 < self.mss();
        let is_beside = self.was_tiny && !self.has_all_acknowledged(segment.seq);
        self.beside += u64::from(is_tiny && is_beside && !segment.has(Segment::FIN));
        self.was_tiny = is_tiny;
    }

    /// Whether data that leaves now has not waited for an acknowledgement, nor TCP to divide it: what was sent before had room for more,
    /// and some of it is under way, or was acknowledged long ago.
    pub(in crate::why::capture) fn leaves_by_itself(&self, now_ns: u64, own_reach_ns: u64) -> bool {
        let is_acknowledged = self.in_flight() == 0;
        !self.last_full
            && !self.is_transferring()
            && (!is_acknowledged || now_ns.saturating_sub(self.progress_ns) > soon_ns(own_reach_ns))
    }

    /// Judges a burst after idleness: slow start, if later round trips carried more than the first, and before the idleness
    /// far more was in flight than at its beginning. Linux halves its window for each timeout that the pause lasts.
    pub(super) fn settle_burst(&mut self, now_ns: u64, path: Path) {
        let Some(burst) = self.burst.take() else {
            return;
        };
        let grew = burst.first_bytes >= 3 * self.mss()
            && u64::from(burst.first_bytes) * 3 < u64::from(burst.peak_before) * 2
            && burst.bytes >= burst.first_bytes.saturating_mul(5) / 2;
        if !grew {
            return;
        }
        let spent = self.times.get(Part::Transfer) - burst.transfer_ns;
        let most = (path.base_ns * SLOW_START_ROUNDS).min(now_ns.saturating_sub(burst.start_ns)) as f64;
        // One round trip is the distance.
        let slow = (spent.min(most) - path.base_ns as f64).max(0.0);
        self.times.shift(Part::Transfer, Part::SlowStart, slow);
        self.figures.slow_starts.add(slow as u64);
    }
}

/// The time within which data leaves that has waited for an acknowledgement, from when that passes.
fn soon_ns(own_reach_ns: u64) -> u64 {
    own_reach_ns + own_reach_ns / 2 + 2_000_000
}
