//! What the packets of a connection come to.

use super::{
    super::super::{cause::stalled_peer::MIN_STALL_NS, connection::FEW_ROUND_TRIPS},
    *,
};
use crate::why::{Sums, evidence::FIRST_TIMEOUT_NS};

impl Conversation {
    /// Ends the observation at the end of the capture. Returns the figures.
    pub(in crate::why::capture) fn finish(mut self, end_ns: u64) -> ConnectionFigures {
        let unopened_ns = self.wait_of_unopened(end_ns);
        if let Some(ns) = unopened_ns {
            self.ends_of_requests.unopened = 1;
            self.set_up.time_ns = ns as f64;
            self.last_ns = self.start_ns.saturating_add(ns);
        }
        let left_open_ns = if self.is_over() { 0 } else { end_ns.saturating_sub(self.last_ns()) };
        self.leave_pending();
        self.give_up_half_closed();
        self.idle_ns += self.silence_ns as f64 + self.answering.unsettled.silent().sum_ns as f64;
        let server = 1 - self.client;
        self.quiet[server][server].plus(&self.answering.pauses.silent());
        if self.is_refused() {
            // Nothing was opened, and nobody waited.
            self.idle_ns += std::mem::take(&mut self.set_up.time_ns);
        }
        let (paths, last_ns) = ([self.path(0), self.path(1)], self.last_ns);
        self.end_set_up();
        let mut spent = self.end_sending(paths);
        self.release_held(&mut spent);
        let local = self.forsaken().unwrap_or_else(|| self.local());
        let peer = 1 - local;
        let role = if local == self.client { Role::Client } else { Role::Server };
        let (own, theirs) = (spent[local], spent[peer]);
        let mut idle_ns = self.idle_ns;
        let mut times = self.times(own, theirs, role, local, &mut idle_ns);
        let (figures, theirs) = (self.senders[local].figures, self.senders[peer].figures);
        if self.takes_few_round_trips(times.get(Part::Transfer), paths[local].base_ns) {
            let late_ns = self.requests.whole().1.min(times.get(Part::Transfer));
            times.take(Part::Transfer, late_ns);
            times.shift(Part::Transfer, Part::Distance, f64::INFINITY);
            idle_ns += late_ns;
        }
        let all_ns = last_ns.saturating_sub(self.start_ns) as f64;
        let way = self.unknown_path();
        let beyond = way.map(|way| self.beyond_path(way, role, &mut times, &mut idle_ns));
        let is_one_way = self.is_one_way();
        if is_one_way || self.lacks_packets() {
            // What passed meanwhile is not known.
            let set_up = if is_one_way { 0.0 } else { times.get(Part::SetUp) };
            times = Times::default();
            times.add(Part::SetUp, set_up);
            times.add(Part::Unexplained, all_ns - set_up);
            idle_ns = 0.0;
        }
        let paused_ns = if role == Role::Server { self.pause_of_client() } else { 0 };
        let base_ns = way.map_or(paths[local].base_ns.saturating_sub(paused_ns), |(least_ns, _)| least_ns) as f64;
        let (answer, messages) = self.answers(&times, base_ns, role);
        let passed_on_ns = self.take_passed_on(role, &mut times);
        idle_ns += passed_on_ns;
        let less = |waits: Silences| Silences { sum_ns: waits.sum_ns.saturating_sub(passed_on_ns as u64), ..waits };
        let mut set_ups = Silences::default();
        if self.set_up.syn_ns.is_some() && self.set_up.time_ns > 0.0 && !is_one_way && unopened_ns.is_none() {
            set_ups.add(self.set_up.tcp_ns + self.set_up.tls_ns);
        }
        let ends = match local {
            0 => self.ends,
            _ => Ends { src: self.ends.dst, dst: self.ends.src },
        };
        ConnectionFigures {
            ends: Some(ends),
            role,
            is_one_way,
            began_before: self.set_up.syn_ns.is_none(),
            segments_missed: if self.packets.contains(&0) { 0 } else { figures.missed + theirs.missed },
            unopened_ns,
            sums: Sums {
                polls: self.packets[0] + self.packets[1],
                times,
                idle_ns,
                left_open_ns: left_open_ns as f64,
                polled_ns: all_ns + left_open_ns as f64,
                transfers: self.transfers[local],
                queued: self.queued[local],
                messages,
                busy_polls: figures.busy_ns / 1_000_000,
                closed_polls: figures.closed_ns / 1_000_000,
                service: if role == Role::Server {
                    less(beyond.unwrap_or_else(|| self.with_within(self.served().0)))
                } else {
                    Silences::default()
                },
                answer: if role == Role::Client {
                    less(beyond.unwrap_or_else(|| self.with_within(answer)))
                } else {
                    Silences::default()
                },
                late: self.late,
                pause: self.quiet[local][local].with(&figures.pauses),
                // Requests that can be read are known, and so are their answers.
                unasked: if self.asked.is_none() { self.unasked.turns } else { 0 },
                segments_sent: figures.segments,
                segments_sent_again: figures.again,
                segments_sent_needlessly: figures.spurious(),
                segments_received: theirs.segments,
                segments_out_of_order: theirs.overtaken + theirs.again,
                sent_bytes: figures.bytes,
                received_bytes: theirs.bytes,
                timeouts: figures.timeouts.with(&theirs.timeouts),
                held: figures.held.with(&theirs.held),
                slow_starts: figures.slow_starts,
                set_ups,
                set_up_retries: self.set_up.retries,
                stalled_ns: figures.stalled_ns,
                overtaken: figures.overtaken,
                ends_of_requests: if is_one_way { RequestEnds::default() } else { self.ends_of_requests },
                ..Sums::default()
            },
            ..ConnectionFigures::default()
        }
    }

