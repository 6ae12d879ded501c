//! What has passed between two polls that are far apart, by the kernel's times of the last data of either side. Such polls find
//! few of the turns, and of these those that took long: without the kernel's times each would have taken as long as the polls
//! are apart.

use super::{Connection, MESSAGE_SEGMENTS, Part, Reading, Role, Side, Silences, is_before_it_began, unread};

/// The longest tick of the kernel's times of the last data.
pub(in crate::why) const TICK_NS: u64 = 10_000_000;
/// Polls that are this far apart, or further, tell less than these times do. A wait that is taken to be as long as the time between
/// two polls is so short that it is no cause where polls are further apart in the mean.
const FAR_NS: u64 = 15_000_000;
/// Polls that are this far apart in the mean leave nearly all turns to these times.
const MOSTLY_FAR_NS: f64 = 30e6;
/// An answer of up to this many segments is sent at once: it fits the initial congestion window (RFC 6928).
const AT_ONCE: u32 = 10;

/// Returns how exactly the length of turns is known, given the mean time between polls.
pub(in crate::why) fn resolution_ns(poll_interval_ns: f64) -> f64 {
    if poll_interval_ns < MOSTLY_FAR_NS { poll_interval_ns } else { TICK_NS as f64 }
}

/// What was sent between two polls, of which the first found nothing under way.
pub(super) struct Between {
    dt_ns: u64,
    /// The segments with data of the client and of the server, and how long ago the last of each was.
    asks: u32,
    answers: u32,
    asked_ns: u64,
    answered_ns: u64,
    /// Time that was taken back from the silence of before, as data has ended it.
    left_ns: u64,
}

impl Between {
    fn last_ns(&self) -> u64 {
        self.asked_ns.min(self.answered_ns)
    }
}

impl Connection {
    /// Returns what has passed since the last poll, if that is long ago. The silence that the last poll found ends where data
    /// of the side that spoke `alone` did, not at this poll; if both have, all of the time is left to [`Self::pass_turns`].
    pub(super) fn between(&mut self, now: &Reading, dt_ns: u64, alone: Option<Side>) -> Option<Between> {
        if dt_ns < FAR_NS || is_before_it_began(&self.last) {
            return None;
        }
        let ago_ns = |ms: u32| (u64::from(ms) * 1_000_000).min(dt_ns);
        let (out, into) = self.data_segments(&now.info).unwrap_or((1, 1));
        let sent = (out, ago_ns(now.info.last_data_sent_ms));
        let received = (into, ago_ns(now.info.last_data_received_ms));
        let ((asks, asked_ns), (answers, answered_ns)) = match self.figures.role {
            Role::Client => (sent, received),
            Role::Server => (received, sent),
        };
        let mut between = Between { dt_ns, asks, answers, asked_ns, answered_ns, left_ns: 0 };
        let after_ns = match alone {
            None => dt_ns,
            Some(side) if side == self.client() => asked_ns,
            Some(_) if answers <= AT_ONCE => answered_ns,
            Some(_) if self.was_waiting() => {
                self.end_with_long_answer(dt_ns, answered_ns, self.busy_ns(now));
                return Some(between);
            }
            // A long one began before it ended, by as long as it was under way.
            Some(Side::Local) => answered_ns.saturating_add(self.busy_ns(now)).min(dt_ns),
            Some(Side::Peer) => answered_ns,
        };
        between.left_ns = self.take_back(after_ns);
        Some(between)
    }

    /// Ends a wait that the last poll found with an answer so long that its last byte does not tell when it began. At the server
    /// that is as long ago as data was under way. At the client nothing tells: found at any moment of it, the wait has lasted
    /// twice as long in the mean as it had until then. Waits that are shorter than polls are apart and were found stand for the
    /// time of all.
    fn end_with_long_answer(&mut self, dt_ns: u64, answered_ns: u64, busy_ns: u64) {
        let waited_ns = if unread(&self.last) > 0 { &mut self.unread_ns } else { &mut self.silence_ns };
        let before_ns = waited_ns.saturating_sub(dt_ns);
        let until_ns = dt_ns - answered_ns;
        let more_ns = match self.figures.role {
            Role::Client => before_ns.min(until_ns),
            Role::Server => until_ns.saturating_sub(busy_ns),
        };
        *waited_ns = before_ns + more_ns;
        let time_ns = if before_ns < dt_ns { dt_ns } else { until_ns };
        self.quiet.add(self.figures.waiting(), (time_ns - more_ns) as f64);
    }

    /// Whether the last poll found nothing under way.
    fn was_quiet(&self) -> bool {
        self.last.info.unacked == 0 && self.last.info.notsent_bytes.unwrap_or(0) == 0
    }

    /// Whether the last poll found a request waiting for its answer.
    fn was_waiting(&self) -> bool {
        let is_there = unread(&self.last) == 0 || self.figures.role == Role::Server;
        self.was_quiet() && is_there && (self.speaker == self.client() || self.is_unsure)
    }

    /// How long this host has had data under way since the last poll.
    fn busy_ns(&self, now: &Reading) -> u64 {
        let busy_us = now.info.busy_us.zip(self.last.info.busy_us);
        busy_us.map_or(0, |(now, before)| now.saturating_sub(before) * 1000)
    }

