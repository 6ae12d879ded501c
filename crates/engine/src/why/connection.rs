//! Divides the time of one connection into parts, from successive polls of its socket.

pub(super) mod between;
mod end;
pub(super) mod unasked;

use std::cmp::Ordering;

use self::unasked::Unasked;
use super::{
    Part, Role, Times,
    cause::stalled_peer::MIN_STALL_NS,
    figures::{ByLength, ConnectionFigures, Silences, Sums},
    poll::{
        CLOSE_WAIT, arrived, has_acknowledged, is_before_it_began, is_corked, is_held_back, is_stuck, last_of_both,
        round_trip, unacknowledged, unread, written,
    },
};
use crate::{
    layers::Ends,
    socket::{Estimator, Meter, Reading, TcpInfo},
};

/// A pause between two parts of one transfer that is longer is idleness: nobody waits.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// Up to this many segments in flight are a message, which fills no queue; more are a transfer.
pub(super) const MESSAGE_SEGMENTS: u32 = 2;
/// One to fill the congestion window, and one for the rest, a bit late.
pub(super) const FEW_ROUND_TRIPS: f64 = 2.2;
/// TCP repairs a loss from this state on (`TCP_CA_Recovery`).
const RECOVERY: u8 = 3;
/// A loss with fewer segments in flight shows by a timeout, because too few acknowledgements follow it.
pub(super) const FEW_SEGMENTS: u32 = 4;
/// A sender waits at least this long before it takes silence for a loss, however short the round trip.
pub(super) const SHORTEST_TIMEOUT_NS: u64 = 5_000_000;
/// After this much silence Linux shrinks the congestion window, at least.
pub(super) const IDLE_NS: u64 = 200_000_000;
/// Round trips of a burst in which slow start shows.
pub(super) const SLOW_START_ROUNDS: u64 = 10;

/// Stamps tell more from this much on that queues add to a round trip, which is half of what `local-queue` needs, and from
/// this share of the time in which bytes wait to be read, which is what `slow-reader` needs.
const STAMPED_QUEUE_NS: f64 = 2.5e6;
const STAMPED_READER: f64 = 0.3;

/// A reader that reads nothing for at least this long has stopped, and is not only busy with what it has read.
const LEAST_READING_STOP_NS: u64 = 20_000_000;

/// Up to this many unread bytes that stay unread are not an answer that somebody waits for.
const FEW_BYTES: u64 = 4096;

/// What is longer is an upload, and may need no answer.
const LONGEST_REQUEST: u64 = 65_536;

/// After a longer pause between two messages, the second does not belong to the same transfer: there was nothing to send.
const MESSAGE_PAUSE_NS: u64 = 50_000_000;

/// Who sent last, or who will send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Local,
    Peer,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Local => Side::Peer,
            Side::Peer => Side::Local,
        }
    }
}

/// The time of one connection, from polls in the order of their times.
#[derive(Debug, Clone)]
pub struct Connection {
    first: Reading,
    last: Reading,
    meter: Meter,
    /// What was counted so far. The times are those of `figures`.
    figures: ConnectionFigures,
    /// Who sent data last; the likelier side if nothing tells.
    speaker: Side,
    /// Whether both have sent since the poll before, and nothing tells who did so last.
    is_unsure: bool,
    /// Whether this host has acknowledged what it received last, without an answer.
    is_acknowledged: bool,
    /// Time without anything under way or to read since the last data of either side.
    silence_ns: u64,
    /// At a server: time in which a client's bytes have waited to be read since the client last sent anything.
    unread_ns: u64,
    /// Time in which many bytes waited to be read, since some were read last.
    unread_since_ns: u64,
    /// Time in which a few bytes waited to be read for which nobody may have waited: tickets of TLS on a connection that is
    /// kept for later are read with the next answer.
    left_ns: u64,
    /// Waits in turns that passed between two polls, as far as their length is known.
    passed: Silences,
    /// The wait for the first answer of the connection, once it has come.
    first_wait_ns: Option<u64>,
    /// How long nothing had been sent when the first poll found that, as part of the first silence.
    silent_before_ns: u64,
    /// Time by polls: of what is under way, but for that since the last acknowledgement, and of what is not.
    under_way: Times,
    since_progress: Times,
    quiet: Times,
    /// When data was last acknowledged or first sent.
    progress_ns: u64,
    /// Whether data was sent again since then.
    is_sent_again: bool,
    /// Since when a small segment is held back.
    held_since_ns: Option<u64>,
    /// Since when the application holds one back.
    corked_since_ns: Option<u64>,
    /// Since when data waits although nothing keeps it from leaving.
    stuck_since_ns: Option<u64>,
    /// When the burst after the last idleness began, if the congestion window was smaller then than before.
    burst_ns: Option<u64>,
    peak_cwnd: u32,
    /// What this host has written since the last silence.
    burst_bytes: u64,
    /// What the client has sent since the server last spoke.
    asked_bytes: u64,
    /// The shortest request that was answered.
    shortest_asked: Option<u64>,
    /// Whether the client has gone on by itself after a silence, as one that ships messages.
    goes_on: bool,
    unasked: Unasked,
}