    /// Ends handshakes that were going on.
    fn end_set_up(&mut self) {
        let all_ns = self.last_ns.saturating_sub(self.start_ns);
        if self.phase != Phase::Open && self.senders.iter().all(|sender| sender.figures.bytes == 0) {
            // It was never opened.
            self.set_up.tcp_ns = all_ns;
        } else if self.phase == Phase::Securing {
            self.set_up.tls_ns = all_ns.saturating_sub(self.set_up.tcp_ns);
        }
    }

    /// Ends what both ends were sending. Returns the times in which each was busy.
    fn end_sending(&mut self, paths: [Path; 2]) -> [Times; 2] {
        [0, 1].map(|side| {
            let knows = match (self.set_up.syn_ns.is_some(), self.reach[side].bare_ns.is_some()) {
                (true, _) => Known::Whole,
                (false, true) => Known::Path,
                (false, false) => Known::Nothing,
            };
            let mut times =
                self.senders[side].finish(self.last_ns, paths[side], knows, self.reach[side].base() < AT_SENDER_NS);
            if self.is_stream(side) {
                // No congestion window is so small without a loss, and nobody waits for a message.
                times.shift(Part::Distance, Part::Unexplained, f64::INFINITY);
                times.shift(Part::Answer, Part::Unexplained, f64::INFINITY);
            }
            times
        })
    }

    /// Takes out what the service waited for at others that it asked meanwhile, and returns it: that is counted on those connections.
    fn take_passed_on(&self, role: Role, times: &mut Times) -> f64 {
        let part = if role == Role::Server { Part::Service } else { Part::Answer };
        let ns = times.get(part).min(self.passed_on_ns as f64);
        times.take(part, ns);
        ns
    }

    /// Counts as pauses what seemed to be held back by Nagle's algorithm at an end that has switched that off.
    fn release_held(&mut self, spent: &mut [Times; 2]) {
        for (side, times) in spent.iter_mut().enumerate() {
            if self.senders[side].has_no_delay() {
                let held = std::mem::take(&mut self.senders[side].figures.held);
                self.quiet[side][side].plus(&Silences { sum_ns: times.get(Part::Held) as u64, ..held });
                times.remove(Part::Held);
            }
        }
    }

