//! How a connection in a capture ended: who waited for an answer then, and for how long.

use super::conversation::{Conversation, Phase, TRANSFER_BYTES};
use crate::rtt::native::Segment;

/// A client that closes its connection within a round trip and this long after a message did not ask for an answer with it:
/// the message said goodbye.
const PROMPT_NS: u64 = 5_000_000;
/// The end of TLS's handshake takes less, and asks for nothing.
const FINISHED_BYTES: u64 = 100;

/// What ends the wait of a client that spoke last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// The silence, and the time since the last data of the client.
    silence_ns: u64,
    turn_ns: u64,
}

impl Conversation {
    /// Follows the end of the connection. The silence before it is the server's if the client waited for an answer.
    pub(super) fn end(&mut self, side: usize, segment: &Segment) {
        let (is_reset, server) = (segment.has(Segment::RST), 1 - self.client);
        if !is_reset && !segment.has(Segment::FIN) {
            return;
        }
        if self.phase == Phase::Opening && is_reset && side == server && self.packets[server] == 1 {
            self.ends_of_requests.refused = 1;
        }
        if side == self.client {
            self.settle_within(false);
        }
        if side == self.client && !is_reset {
            // It has asked all that it wants to ask, and may still be answered.
            self.half_closed = self.half_closed.or_else(|| self.wait());
            return;
        }
        let Some(wait) = self.wait() else { return };
        match self.half_closed.take() {
            Some(before) if self.is_request(before, false) => self.give_up(before),
            _ if side == self.client => self.give_up(wait),
            // One that closes with its only message may have asked for nothing.
            half_closed if self.is_request(wait, half_closed.is_none()) => {
                let ends = &mut self.ends_of_requests;
                *(if is_reset { &mut ends.reset } else { &mut ends.closed }) += 1;
                self.settle(wait);
            }
            _ => {}
        }
        // Nobody waits for an answer any more.
        self.speaker = None;
    }

    /// Counts the wait of a client that has closed its side, if nothing has answered it since.
    pub(super) fn give_up_half_closed(&mut self) {
        if let Some(wait) = self.half_closed.take() {
            self.give_up(wait);
        }
    }

    /// Counts the last message of the client, if that asks for an answer which the capture does not have. An upload may be cut.
    pub(super) fn leave_pending(&mut self) {
        let is_open = self.half_closed.is_none() && self.wait().is_some();
        let is_asking = is_open && self.asks() && self.burst_bytes <= TRANSFER_BYTES;
        self.ends_of_requests.pending = u64::from(is_asking);
    }

    fn give_up(&mut self, wait: Wait) {
        if self.is_request(wait, false) {
            self.ends_of_requests.given_up += 1;
            self.settle(wait);
        }
    }

    /// The wait of a client that spoke last, until now.
    fn wait(&self) -> Option<Wait> {
        let turn_ns = self.last_ns.saturating_sub(self.last_data_ns);
        let is_waiting = self.phase == Phase::Open && self.speaker == Some(self.client);
        is_waiting.then_some(Wait { silence_ns: self.silence_ns, turn_ns })
    }

    /// Whether the last message of the client asked for an answer, and was waited for longer than it takes to close.
    fn is_request(&self, wait: Wait, is_ended_by_server: bool) -> bool {
        let has_answered = self.ends_of_requests.answered > 0;
        self.asks() && (!self.is_prompt(wait.turn_ns) || (is_ended_by_server && !has_answered))
    }

    /// Whether the last message of the client asked for an answer, as far as can be told: a request with a label, or the first
    /// message of the connection. Others may be window updates, alerts of TLS, or messages to an end that never answers.
    fn asks(&self) -> bool {
        let has_answered = self.ends_of_requests.answered > 0;
        let has_spoken = self.senders[1 - self.client].figures.bytes > 0;
        let is_stream = self.goes_on || self.senders[self.client].figures.bytes > TRANSFER_BYTES;
        let is_handshake = self.set_up.tls_ns > 0 && self.burst_bytes < FINISHED_BYTES;
        let is_first = self.set_up.syn_ns.is_some() && !has_answered && !is_handshake;
        self.is_asking || (is_first && (has_spoken || !is_stream))
    }

    /// Whether so much time after the last data is hardly more than a round trip.
    pub(super) fn is_prompt(&self, ns: u64) -> bool {
        ns <= self.path(self.client).base_ns + PROMPT_NS
    }

    fn settle(&mut self, wait: Wait) {
        let silence_ns = wait.silence_ns.min(self.silence_ns);
        self.silence_ns -= silence_ns;
        self.quiet[self.client][1 - self.client].add(silence_ns);
        self.turns[self.client].add(wait.turn_ns);
    }

    /// Whether the server has refused it at once.
    pub(super) fn is_refused(&self) -> bool {
        self.ends_of_requests.refused > 0 && self.set_up.retries == 0
    }
}
