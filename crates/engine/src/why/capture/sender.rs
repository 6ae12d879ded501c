//! One end of a connection in a capture, as a sender of data: what limited it, from the packets that passed.
//!
//! A capture shows an acknowledgement before the sender has it. So an acknowledgement counts only when what it causes can
//! pass: after the way from the place of the capture to the sender and back. With it, bytes in flight are those that the
//! sender knew of, wherever the capture was taken.

mod conclusion;
mod settle;

use std::collections::VecDeque;

use super::{
    super::{
        Part, Times,
        connection::{IDLE_NS, MESSAGE_SEGMENTS},
        figures::Silences,
    },
    flights::Flights,
    holes::Holes,
    scale::{Offer, Scales},
    sequence::{distance, is_after},
    spacing::Spacing,
};
use crate::rtt::native::Segment;

/// Entries that are remembered of packets under way; older ones give no round trip.
const MAX_SENT: usize = 1024;
/// Acknowledgements that have passed and not arrived; beyond, they arrive at once.
const MAX_PENDING: usize = 1024;
/// The largest segment where nothing states it.
const MSS: u32 = 1460;
/// Shorter segments may have room for more.
const LEAST_FULL: u32 = 1200;
/// Receivers delay an acknowledgement by 40 ms and more (TCP_DELACK_MIN).
const DELAYED_NS: u64 = 25_000_000;

/// One end as a sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// The size of the largest segment that the other end takes; `None` where its SYN was not captured.
    pub(super) mss: Option<u32>,
    /// The shift of the windows that this end offers; `None` where its SYN was not captured, so that only a window of 0 can
    /// be read.
    pub(super) scale: Option<u8>,
    /// The sequence number after the last byte that was sent.
    next: Option<u32>,
    /// The first byte that is not acknowledged, as far as the sender knows.
    acked: Option<u32>,
    /// The sequence number after the last byte that the peer has room for, as far as the sender knows.
    edge: Option<u32>,
    /// What the peer has last offered, as far as the sender knows, where the scale of its window is not known.
    offer: Option<Offer>,
    scales: Scales,
    flights: Flights,
    spacing: Spacing,
    /// Flights that began after the one before had ended.
    rested: u64,
    /// Time in which data was in a queue before it passed here.
    queued_ns: u64,
    /// The sum of how long it was there, times that time.
    in_queue: f64,
    pending: VecDeque<Ack>,
    sent: VecDeque<Sent>,
    holes: Holes,
    /// What must be acknowledged until a loss is repaired.
    recovery: Option<u32>,
    /// Acknowledgements since the last progress that report a gap.
    duplicates: u32,
    /// Where the gap begins that the peer has reported last, unless it was sent again.
    reported: Option<u32>,
    last_sent_ns: Option<u64>,
    last_small: bool,
    /// Whether the last segment had no room for more.
    last_full: bool,
    /// The largest segment that no device has joined.
    largest: u32,
    progress_ns: u64,
    /// Whether something was sent again after a timeout since then.
    is_sent_again: bool,
    /// When the data in flight began to be sent.
    flight_ns: u64,
    /// Time in which a message was under way and the peer had no room for more, which matters only if there is more.
    without_room_ns: u64,
    /// Time in transfer since the peer's window was last full.
    unfilled_ns: u64,
    /// Times, but for those since the last progress.
    times: Times,
    since_progress: Times,
    /// A wait for a delayed acknowledgement: when it passed, and how long it took.
    delayed: Option<(u64, u64)>,
    /// Whether the last segment was less than half of one, and how often two such were under way beside each other.
    was_tiny: bool,
    beside: u64,
    burst: Option<Burst>,
    peak_bytes: u32,
    pub(super) figures: SenderFigures,
}