    /// How long nothing answered its SYN: until the last copy at least, or until the end of the capture if no other copy was due
    /// by then. `None` if something answered, or may have soon after the end.
    fn wait_of_unopened(&self, end_ns: u64) -> Option<u64> {
        let SetUp { syn_ns: Some(syn_ns), last_syn_ns, interval_ns, retries, .. } = self.set_up else { return None };
        if self.phase != Phase::Opening || self.packets[1 - self.client] > 0 {
            return None;
        }
        // A copy that comes sooner was captured twice.
        let due_ns = interval_ns.saturating_mul(2).max(FIRST_TIMEOUT_NS);
        let may_wait = end_ns <= last_syn_ns.saturating_add(due_ns).saturating_add(due_ns / 8);
        match (retries, may_wait) {
            (0, true) => None,
            (_, true) => Some(end_ns.saturating_sub(syn_ns)),
            (_, false) => Some(last_syn_ns.saturating_sub(syn_ns)),
        }
    }

    /// The end whose data the other one has not acknowledged for long, until the capture ended: that is gone, and only this end can
    /// say so.
    fn forsaken(&self) -> Option<usize> {
        let stalled_ns = |side: &usize| self.senders[*side].figures.stalled_ns;
        let is_stalled = |side: &usize| stalled_ns(side) >= MIN_STALL_NS && self.senders[*side].is_stalled();
        [0, 1].into_iter().filter(is_stalled).max_by_key(stalled_ns)
    }

    /// Whether the capture has the packets of one end alone, so that nothing can be told. An end that is gone says nothing, and
    /// neither does one to which a connection cannot be opened. One whose packets the other acknowledges has sent some.
    fn is_one_way(&self) -> bool {
        let Some(silent) = (0..2).find(|side| self.packets[*side] == 0) else {
            return false;
        };
        let is_gone = self.senders.iter().any(|sender| sender.figures.stalled_ns > 0);
        let is_unopened = self.phase == Phase::Opening && self.set_up.syn_ns.is_some();
        let was_answered = self.set_up.syn_ns.is_some() && !is_unopened;
        let has_sent = silent == self.client || was_answered || self.senders[silent].figures.missed > 0;
        has_sent || (!is_gone && !is_unopened)
    }

    /// Whether an end sends much at an even pace, and the other one hardly asks for it.
    fn is_stream(&self, side: usize) -> bool {
        let sender = &self.senders[side];
        let turns = self.turns[1 - side].count.max(1);
        let is_alone = self.senders[1 - side].figures.bytes == 0 && sender.sends_full_segments();
        (sender.is_paced() || is_alone) && sender.figures.again == 0 && sender.figures.bytes > turns * TRANSFER_BYTES
    }

    /// Whether transfers in so much time are answers that take a round trip or two each, so that the distance is their limit.
    fn takes_few_round_trips(&self, transfer_ns: f64, base_ns: u64) -> bool {
        /// The least share of segments that were sent again that is a loss.
        const LOSSY: f64 = 0.008;
        /// The segments that TCP sends on a new connection before it has an acknowledgement (RFC 6928), and those of a short answer.
        const FIRST_WINDOW: f64 = 10.0;
        const SHORT: f64 = 256.0;
        let sum = |of: fn(&Sender) -> u64| self.senders.iter().map(of).sum::<u64>() as f64;
        let is_lossy = sum(|sender| sender.figures.again) > sum(|sender| sender.figures.segments) * LOSSY;
        let (answers, _) = self.requests.whole();
        let segments = sum(|sender| sender.figures.segments);
        let round_trips = match (answers, self.set_up.syn_ns) {
            // The congestion window doubles with each.
            (1, Some(_)) if segments <= SHORT => (segments / FIRST_WINDOW + 1.0).log2() - 1.0 + FEW_ROUND_TRIPS,
            (2.., _) => answers as f64 * FEW_ROUND_TRIPS,
            _ => 0.0,
        };
        !is_lossy && transfer_ns <= round_trips * base_ns as f64
    }