impl Connection {
    /// Begins with the first poll of a socket.
    pub fn new(role: Role, first: &Reading) -> Connection {
        let info = &first.info;
        let speaker = match (info.last_data_sent_ms.cmp(&info.last_data_received_ms), role) {
            _ if info.unacked > 0 || info.bytes_received == Some(0) => Side::Local,
            (Ordering::Less, _) => Side::Local,
            (Ordering::Greater, _) => Side::Peer,
            // Within a tick of the kernel: nobody is accused of a silence that may be the client's own pause.
            (Ordering::Equal, Role::Server) => Side::Local,
            (Ordering::Equal, Role::Client) => Side::Peer,
        };
        let mut meter = Meter::new(Estimator::Exact);
        meter.observe(first);
        Connection {
            first: *first,
            last: *first,
            meter,
            figures: ConnectionFigures {
                role,
                sums: Sums { polls: 1, ..Sums::default() },
                ..ConnectionFigures::default()
            },
            speaker,
            is_unsure: false,
            is_acknowledged: false,
            silence_ns: 0,
            unread_ns: 0,
            unread_since_ns: 0,
            left_ns: 0,
            passed: Silences::default(),
            first_wait_ns: None,
            silent_before_ns: u64::from(info.last_data_sent_ms.min(info.last_data_received_ms)) * 1_000_000,
            under_way: Times::default(),
            since_progress: Times::default(),
            quiet: Times::default(),
            progress_ns: first.time_ns,
            is_sent_again: false,
            held_since_ns: None,
            corked_since_ns: None,
            stuck_since_ns: None,
            burst_ns: None,
            peak_cwnd: 0,
            burst_bytes: 0,
            asked_bytes: match role {
                Role::Client => unacknowledged(first),
                Role::Server => unread(first),
            },
            shortest_asked: None,
            goes_on: false,
            unasked: Unasked::default(),
        }
    }

    /// Tells the flow from this end to the other.
    pub fn set_ends(&mut self, ends: Ends) {
        self.figures.ends = Some(ends);
    }

