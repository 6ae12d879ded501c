//! Whether the ends of a connection take turns, or speak unasked: as in chats, and where messages are pushed.
//!
//! Requests and answers that come in pieces have about as many pieces each. Where turns have more than others, some of the pieces
//! were asked for by nobody, and then nobody knows which: what looks like an answer may be none. The rule is that of
//! `dwell response`.

use super::{Connection, LONGEST_PAUSE_NS, MESSAGE_SEGMENTS};
use crate::{roles::Role, socket::Reading};

/// Data that comes this long after other data of the same end may be another message.
const APART_NS: u64 = 2_000_000;
/// A client that goes on within this time after it can have the last piece has waited for it.
const AT_ONCE_NS: u64 = 2_000_000;

/// The turns of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::why) struct Unasked {
    client: Pieces,
    server: Pieces,
    /// How long the answer took to begin.
    wait_ns: u64,
    was_at_once: bool,
    /// Turns in which an end has said more than usual.
    pub(in crate::why) turns: u64,
}

/// What an end says in a turn.
#[derive(Debug, Clone, Copy, Default)]
struct Pieces {
    count: u32,
    /// How many turns lately had at least.
    usual: u32,
    were_more: bool,
}

impl Pieces {
    /// Ends a turn. Returns whether it had more than usual. The usual number rises when two turns in a row have more.
    fn settle(&mut self) -> bool {
        let count = std::mem::take(&mut self.count);
        let are_more = self.usual > 0 && count > self.usual;
        if self.usual == 0 || count < self.usual || self.were_more {
            self.usual = count;
        }
        self.were_more = are_more;
        are_more
    }
}

impl Unasked {
    /// Takes data of the client, `after_ns` after other data, which begins a turn if it `is_first`.
    pub(in crate::why) fn ask(&mut self, after_ns: u64, is_first: bool, way_ns: u64) {
        if is_first && self.server.count == 0 {
            // Polls may miss an answer.
            self.client.count = 0;
        } else if is_first {
            let is_at_once = after_ns <= way_ns + AT_ONCE_NS;
            let has_waited = std::mem::replace(&mut self.was_at_once, is_at_once) && is_at_once;
            let (asks_more, answers_more) = (self.client.settle(), self.server.settle());
            self.turns += u64::from(asks_more || answers_more && !has_waited);
        }
        self.client.count += u32::from(is_first || after_ns >= APART_NS);
    }

    /// Takes data of the server, `after_ns` after other data, which begins an answer if it `is_first`. What follows more quickly than
    /// the first piece is a part of it.
    pub(in crate::why) fn answer(&mut self, after_ns: u64, is_first: bool) {
        if is_first {
            self.wait_ns = after_ns;
        }
        self.server.count += u32::from(is_first || after_ns >= APART_NS.max(self.wait_ns / 2));
    }
}

impl Connection {
    /// Counts how long a server had said nothing before it says more, although nobody has spoken meanwhile and nothing kept it.
    pub(super) fn speak_on(&mut self, now: &Reading) {
        /// The coarsest tick of the kernel's times of the last data.
        const LEAST_NS: u64 = 10_000_000;
        let (before, ns) = (&self.last.info, now.last_sent_ns().saturating_sub(self.last.last_sent_ns()));
        let was_free = before.notsent_bytes == Some(0) && before.unacked <= MESSAGE_SEGMENTS;
        if self.figures.role == Role::Server && was_free && (LEAST_NS..=LONGEST_PAUSE_NS).contains(&ns) {
            self.figures.sums.spoke_on.add(ns);
        }
    }
}