    /// Whether the capture lacks much of the data, so that nothing can be told.
    fn lacks_packets(&self) -> bool {
        /// The share of segments.
        const MUCH: f64 = 0.1;
        let sum = |of: fn(&Sender) -> u64| self.senders.iter().map(of).sum::<u64>();
        let (segments, missed) = (sum(|sender| sender.figures.segments), sum(|sender| sender.figures.missed));
        missed as f64 > (segments + missed) as f64 * MUCH
    }

    /// Of connections that lack their handshake, the way to the server and back: at least, and at most. An answer may have
    /// waited for the service, and an acknowledgement for the timer of the receiver. `None` if nobody waits for answers.
    fn unknown_path(&self) -> Option<(u64, u64)> {
        /// What the work of a service, or the way to it, must take to matter.
        const LEAST_NS: f64 = 5e6;
        let server = &self.reach[1 - self.client];
        let matters = self.turns[self.client].mean_ns()? >= LEAST_NS;
        (self.set_up.syn_ns.is_none() && matters).then_some((server.least(), server.base()))
    }

    /// Divides the time of requests whose way is not known: what all took may be the way or the service, and what they took
    /// longer is the service. Returns the latter.
    fn beyond_path(&self, way: (u64, u64), role: Role, times: &mut Times, idle_ns: &mut f64) -> Silences {
        let turns = self.turns[self.client];
        let [least_ns, most_ns] = [way.0, way.1].map(|ns| (ns * turns.count).min(turns.sum_ns));
        // A message that was lost was no work.
        let repaired_ns = times.sum(&[Part::Timeout, Part::Loss, Part::Held]) as u64;
        let after_ns = (turns.sum_ns - most_ns).saturating_sub(repaired_ns);
        let served = if role == Role::Server { Part::Service } else { Part::Answer };
        for part in [Part::Distance, Part::Answer, Part::Service] {
            times.remove(part);
        }
        times.add(served, self.answering.work.waits.sum_ns as f64);
        let all_ns = self.last_ns.saturating_sub(self.start_ns) as f64;
        let mut left_ns = (all_ns - times.total()).max(0.0);
        for (part, ns) in [(served, after_ns), (Part::Distance, least_ns), (Part::Unexplained, most_ns - least_ns)] {
            let some = (ns as f64).min(left_ns);
            times.add(part, some);
            left_ns -= some;
        }
        *idle_ns = left_ns;
        self.with_within(Silences { sum_ns: after_ns, ..turns })
    }

    /// Returns what answers to the client took after an acknowledgement had shown that their request was there, and the round
    /// trips of its messages, given the shortest: an answer that carries the acknowledgement of its request makes them longer.
    fn answers(&self, times: &Times, base_ns: f64, role: Role) -> (Silences, RoundTrip) {
        let server = 1 - self.client;
        let turns = self.turns[self.client];
        let shown = if role == Role::Server { self.served().0 } else { self.quiet[self.client][server] };
        let way_ns = self.reach[server].base();
        // A message that was lost was no work.
        let repaired_ns = times.sum(&[Part::Timeout, Part::Loss, Part::Held]) as u64;
        let carried = Silences {
            sum_ns: turns.sum_ns.saturating_sub(turns.count * way_ns + shown.sum_ns + repaired_ns),
            longest_ns: turns.longest_ns.saturating_sub(way_ns),
            ..turns
        };
        let under_way_ns = times.get(Part::Distance);
        if way_ns < AT_SENDER_NS {
            // The capture itself shows that requests were there.
            let answer = Silences { sum_ns: shown.sum_ns + carried.sum_ns, ..carried };
            return (answer, RoundTrip::new(under_way_ns, base_ns, base_ns));
        }
        let mean_ns = base_ns + carried.mean_ns().unwrap_or_default();
        (shown, RoundTrip::new(under_way_ns + carried.sum_ns as f64, mean_ns, base_ns))
    }