    /// Adds a poll. Returns for how long a request has waited that was there at the poll before, and that was answered
    /// since; `None` if it waited for less than twice the time between the polls, because the kernel knows of the latest data
    /// alone, which may be another answer. The kernel's clock has a tick of some milliseconds.
    pub fn observe(&mut self, now: &Reading) -> Option<u64> {
        let dt_ns = now.time_ns.saturating_sub(self.last.time_ns);
        self.spend(dt_ns);
        self.follow_progress(now);
        self.follow_stuck(now);
        self.follow_held(now);
        self.follow_burst(now);
        let more =
            |of: fn(&Reading) -> Option<u64>| of(now).zip(of(&self.last)).map_or(0, |(b, a)| b.saturating_sub(a));
        // The end of a client's data asks for nothing: a request goes on to wait. That of a server's data ends the wait.
        let received = match self.figures.role {
            Role::Client => more(|reading| reading.info.bytes_received),
            Role::Server => more(arrived),
        };
        let written = more(written);
        let (wrote, got) = (written > 0, received > 0);
        let answered_ns = self.answered_ns(now, wrote, got);
        let has_read = unread(now) < unread(&self.last);
        if unread(now) < unread(&self.last) + received {
            self.end_reading_stop(dt_ns);
        }
        if wrote || got || has_read {
            self.end_left(wrote && !has_read);
        }
        let (asked, answered) = if self.figures.role == Role::Server { (got, wrote) } else { (wrote, got) };
        let was_asked = asked || self.is_unsure || self.speaker == self.client();
        self.figures.answered_polls += u64::from(answered && was_asked);
        if wrote || got {
            let alone = match (wrote, got) {
                (true, true) => None,
                (true, false) => Some(Side::Local),
                (false, _) => Some(Side::Peer),
            };
            let known = alone.or_else(|| last_of_both(&self.last.info, &now.info));
            let is_first = !self.has_spoken();
            let begun = is_first.then_some(self.client());
            let first = alone.or_else(|| self.first_of_both(&now.info, known)).or(begun);
            // They take turns, unless it is known that they did not. Nobody waits before the first request.
            if let Some(next) = first.filter(|next| self.is_unsure || is_first && *next == self.client()) {
                self.speaker = next.other();
            }
            self.figures.turns += u64::from(wrote && (got || self.speaker == Side::Peer));
            if alone == Some(Side::Local) && self.speaker == Side::Local {
                self.speak_on(now);
            }
            let answers = self.figures.sums.service.count;
            let between = self.between(now, dt_ns, alone);
            match &between {
                Some(between) if alone.is_none() => self.pass_turns(between, known),
                _ => self.break_silence(first.unwrap_or(self.speaker.other())),
            }
            if self.figures.sums.service.count > answers
                && alone.is_none()
                && self.may_have_come_in_pieces(&now.info, known)
            {
                self.figures.sums.doubtful += 1;
            }
            self.burst_bytes += written;
            self.follow_turns(written, received);
            self.is_unsure = known.is_none();
            self.speaker = known.unwrap_or(self.speaker);
            match &between {
                Some(between) => self.resume_silence(now, between),
                None if is_before_it_began(&self.last) => self.begin_silence(now, dt_ns),
                None => {}
            }
        }
        self.is_acknowledged = !wrote && (has_acknowledged(&self.last.info, &now.info) || self.is_acknowledged && !got);
        self.meter.observe(now);
        self.figures.sums.polls += 1;
        self.last = *now;
        answered_ns
    }

    /// Tells that the connection was over when it was to be polled again. A request that had waited until then was answered
    /// meanwhile, or given up. Messages of a client that goes on by itself ask for nothing.
    pub fn end(&mut self) {
        let (info, client) = (&self.last.info, self.client());
        let server_bytes = if client == Side::Local { info.bytes_received } else { info.bytes_sent };
        let has_asked = match self.shortest_asked {
            Some(_) => self.is_asked(),
            None => server_bytes == Some(0) && !self.goes_on,
        };
        if self.speaker == client && !self.is_unsure && self.asked_bytes > 0 && has_asked {
            let waits = |sums: &Sums| [sums.service.count, sums.answer.count];
            let before = waits(&self.figures.sums);
            self.break_silence(client.other());
            let after = waits(&self.figures.sums);
            (0..2).for_each(|of| self.figures.sums.ended[of] += after[of] - before[of]);
        }
    }

    /// Tells that the connection was over so soon that searches find only some of its kind.
    pub fn was_brief(&mut self) {
        self.figures.is_brief = true;
    }

    /// Tells that the connection was found by chance, and for how many that were not found it stands in what they waited for.
    pub fn stand_for(&mut self, others: f64) {
        self.figures.others = others;
    }

    fn client(&self) -> Side {
        match self.figures.role {
            Role::Client => Side::Local,
            Role::Server => Side::Peer,
        }
    }