/// What was counted of a sender.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SenderFigures {
    pub(super) bytes: u64,
    pub(super) segments: u64,
    /// Segments that were sent again, or filled a gap too late to have been overtaken.
    pub(super) again: u64,
    /// Segments that the peer has reported as those that it had already, and those sent again that had been overtaken alone.
    pub(super) reported_spurious: u64,
    pub(super) seen_spurious: u64,
    /// Segments that were overtaken by later ones.
    pub(super) overtaken: u64,
    /// Segments that were acknowledged and not captured.
    pub(super) missed: u64,
    pub(super) timeouts: Silences,
    pub(super) held: Silences,
    pub(super) slow_starts: Silences,
    pub(super) busy_ns: u64,
    pub(super) closed_ns: u64,
    /// Pauses of the application with earlier data under way.
    pub(super) pauses: Silences,
    /// The longest time without any acknowledgement of data that was sent several times.
    pub(super) stalled_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ack {
    arrives_ns: u64,
    number: u32,
    edge: Option<u32>,
    offer: Option<Offer>,
    path: Path,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    end: u32,
    time_ns: u64,
    /// Part of it was sent again, so that its acknowledgement tells no round trip.
    again: bool,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    start_ns: u64,
    first_bytes: u32,
    bytes: u32,
    /// The most that was in flight before.
    peak_before: u32,
    /// The time in transfer when it began.
    transfer_ns: f64,
}

/// The round trip of the whole path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Path {
    pub(super) base_ns: u64,
    pub(super) current_ns: u64,
    /// By how much longer than at its shortest the way from the place of the capture to the sender and back is.
    pub(super) own_queue_ns: u64,
}

impl SenderFigures {
    /// Segments that were sent again for nothing.
    pub(super) fn spurious(&self) -> u64 {
        // A capture near the receiver has both witnesses of the same segments.
        self.reported_spurious.max(self.seen_spurious)
    }
}

impl Sender {
    pub(super) fn mss(&self) -> u32 {
        self.mss.unwrap_or(if self.largest == 0 { MSS } else { self.largest.max(536) }).max(64)
    }

    /// Bytes that are sent and not acknowledged, as far as the sender knows.
    pub(super) fn in_flight(&self) -> u32 {
        match (self.next, self.acked) {
            (Some(next), Some(acked)) => distance(next, acked),
            _ => 0,
        }
    }

    /// What counts as room for a segment: devices may take larger ones and divide them.
    fn least_room(&self) -> u32 {
        self.mss().min(MSS)
    }

    /// Whether the peer has no room for a segment.
    fn is_closed(&self) -> bool {
        let (Some(edge), Some(acked)) = (self.edge, self.acked) else {
            return false;
        };
        distance(edge, acked) < self.least_room() && self.figures.bytes > 0
    }

    fn is_window_limited(&self) -> bool {
        let (Some(edge), Some(next)) = (self.edge, self.next) else {
            return false;
        };
        distance(edge, next) < self.least_room()
    }

    /// Whether the segment that begins there was sent again.
    fn is_resent(&self, seq: u32) -> bool {
        self.sent.iter().find(|sent| is_after(sent.end, seq)).is_some_and(|sent| sent.again)
    }

