//! What the polls of a connection come to, and what its last silence was.

use super::{
    CLOSE_WAIT, Connection, ConnectionFigures, FEW_ROUND_TRIPS, LONGEST_REQUEST, Part, Role, Side, Silences, Sums,
    TcpInfo, Times, arrived,
};

impl Connection {
    /// Returns the figures so far. The kernel's own times of what was under way, and what limited it, are exact but for
    /// its tick; polls divide what these leave open.
    pub(in crate::why) fn figures(&self) -> ConnectionFigures {
        let mut this = self.clone();
        if this.is_given_up() {
            this.end();
        }
        this.end_silence();
        this.end_left(true);
        this.end_reading_stop(0);
        let spent = std::mem::take(&mut this.since_progress);
        this.under_way.plus(&spent);
        for (since_ns, waits) in
            [(this.held_since_ns, &mut this.figures.sums.held), (this.corked_since_ns, &mut this.figures.sums.pause)]
        {
            since_ns.into_iter().for_each(|since_ns| waits.add(this.last.time_ns.saturating_sub(since_ns)));
        }
        let (first, last) = (&self.first.info, &self.last.info);
        let mut late_ns = 0.0;
        // Nobody waits for the acknowledgement of an answer, nor for that of messages to a peer that sends nothing itself.
        let is_heard = last.bytes_received > first.bytes_received;
        for (part, is_awaited) in
            [(Part::Answer, is_heard && this.figures.role == Role::Client), (Part::Distance, is_heard)]
        {
            if !is_awaited {
                late_ns += this.under_way.get(part);
                this.under_way.remove(part);
            }
        }
        let observed = self.last.time_ns.saturating_sub(self.first.time_ns) as f64;
        let since = |of: fn(&TcpInfo) -> Option<u64>| of(last).zip(of(first)).map(|(b, a)| b.saturating_sub(a) as f64);
        let us = |of| since(of).map(|us| us * 1e3);
        let busy = us(|info| info.busy_us).unwrap_or(this.under_way.total()).min(observed);
        let window = us(|info| info.receiver_limited_us).unwrap_or(0.0).min(busy);
        let buffer = us(|info| info.buffer_limited_us).unwrap_or(0.0).min(busy - window);
        let (mut times, mut idle_ns) = (Times::default(), this.figures.sums.idle_ns);
        times.add(Part::ReceiverWindow, window);
        times.add(Part::SendBuffer, buffer);
        spread(&this.under_way, busy - window - buffer, &mut times, &mut late_ns);
        spread(&this.quiet, observed - busy, &mut times, &mut idle_ns);
        let count = |of: fn(&TcpInfo) -> Option<u64>| since(of).unwrap_or(0.0) as u64;
        let totals = *self.meter.totals();
        if takes_few_round_trips(&this.figures, &times) && count(|info| Some(info.retransmissions.into())) == 0 {
            times.shift(Part::Transfer, Part::Distance, f64::INFINITY);
            let transfers = std::mem::take(&mut this.figures.sums.transfers);
            this.figures.sums.messages.plus(&transfers);
        }
        ConnectionFigures {
            uses_bbr: last.uses_bbr,
            is_untaken: this.figures.role == Role::Client
                && (last.unacked > 0 && last.retransmissions > 0 && last.bytes_acked.is_some_and(|acked| acked <= 1)),
            totals,
            sums: Sums {
                times,
                idle_ns: idle_ns + late_ns,
                polled_ns: observed,
                sent_bytes: totals.acked_bytes,
                received_bytes: totals.received_bytes,
                segments_sent: count(|info| info.data_segments_out.map(u64::from)),
                segments_sent_again: count(|info| Some(info.retransmissions.into())),
                segments_received: count(|info| info.data_segments_in.map(u64::from)),
                segments_out_of_order: count(|info| info.out_of_order.map(u64::from)),
                segments_sent_needlessly: count(|info| info.needless.map(u64::from)),
                overtaken: count(|info| info.reorderings.map(u64::from)),
                ..this.figures.sums
            },
            ..this.figures
        }
    }