    fn answered_ns(&self, now: &Reading, wrote: bool, got: bool) -> Option<u64> {
        let (before, info) = (&self.last.info, &now.info);
        let (asked_ms, answered_ms, is_answered) = match self.figures.role {
            Role::Client => (before.last_data_sent_ms, info.last_data_received_ms, got && self.speaker == Side::Local),
            Role::Server => (before.last_data_received_ms, info.last_data_sent_ms, wrote && self.speaker == Side::Peer),
        };
        let at_ns = |reading: &Reading, ago_ms: u32| reading.time_ns.saturating_sub(u64::from(ago_ms) * 1_000_000);
        let ns = at_ns(now, answered_ms).saturating_sub(at_ns(&self.last, asked_ms));
        let dt_ns = now.time_ns.saturating_sub(self.last.time_ns);
        (is_answered && !self.is_unsure && ns >= dt_ns.saturating_mul(2)).then_some(ns)
    }

    /// Returns the last poll.
    pub fn last(&self) -> &Reading {
        &self.last
    }

    /// Returns true if stamps of bytes would tell more: whose the queue is in which segments wait, or how long bytes wait to
    /// be read.
    pub fn calls_for_stamps(&self) -> bool {
        let transfers = &self.figures.sums.transfers;
        let queue_ns = transfers.mean_ns().zip(transfers.base_ns()).map_or(0.0, |(mean, base)| mean - base);
        let polled_ns = self.last.time_ns.saturating_sub(self.first.time_ns) as f64;
        let unread_ns = self.quiet.get(Part::Reader) + self.unread_ns as f64;
        queue_ns >= STAMPED_QUEUE_NS || unread_ns > polled_ns * STAMPED_READER
    }

    /// Attributes time to the state that the last poll found.
    fn spend(&mut self, dt_ns: u64) {
        let last = self.last;
        let (info, time) = (&last.info, dt_ns as f64);
        if is_before_it_began(&last) {
            // It may have begun at any time since.
            self.figures.sums.idle_ns += time;
            return;
        }
        let under_way = &mut self.since_progress;
        let waits = info.notsent_bytes.unwrap_or(0) > 0;
        if info.unacked > 0 || waits {
            self.figures.sums.busy_polls += 1;
            let is_closed = info.send_window.is_some_and(|window| window < info.send_mss);
            self.figures.sums.closed_polls += u64::from(is_closed);
            if info.congestion_state >= RECOVERY || info.lost > 0 {
                under_way.add(Part::Loss, time);
            } else if is_held_back(&last) {
                under_way.add(Part::Held, time);
            } else if is_corked(info) {
                under_way.add(Part::Application, time);
            } else if info.unacked <= MESSAGE_SEGMENTS && !waits {
                let base = round_trip(&mut self.figures.sums.messages, info, dt_ns);
                under_way.add(Part::Distance, time * base);
                // A server's client has the answer by then, and acknowledges it late.
                under_way.add(Part::Answer, time * (1.0 - base));
            } else {
                let base = round_trip(&mut self.figures.sums.transfers, info, dt_ns);
                let is_paced = waits && !is_closed && self.figures.sums.unsent.observe(info);
                let is_starting = self.burst_ns.is_some() && waits && info.unacked + 1 >= info.cwnd;
                if is_paced {
                    under_way.add(Part::Pacing, time);
                } else {
                    under_way.add(if is_starting { Part::SlowStart } else { Part::Transfer }, time * base);
                    under_way.add(Part::RemoteQueue, time * (1.0 - base));
                }
            }
        } else if unread(&last) > 0 {
            match (self.figures.role, self.speaker) {
                // Whether it is a request shows when it is answered.
                (Role::Server, Side::Peer) => self.unread_ns += dt_ns,
                _ if unread(&last) < FEW_BYTES => self.left_ns += dt_ns,
                _ => {
                    self.quiet.add(Part::Reader, time);
                    self.unread_since_ns += dt_ns;
                }
            }
        } else {
            self.silence_ns += dt_ns;
        }
    }