    /// Adds the waits within answers to those before them.
    fn with_within(&self, before: Silences) -> Silences {
        let within = &self.answering.work.waits;
        if within.count == 0 {
            return before;
        }
        Silences {
            count: before.count.max(self.turns[self.client].count),
            sum_ns: before.sum_ns + within.sum_ns,
            longest_ns: before.longest_ns.max(within.longest_ns),
        }
    }

    /// Returns how long requests waited for the service, and how much of it was silence.
    fn served(&self) -> (Silences, u64) {
        self.requests.served(self.quiet[self.client][1 - self.client])
    }

    /// Returns how much of the way to the client and back may have been the client's own pause. It acknowledges an answer with
    /// its next request, which it sends when it likes, or late with a packet of its own: without the handshake nothing tells.
    fn pause_of_client(&self) -> u64 {
        let way = self.reach[self.client];
        if self.set_up.syn_ns.is_some() || way.is_prompt { 0 } else { way.base() - way.least() }
    }

    /// Names the times as the local end sees them.
    fn times(&self, own: Times, mut theirs: Times, role: Role, local: usize, idle_ns: &mut f64) -> Times {
        /// What the way must take to matter.
        const FAR_NS: u64 = 15_000_000;
        let peer = 1 - local;
        let mut times = own;
        let work = &self.answering.work;
        for (side, of_side) in [(local, &mut times), (peer, &mut theirs)] {
            Part::ALL.iter().for_each(|part| of_side.take(*part, work.under_way[side].get(*part)));
        }
        if role == Role::Client && self.is_at_server() {
            self.requests.name_at_server(&mut times, local);
        }
        if self.senders[peer].figures.bytes == 0 {
            // Messages to an end that sends nothing itself keep nobody waiting.
            *idle_ns += times.sum(&[Part::Distance, Part::Answer]);
            times.remove(Part::Distance);
            times.remove(Part::Answer);
        }
        if role == Role::Server {
            self.requests.name(&mut times, local);
            self.requests.name(&mut theirs, peer);
            for late in [&mut times, &mut theirs] {
                // The client has its answer, and acknowledges it late; what it sends itself and nobody answers waits for nothing.
                *idle_ns += late.get(Part::Answer);
                late.remove(Part::Answer);
            }
            let way_ns = self.path(local).base_ns;
            let ns = times.get(Part::Distance) * self.pause_of_client() as f64 / way_ns.max(1) as f64;
            times.take(Part::Distance, ns);
            // One that acknowledged an answer and asked later was in no hurry, however far away it is.
            match self.reach[peer].bare_ns.is_none() && way_ns >= FAR_NS {
                true => times.add(Part::Unexplained, ns),
                false => *idle_ns += ns,
            }
        }
        for part in Part::ALL {
            // What the peer waits for where the local window is full is the local reader.
            let named = if part == Part::ReceiverWindow { Part::Reader } else { part };
            times.add(named, theirs.get(part));
        }
        times.add(Part::SetUp, self.set_up.time_ns);
        times.add(Part::Timeout, self.lost_ns as f64);
        let quiet = |speaker: usize, next: usize| self.quiet[speaker][next].sum_ns as f64;
        let paused = if self.senders[local].is_paced() { Part::Unexplained } else { Part::Application };
        times.add(paused, quiet(local, local));
        times.add(Part::PeerPause, quiet(peer, peer));
        let within = work.waits.sum_ns as f64;
        let (asked, answered) = (quiet(peer, local), quiet(local, peer));
        match role {
            Role::Server => {
                let served = self.served().1 as f64;
                times.add(Part::Service, served + within);
                let back = self.requests.back_ns().min(answered);
                times.add(Part::Distance, asked - served + back);
                *idle_ns += answered - back;
            }
            Role::Client => {
                times.add(Part::Answer, answered + within);
                let back = if self.is_at_server() { self.requests.back_ns().min(asked) } else { 0.0 };
                times.add(Part::Distance, back);
                *idle_ns += asked - back;
            }
        }
        times
    }
}