    /// Takes time back from the silence that the last poll found, if it found one.
    fn take_back(&mut self, ns: u64) -> u64 {
        let (is_quiet, is_asked) = (self.was_quiet(), self.speaker == self.client());
        let from = match unread(&self.last) {
            0 if is_quiet => &mut self.silence_ns,
            1.. if is_quiet && is_asked && self.figures.role == Role::Server => &mut self.unread_ns,
            _ => return 0,
        };
        let taken_ns = ns.min(*from);
        *from -= taken_ns;
        taken_ns
    }

    /// Adds the turns in which both sides have sent since the last poll; `last` is who was last, as far as it is known. The time
    /// until the last data is theirs.
    pub(super) fn pass_turns(&mut self, between: &Between, last: Option<Side>) {
        let client = self.client();
        let was_asked = self.speaker == client && !self.is_unsure && self.has_asked();
        let (silence_ns, unread_ns) = (std::mem::take(&mut self.silence_ns), std::mem::take(&mut self.unread_ns));
        let before_ns = silence_ns + unread_ns;
        (self.silent_before_ns, self.burst_bytes) = (0, 0);
        // The acknowledgement of a request comes after a round trip, and the wait for its answer begins.
        let trip_ns = match self.figures.role {
            Role::Client => u64::from(self.last.info.min_rtt_us.unwrap_or(self.last.info.rtt_us)) * 1000,
            Role::Server => 0,
        };
        let turns = u64::from(between.asks.min(between.answers).max(1));
        let are_short = u64::from(between.answers) <= u64::from(AT_ONCE) * turns;
        let is_asked = last == Some(client);
        let pause_ns = between.answered_ns.saturating_sub(between.asked_ns);
        // The client that asks again at once does so after each answer.
        let is_known = are_short && last.is_some() && (!is_asked || was_asked && (turns == 1 || pause_ns <= TICK_NS));
        let part = self.figures.waiting();
        let until_ns = between.left_ns.saturating_sub(between.last_ns());
        let sum_ns = match (is_asked, self.passed.mean_ns()) {
            // As long as those that are known; if none is, what the last poll found stands for all of the time.
            (_, Some(mean_ns)) if !is_known => (mean_ns * turns as f64) as u64,
            _ if !is_known => {
                if was_asked {
                    until_ns
                } else {
                    0
                }
            }
            (false, _) => turns * between.asked_ns.saturating_sub(between.answered_ns).saturating_sub(trip_ns),
            (true, _) => (between.dt_ns - between.asked_ns).saturating_sub(turns * (pause_ns + trip_ns)),
        };
        let waited_ns = sum_ns.min(until_ns);
        let sum_ns = if is_asked && was_asked { before_ns + sum_ns } else { sum_ns };
        let these = Silences { count: turns, sum_ns, longest_ns: sum_ns / turns };
        if is_known {
            self.passed.plus(&these);
        }
        // As of polls that are close together, what is too short to be seen counts as time alone.
        if is_known && sum_ns >= turns * TICK_NS {
            self.figures.add_waits(&these);
        }
        // The one that the last poll found lasted until then at least.
        if was_asked && !(is_known && is_asked) && before_ns >= TICK_NS {
            self.figures.add_waits(&Silences::of(before_ns));
        }
        // As of the first answer in TLS's handshake, with the rest of it.
        self.first_wait_ns = (was_asked && self.was_unanswered()).then_some(before_ns + waited_ns).filter(|ns| *ns > 0);
        self.quiet.add(part, waited_ns as f64);
        // Where nobody knows who was last at the last poll either, nobody knows whether the client waited.
        match (was_asked, self.is_unsure) {
            (true, _) => self.quiet.add(part, before_ns as f64),
            (_, true) => self.quiet.add(Part::Unexplained, before_ns as f64),
            _ => self.figures.sums.idle_ns += before_ns as f64,
        }
        let rest_ns = (until_ns - waited_ns) as f64;
        match self.is_unsure && !is_known && self.passed.count == 0 {
            true => self.quiet.add(Part::Unexplained, rest_ns),
            false => self.figures.sums.idle_ns += rest_ns,
        }
    }

    /// Begins the silence that this poll finds with the time since the last data.
    pub(super) fn resume_silence(&mut self, now: &Reading, between: &Between) {
        let since_ns = between.left_ns.min(between.last_ns());
        match (now.info.unacked, unread(now)) {
            (0, 0) => self.silence_ns += since_ns,
            (0, _) if self.figures.role == Role::Server && self.speaker == Side::Peer => self.unread_ns += since_ns,
            _ => self.figures.sums.idle_ns += since_ns as f64,
        }
    }

    /// Adds a wait of a small segment for an acknowledgement that has come since the last poll, which found it waiting. If polls are
    /// far apart it was found at any moment of it, so that it has lasted twice as long in the mean as it had until then.
    pub(super) fn end_held(&mut self, now: &Reading) {
        let (before, dt_ns) = (&self.last, now.time_ns.saturating_sub(self.last.time_ns));
        let has_ended = now.info.bytes_acked > before.info.bytes_acked && before.info.unacked <= MESSAGE_SEGMENTS;
        if dt_ns >= FAR_NS && has_ended && self.held_since_ns.take().is_some() {
            let so_far_ns = u64::from(before.info.last_data_sent_ms) * 1_000_000;
            self.figures.sums.held.add(so_far_ns + so_far_ns.min(dt_ns));
        }
    }
}