    /// Whether anything is under way, or would be if the peer had room.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight() > 0 || self.is_closed()
    }

    /// Whether it is busy with more than a message.
    pub(super) fn is_transferring(&self) -> bool {
        self.in_flight() > MESSAGE_SEGMENTS * self.mss() || self.recovery.is_some() || self.is_closed()
    }

    /// Whether more than a message has passed of which no acknowledgement has passed yet.
    pub(super) fn has_many_under_way(&self) -> bool {
        let (Some(next), Some(acked)) = (self.next, self.passed_acknowledgement()) else {
            return false;
        };
        distance(next, acked) > MESSAGE_SEGMENTS * self.mss()
    }

    /// Whether acknowledgements of all that it sends before this number have passed.
    pub(super) fn has_all_acknowledged(&self, seq: u32) -> bool {
        self.passed_acknowledgement().is_some_and(|acked| !is_after(seq, acked))
    }

    /// The number of the last acknowledgement that has passed.
    fn passed_acknowledgement(&self) -> Option<u32> {
        self.pending.back().map(|ack| ack.number).or(self.acked)
    }

    /// Returns when the next acknowledgement arrives.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.pending.front().map(|ack| ack.arrives_ns)
    }

    /// Attributes the time from `from_ns` to `to_ns`, in which it was busy.
    pub(super) fn spend(&mut self, from_ns: u64, to_ns: u64, path: Path) {
        let time = to_ns.saturating_sub(from_ns);
        self.figures.busy_ns += time;
        if self.is_closed() {
            self.figures.closed_ns += time;
        }
        if let (Some(offer), Some(next), None) = (self.offer, self.next, self.recovery) {
            self.scales.spend(time, offer, next, self.least_room());
        }
        if self.recovery.is_some() {
            self.since_progress.add(Part::Loss, time as f64);
        } else if self.is_closed() || (self.is_window_limited() && self.is_transferring()) {
            self.since_progress.add(Part::ReceiverWindow, time as f64);
        } else if self.in_flight() <= MESSAGE_SEGMENTS * self.mss() {
            self.without_room_ns += if self.is_window_limited() { time } else { 0 };
            let due_ns = self.flight_ns.saturating_add(path.base_ns).clamp(from_ns, to_ns);
            self.since_progress.add(Part::Distance, (due_ns - from_ns) as f64);
            self.since_progress.add(Part::Answer, (to_ns - due_ns) as f64);
        } else {
            self.unfilled_ns = self.unfilled_ns.saturating_add(time);
            let (flight, mss) = (self.in_flight(), self.mss());
            self.flights.spend(from_ns, to_ns, flight, mss, path);
            let base = path.base_ns as f64 / path.current_ns.max(path.base_ns).max(1) as f64;
            self.since_progress.add(Part::Transfer, time as f64 * base);
            self.since_progress.add(Part::RemoteQueue, time as f64 * (1.0 - base));
        }
    }

    /// Applies the acknowledgements that have arrived.
    pub(super) fn arrive(&mut self, now_ns: u64) {
        while let Some(ack) = self.pending.front().copied().filter(|ack| ack.arrives_ns <= now_ns) {
            self.pending.pop_front();
            if self.acked.is_none_or(|acked| !is_after(acked, ack.number)) {
                (self.edge, self.offer) = (ack.edge, ack.offer);
            }
            if self.acked.is_none_or(|acked| is_after(ack.number, acked)) {
                if self.is_transferring() {
                    let bytes = self.acked.map_or(0, |acked| distance(ack.number, acked));
                    self.flights.acknowledge(ack.arrives_ns.min(now_ns), bytes, ack.path);
                }
                self.progress(ack.number, now_ns);
            }
        }
    }

    fn progress(&mut self, acked: u32, now_ns: u64) {
        self.settle_stall(now_ns);
        self.is_sent_again = false;
        self.acked = Some(acked);
        self.duplicates = 0;
        self.progress_ns = now_ns;
        self.flight_ns = now_ns;
        let spent = std::mem::take(&mut self.since_progress);
        self.times.plus(&spent);
        if self.recovery.is_some_and(|recovery| !is_after(recovery, acked)) {
            self.recovery = None;
            self.flights.lose();
        }
        let mss = self.mss();
        // The end of a connection takes a number too, and a keep-alive's byte is no data.
        let missing = |bytes: u32| if bytes > 1 { u64::from(bytes.div_ceil(mss)) } else { 0 };
        if let Some(next) = self.next {
            // Data passed that was not captured.
            self.figures.missed += missing(distance(acked, next));
        }
        if self.next.is_none_or(|next| is_after(acked, next)) {
            self.next = Some(acked);
        }
        self.figures.missed += self.holes.acknowledge(acked).map(missing).sum::<u64>();
        if self.in_flight() == 0 {
            self.flights.pause();
        }
    }

    /// Takes a segment with data, before which both ends were silent. Returns true if it carries new data.
    pub(super) fn send(&mut self, segment: &Segment, path: Path, own_reach_ns: u64, silence_ns: &mut u64) -> bool {
        let (now_ns, bytes) = (segment.time_ns, segment.payload_bytes);
        let end = segment.seq.wrapping_add(bytes);
        let next = *self.next.get_or_insert(segment.seq);
        self.acked.get_or_insert(segment.seq);
        let is_probe = bytes <= 1 && (self.is_closed() || (segment.seq.wrapping_add(1) == next && !self.is_sending()));
        if is_probe {
            return false;
        }
        if bytes <= self.mss.unwrap_or(MSS) {
            self.largest = self.largest.max(bytes);
        }
        let segments = u64::from(bytes.div_ceil(self.mss()));
        self.figures.segments += segments;
        if !is_after(end, next) {
            self.send_again(segment, end, path, own_reach_ns, segments);
            self.last_sent_ns = Some(now_ns);
            return false;
        }
        self.settle_room(now_ns, path);
        if !self.is_sending() {
            self.begin_flight(now_ns, path);
        }
        if is_after(segment.seq, next) {
            self.holes.open(next, segment.seq, now_ns, segment.stamps.map(|(value, _)| value));
        }
        self.settle_held(segment, own_reach_ns, silence_ns);
        self.settle_beside(segment);
        self.scales.send(end);
        self.next = Some(end);
        self.figures.bytes += u64::from(distance(end, next).min(bytes));
        if let Some(last_ns) = self.last_sent_ns {
            self.spacing.send(now_ns.saturating_sub(last_ns), self.last_full, segments);
        }
        // The path may take less than the handshake has said, the option of timestamps takes 12 bytes, and devices may take several
        // segments at once.
        let stated = self.mss.into_iter().flat_map(|mss| [mss, mss.saturating_sub(12)]).filter(|full| *full > 0);
        let mut full = stated.chain(Some(self.largest).filter(|largest| *largest >= LEAST_FULL));
        self.last_full = full.any(|full| bytes.is_multiple_of(full));
        self.last_small = bytes < self.mss();
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { end, time_ns: now_ns, again: false });
        if let Some(burst) = &mut self.burst {
            burst.bytes = burst.bytes.saturating_add(bytes);
            if now_ns.saturating_sub(burst.start_ns) < path.base_ns * 4 / 5 {
                burst.first_bytes = burst.first_bytes.saturating_add(bytes);
            }
        }
        self.last_sent_ns = Some(now_ns);
        if self.is_transferring() && self.recovery.is_none() {
            let flight = self.in_flight();
            self.flights.send(now_ns, flight, path);
            if self.is_window_limited() {
                self.fill_window(path);
            }
        }
        true
    }

    /// Counts time in which data was in a queue before it passed here.
    pub(super) fn queue(&mut self, ns: u64, of_silence_ns: u64, in_queue_ns: u64, into: Part) {
        self.in_queue += ns as f64 * in_queue_ns as f64;
        let left = ns.saturating_sub(of_silence_ns) as f64;
        self.queued_ns += ns;
        self.since_progress.add(into, of_silence_ns as f64);
        self.shift_latest(&[Part::Transfer, Part::RemoteQueue, Part::Distance, Part::Answer], into, left);
    }

    /// Moves up to `ns` from parts to another: of the time since the last progress, and then of that before.
    fn shift_latest(&mut self, parts: &[Part], to: Part, ns: f64) {
        let left_ns = self.since_progress.shift_from(parts, to, ns);
        self.times.shift_from(parts, to, left_ns);
    }

    /// Returns when data was last sent.
    pub(super) fn last_sent_ns(&self) -> Option<u64> {
        self.last_sent_ns
    }

    /// Returns the times until now.
    pub(super) fn spent(&self) -> Times {
        let mut times = self.times;
        times.plus(&self.since_progress);
        times
    }

    /// Takes data of the peer: a request, if that has all that was sent before. Returns whether it is one.
    pub(super) fn ask(&mut self, request: &Segment) -> bool {
        self.without_room_ns = 0;
        let has_all = self.next == Some(request.ack);
        if has_all {
            self.flights.ask();
            // What leaves next answers it, and has waited for no acknowledgement.
            self.delayed = None;
        }
        has_all
    }

    /// Whether data that was sent again has not been acknowledged so far.
    pub(super) fn is_stalled(&self) -> bool {
        self.in_flight() > 0 && self.is_sent_again
    }

    /// Whether most of its segments are full ones, as those of a transfer.
    pub(super) fn sends_full_segments(&self) -> bool {
        self.figures.bytes * 2 >= self.figures.segments * u64::from(self.mss())
    }

    /// Whether Nagle's algorithm is switched off. Of two proofs a capture may lack one acknowledgement.
    pub(super) fn has_no_delay(&self) -> bool {
        self.beside >= 2
    }

    /// Whether its data leaves so evenly that a pace may hold it back.
    pub(super) fn is_paced(&self) -> bool {
        self.spacing.is_paced()
    }

    fn is_sending(&self) -> bool {
        self.in_flight() > 0
    }

    fn begin_flight(&mut self, now_ns: u64, path: Path) {
        self.flight_ns = now_ns;
        if self.last_sent_ns.is_none() {
            self.unfilled_ns = u64::MAX;
        }
        self.rested += u64::from(self.last_sent_ns.is_some());
        let idle_ns = self.last_sent_ns.map(|last| now_ns.saturating_sub(last));
        if idle_ns.is_some_and(|idle| idle >= IDLE_NS.max(2 * path.base_ns)) {
            self.settle_burst(now_ns, path);
            // TCP shrinks its window in such a pause.
            self.flights.lose();
            self.unfilled_ns = u64::MAX;
            let transfer_ns = self.times.get(Part::Transfer) + self.since_progress.get(Part::Transfer);
            self.burst =
                Some(Burst { start_ns: now_ns, first_bytes: 0, bytes: 0, peak_before: self.peak_bytes, transfer_ns });
        }
    }

    /// Takes an acknowledgement that passes, with the window that it offers. Returns the round trip from here to the
    /// acknowledging end and back, if it tells one.
    pub(super) fn acknowledge(
        &mut self,
        segment: &Segment,
        scale: Option<u8>,
        reach_ns: u64,
        peer_ns: u64,
        path: Path,
    ) -> Option<u64> {
        let (now_ns, number) = (segment.time_ns, segment.ack);
        match segment.sack {
            // The receiver reports data that it had already (RFC 2883).
            Some((left, right)) if !is_after(right, number) => {
                let bytes = distance(right, left);
                self.figures.reported_spurious += u64::from(bytes.div_ceil(self.mss()).clamp(1, 64));
            }
            Some(_) => self.duplicates += 1,
            None => {}
        }
        if self.reported.is_some_and(|gap| is_after(number, gap)) {
            // It closed by itself: later packets had overtaken.
            self.figures.overtaken += 1;
            self.reported = None;
        }
        if segment.sack.is_some_and(|(_, right)| is_after(right, number)) && !self.is_resent(number) {
            self.reported = Some(number);
        }
        let mut round_trip = None;
        while let Some(sent) = self.sent.front().copied().filter(|sent| !is_after(sent.end, number)) {
            self.sent.pop_front();
            round_trip = (!sent.again).then(|| now_ns.saturating_sub(sent.time_ns));
        }
        let edge = match (scale, segment.window) {
            (Some(scale), window) => Some(number.wrapping_add(u32::from(window) << scale)),
            (None, 0) => Some(number),
            (None, _) => None,
        };
        let offer = (scale.is_none() && segment.window > 0).then_some((number, segment.window));
        if let Some(offer) = offer {
            self.scales.pass(offer);
        }
        let is_whole = self.next == Some(number);
        if segment.payload_bytes == 0 && is_whole && self.last_small && round_trip.is_some() {
            let waited = round_trip.unwrap_or(0).saturating_sub(peer_ns);
            if waited >= DELAYED_NS {
                self.delayed = Some((now_ns, waited));
            }
        }
        self.peak_bytes = self.peak_bytes.max(self.in_flight());
        if self.pending.len() >= MAX_PENDING {
            self.arrive(u64::MAX);
        }
        // Acknowledgements stay in order, though the estimate of the way becomes shorter.
        let after = self.pending.back().map_or(0, |ack| ack.arrives_ns);
        self.pending.push_back(Ack {
            arrives_ns: now_ns.saturating_add(reach_ns).max(after),
            number,
            edge,
            offer,
            path,
        });
        round_trip
    }
}