    /// Follows acknowledgements. Where few segments were in flight and one was sent again without any acknowledgement
    /// for longer than a round trip, the time since was the wait for a timeout.
    fn follow_progress(&mut self, now: &Reading) {
        let (before, info) = (&self.last.info, &now.info);
        let since_ns = self.last.time_ns.saturating_sub(self.progress_ns);
        if info.retransmissions > before.retransmissions {
            let round_trip_ns = u64::from(before.min_rtt_us.unwrap_or(before.rtt_us)) * 1000;
            if before.unacked <= FEW_SEGMENTS && since_ns >= SHORTEST_TIMEOUT_NS.max(round_trip_ns * 3 / 2) {
                self.figures.sums.timeouts.add(since_ns);
                let parts = [Part::Answer, Part::Loss, Part::Distance, Part::RemoteQueue, Part::Transfer];
                let late_ns = since_ns.saturating_sub(round_trip_ns) as f64;
                self.since_progress.shift_from(&parts, Part::Timeout, late_ns);
            }
        }
        let is_acknowledged = info.bytes_acked > before.bytes_acked;
        self.is_sent_again |= info.retransmissions > before.retransmissions;
        if self.is_sent_again {
            self.figures.sums.stalled_ns = self.figures.sums.stalled_ns.max(since_ns);
        }
        if is_acknowledged || before.unacked == 0 {
            self.progress_ns = now.time_ns;
            self.is_sent_again = false;
            let spent = std::mem::take(&mut self.since_progress);
            self.under_way.plus(&spent);
        }
    }

    /// Follows data that waits although nothing keeps it from leaving: from when that is longer than any application holds data
    /// back, it is the wait for a timeout.
    fn follow_stuck(&mut self, now: &Reading) {
        // The kernel counts as sent what it could not send.
        let (before, acked) = (&self.last, |reading: &Reading| reading.info.bytes_acked);
        if !is_stuck(&before.info) || !is_stuck(&now.info) || acked(before) != acked(now) {
            self.stuck_since_ns = None;
            return;
        }
        let since_ns = *self.stuck_since_ns.get_or_insert(before.time_ns);
        let (stuck_ns, before_ns) = (now.time_ns.saturating_sub(since_ns), before.time_ns.saturating_sub(since_ns));
        if stuck_ns >= MIN_STALL_NS {
            self.figures.sums.stuck_ns = self.figures.sums.stuck_ns.max(stuck_ns);
            self.figures.sums.stalled_ns = self.figures.sums.stalled_ns.max(stuck_ns);
            let parts = [Part::Transfer, Part::RemoteQueue, Part::Application, Part::SlowStart, Part::Pacing];
            let more_ns = if before_ns < MIN_STALL_NS { stuck_ns } else { stuck_ns - before_ns };
            self.under_way.shift_from(&parts, Part::Timeout, more_ns as f64);
        }
    }

    /// Counts the time in which nothing was read, if it is long. Something was read in the last `but_ns`.
    fn end_reading_stop(&mut self, but_ns: u64) {
        let ns = std::mem::take(&mut self.unread_since_ns).saturating_sub(but_ns);
        if ns >= LEAST_READING_STOP_NS {
            self.figures.sums.reading_stops.add(ns);
        }
    }

    /// Attributes the time in which few bytes were left unread. Who sends before it reads them has not waited for them.
    fn end_left(&mut self, is_idle: bool) {
        match std::mem::take(&mut self.left_ns) {
            ns if is_idle && ns > LONGEST_PAUSE_NS => self.figures.sums.idle_ns += ns as f64,
            ns => self.quiet.add(Part::Reader, ns as f64),
        }
    }

    /// Follows small segments that wait for an acknowledgement, or for the application.
    fn follow_held(&mut self, now: &Reading) {
        self.end_held(now);
        let figures = &mut self.figures;
        for (since_ns, waits_now, waits) in [
            (&mut self.held_since_ns, is_held_back(now), &mut figures.sums.held),
            (&mut self.corked_since_ns, is_corked(&now.info), &mut figures.sums.pause),
        ] {
            match (*since_ns, waits_now) {
                (None, true) => *since_ns = Some(now.time_ns),
                (Some(since), false) => {
                    waits.add(now.time_ns - since);
                    *since_ns = None;
                }
                _ => {}
            }
        }
    }