    /// Whether the client has sent anything. One on which nobody ever spoke has asked for nothing.
    pub(super) fn has_asked(&self) -> bool {
        match self.figures.role {
            Role::Client => self.last.info.bytes_acked > Some(1),
            Role::Server => arrived(&self.last) > Some(0),
        }
    }

    /// Whether either end had sent anything by the last poll.
    pub(super) fn has_spoken(&self) -> bool {
        let info = &self.last.info;
        info.unacked > 0 || info.notsent_bytes > Some(0) || info.bytes_acked > Some(1) || info.bytes_received > Some(0)
    }

    /// Whether the client has closed a connection on which the server has never said anything.
    fn is_given_up(&self) -> bool {
        let info = &self.last.info;
        match self.figures.role {
            // FIN_WAIT_1, FIN_WAIT_2, CLOSING.
            Role::Client => matches!(info.state, 4 | 5 | 11) && info.bytes_received == Some(0),
            Role::Server => info.state == CLOSE_WAIT && info.bytes_sent == Some(0),
        }
    }

    /// Whether the client has sent at least half as much as the shortest request that was answered, since it was.
    pub(super) fn is_asked(&self) -> bool {
        self.shortest_asked.is_none_or(|shortest| self.asked_bytes.saturating_mul(2) >= shortest)
    }

    /// Attributes the silence at the end to who is to speak next, if the sides have taken turns before. It adds to the length
    /// of waits and not to their number, unless their mean were longer than the longest: the first of a look may have been cut, too, and has
    /// been counted. What is far shorter
    /// than any request that was answered is none, such as the last frame of an idle connection of HTTP/2.
    fn end_silence(&mut self) {
        let is_asked = self.is_asked();
        let (served, answered) = (self.figures.sums.service.count, self.figures.sums.answer.count);
        let answers = self.figures.answers;
        match (self.speaker, self.figures.role) {
            (Side::Peer, Role::Server) if is_asked && served > 0 => self.break_silence(Side::Local),
            (Side::Local, Role::Client) if is_asked && answered > 0 => self.break_silence(Side::Peer),
            (speaker, role) => {
                let ns = std::mem::take(&mut self.silence_ns);
                self.figures.sums.idle_ns += ns as f64;
                self.quiet.add(Part::Reader, std::mem::take(&mut self.unread_ns) as f64);
                let (since_ms, client) = match role {
                    Role::Client => (self.last.info.last_data_sent_ms, Side::Local),
                    Role::Server => (self.last.info.last_data_received_ms, Side::Peer),
                };
                if speaker == client && ns > 0 && self.has_asked() {
                    let waited_ns = ns.max(u64::from(since_ms) * 1_000_000);
                    self.figures.sums.unanswered.add(waited_ns);
                    if (1..=LONGEST_REQUEST).contains(&self.asked_bytes) && !self.goes_on {
                        self.figures.sums.owed.add(waited_ns);
                    }
                }
            }
        }
        let Sums { service, answer, .. } = &mut self.figures.sums;
        // What was cut at either end is one, unless there is more than that of it.
        (*service, *answer) = (
            Silences { count: served, ..*service }.at_most_the_longest(),
            Silences { count: answered, ..*answer }.at_most_the_longest(),
        );
        self.figures.answers.count_as(&answers);
    }
}

/// Whether messages of more than two segments, each of which follows one of the peer, take a round trip or two each, so that the
/// distance is their limit.
fn takes_few_round_trips(figures: &ConnectionFigures, times: &Times) -> bool {
    let base_ns = figures.sums.transfers.base_ns().unwrap_or(0.0);
    figures.turns > 1 && times.get(Part::Transfer) <= figures.turns as f64 * FEW_ROUND_TRIPS * base_ns
}

/// Distributes `whole` over the parts and `idle_ns` as they were sampled.
fn spread(sampled: &Times, whole: f64, times: &mut Times, idle_ns: &mut f64) {
    let (whole, total) = (whole.max(0.0), sampled.total() + *idle_ns);
    if total <= 0.0 {
        times.add(Part::Unexplained, whole);
        return;
    }
    for part in Part::ALL {
        times.add(part, sampled.get(part) * whole / total);
    }
    *idle_ns *= whole / total;
}
