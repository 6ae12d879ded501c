//! What a sender waited for, as later packets show it: a repair, room in the window of the peer, an acknowledgement, or a congestion
//! window that had become small.

use super::{
    super::{super::Part, sequence::is_after},
    Path, Sender,
};
use crate::rtt::native::Segment;

/// A loss with fewer segments in flight shows by a timeout, because too few acknowledgements follow it.
const FEW_SEGMENTS: u32 = 4;
/// A packet that is late by less was overtaken and not lost, where no round trip is known.
const OVERTAKEN_NS: u64 = 3_000_000;
/// A sender waits at least this long before it takes silence for a loss, however short the round trip.
const SHORTEST_TIMEOUT_NS: u64 = 5_000_000;
/// The least timeout of Linux beside duplicate acknowledgements (TCP_RTO_MIN is 200 ms).
const RTO_NS: u64 = 180_000_000;
/// Round trips of a burst in which slow start shows.
const SLOW_START_ROUNDS: u64 = 10;

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

    /// A small segment that follows a delayed acknowledgement at once was held back for it (Nagle).
    pub(super) fn settle_held(&mut self, segment: &Segment, own_reach_ns: u64) {
        let Some((passed_ns, waited_ns)) = self.delayed.take() else {
            return;
        };
        let soon_ns = own_reach_ns + own_reach_ns / 2 + 2_000_000;
        if segment.time_ns.saturating_sub(passed_ns) <= soon_ns && segment.payload_bytes < self.mss() {
            self.figures.held.add(waited_ns);
            self.times.shift(Part::Answer, Part::Held, waited_ns as f64);
        }
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