    /// Follows bursts after idleness that begin with a smaller congestion window than there was before.
    fn follow_burst(&mut self, now: &Reading) {
        let info = &now.info;
        let rounds_ns = u64::from(info.rtt_us) * 1000 * SLOW_START_ROUNDS;
        if let Some(start_ns) = self.burst_ns
            && (now.time_ns.saturating_sub(start_ns) > rounds_ns || info.cwnd >= self.peak_cwnd)
        {
            self.figures.sums.slow_starts.add(now.time_ns.saturating_sub(start_ns).min(rounds_ns));
            self.burst_ns = None;
        }
        let begins = self.last.info.unacked == 0 && (info.unacked > 0 || info.notsent_bytes > Some(0));
        if begins && self.silence_ns >= IDLE_NS && info.cwnd.saturating_mul(3) < self.peak_cwnd.saturating_mul(2) {
            self.burst_ns = Some(now.time_ns);
        }
        if info.congestion_state < RECOVERY && info.unacked > 0 {
            // A window that was never filled says nothing.
            self.peak_cwnd = self.peak_cwnd.max(info.unacked);
        }
    }

    /// Follows how much the client asks, and that it is answered. Where both have sent since the last poll there may have
    /// been several turns, of which no length is known.
    fn follow_turns(&mut self, written: u64, received: u64) {
        let (asked, answered) = match self.figures.role {
            Role::Client => (written, received),
            Role::Server => (received, written),
        };
        if answered > 0 {
            let last = std::mem::take(&mut self.asked_bytes);
            if asked == 0 && last > 0 {
                self.shortest_asked = Some(self.shortest_asked.map_or(last, |shortest| shortest.min(last)));
            }
        }
        self.asked_bytes += asked;
    }

    /// Begins the silence of a connection that the former search did not find: the kernel knows when the last data passed.
    fn begin_silence(&mut self, now: &Reading, dt_ns: u64) {
        let since_ms = now.info.last_data_sent_ms.min(now.info.last_data_received_ms);
        if now.info.unacked == 0 && unread(now) == 0 {
            self.silence_ns = (u64::from(since_ms) * 1_000_000).min(dt_ns);
            self.figures.sums.idle_ns -= self.silence_ns as f64;
        }
    }

    /// Attributes the silence to the side that ends it.
    fn break_silence(&mut self, next: Side) {
        let mut ns = std::mem::take(&mut self.silence_ns);
        let unread_ns = std::mem::take(&mut self.unread_ns);
        match (self.speaker, next) {
            (Side::Peer, Side::Local) if unread_ns > 0 => {
                self.figures.sums.unread.add(unread_ns);
                ns += unread_ns;
            }
            _ => self.quiet.add(Part::Reader, unread_ns as f64),
        }
        let whole_ns = ns + std::mem::take(&mut self.silent_before_ns);
        self.follow_unasked(next, whole_ns);
        if ns == 0 {
            return;
        }
        self.goes_on |= self.asked_bytes > 0 && next == self.client();
        let is_more = self.speaker == self.client() && next == self.client() && self.asked_bytes > 0 && self.is_asked();
        self.figures.sums.went_on += u64::from(is_more);
        let burst_bytes = std::mem::take(&mut self.burst_bytes);
        let is_pause = whole_ns <= longest_pause_ns(burst_bytes, self.last.info.send_mss.into());
        let part = match (self.speaker, next, self.figures.role) {
            (Side::Local, Side::Local, _) if is_pause => {
                self.figures.sums.pause.add(ns);
                Part::Application
            }
            (Side::Peer, Side::Peer, _) if whole_ns <= LONGEST_PAUSE_NS => Part::PeerPause,
            (Side::Peer, Side::Local, Role::Server) | (Side::Local, Side::Peer, Role::Client) => {
                self.figures.add_waits(&Silences::of(ns));
                self.figures.waiting()
            }
            // Between two requests, or two transfers.
            _ => {
                self.figures.sums.idle_ns += ns as f64;
                return;
            }
        };
        self.quiet.add(part, ns as f64);
        self.first_wait_ns = (part == self.figures.waiting() && self.was_unanswered()).then_some(ns);
    }

    /// Follows which side speaks on, and how often.
    fn follow_unasked(&mut self, next: Side, after_ns: u64) {
        let is_first = self.speaker != next;
        let way_ns = match self.figures.role {
            Role::Client => 0,
            Role::Server => u64::from(self.last.info.min_rtt_us.unwrap_or(self.last.info.rtt_us)) * 1000,
        };
        match next == self.client() {
            true => self.unasked.ask(after_ns, is_first, way_ns),
            false => self.unasked.answer(after_ns, is_first),
        }
        self.figures.sums.unasked = self.unasked.turns;
    }

    /// Whether the server had never answered by the last poll.
    fn was_unanswered(&self) -> bool {
        let info = &self.last.info;
        let answered = if self.figures.role == Role::Client { info.bytes_received } else { info.bytes_sent };
        answered == Some(0)
    }

    /// Whether the latest request was the first of the connection, so that it may have been that of TLS's handshake.
    pub fn may_have_opened_with_tls(&self) -> bool {
        self.first_wait_ns.is_some()
    }

    /// Tells that the latest request was the first message of TLS's handshake. If its answer is the first one of the
    /// connection, waiting for that was part of opening it.
    pub fn opened_with_tls(&mut self) {
        let Some(ns) = self.first_wait_ns.take() else {
            return;
        };
        let (figures, none) = (&mut self.figures, Silences::default());
        // There was none before.
        *(if figures.role == Role::Client { &mut figures.sums.answer } else { &mut figures.sums.service }) = none;
        figures.answers = ByLength::default();
        self.quiet.shift(self.figures.waiting(), Part::SetUp, ns as f64);
        self.figures.sums.secured.add(ns);
    }

    /// Who was the first of both that have sent since the last poll, where it was not the one whose turn it is: one that has
    /// spoken on, as with the rest of a request that came in two pieces. If the other one was the last, it has sent one segment
    /// more if it was also the first.
    fn first_of_both(&self, info: &TcpInfo, last: Option<Side>) -> Option<Side> {
        let (last, (out, into)) = (last?, self.data_segments(info)?);
        let is_later = info.last_data_received_ms < info.last_data_sent_ms;
        let is_answer = if self.is_unsure { last != self.client() } else { last != self.speaker };
        (out > 0 && out == into && !is_later && is_answer).then(|| last.other())
    }

    /// Whether a client that has asked again at once may have been silent before, and not this host: Nagle's algorithm holds the
    /// rest of a request back until its first piece is acknowledged, which was just before it came.
    fn may_have_come_in_pieces(&self, info: &TcpInfo, last: Option<Side>) -> bool {
        let is_more = self.data_segments(info).is_some_and(|(out, into)| (1..into).contains(&out));
        let is_late = has_acknowledged(&self.last.info, info) && !self.is_acknowledged;
        self.figures.role == Role::Server && last == Some(Side::Peer) && is_more && is_late
    }

    /// Segments with data that this host and the peer have sent since the last poll.
    fn data_segments(&self, info: &TcpInfo) -> Option<(u32, u32)> {
        let sent = |of: fn(&TcpInfo) -> Option<u32>| Some(of(info)?.wrapping_sub(of(&self.last.info)?));
        Some((sent(|info| info.data_segments_out)?, sent(|info| info.data_segments_in)?))
    }
}

/// Returns the longest silence of one side, after a burst of `burst_bytes`, that is still a pause within a transfer.
pub(super) fn longest_pause_ns(burst_bytes: u64, segment_bytes: u64) -> u64 {
    /// The longest segment on most paths: those of loopback take whole transfers.
    const LONGEST_SEGMENT: u64 = 1460;
    match burst_bytes <= u64::from(MESSAGE_SEGMENTS) * segment_bytes.min(LONGEST_SEGMENT) {
        true => MESSAGE_PAUSE_NS,
        false => LONGEST_PAUSE_NS,
    }
}
