//! Connections that pass several interfaces of one capture, as on a router, or from a container by a bridge.

use std::collections::VecDeque;

use super::super::figures::ConnectionFigures;

/// Connections that are kept until those of other interfaces have ended, too: these end with the same packets.
const MAX_WAITING: usize = 512;
/// Interfaces that are compared; on others a connection is another one.
const MAX_INTERFACES: usize = 64;

/// Which of the connections that several interfaces have shown counts.
#[derive(Default)]
pub(super) struct Twins {
    interfaces: Vec<u32>,
    next: u64,
    waiting: VecDeque<Seen>,
    /// Connections that several interfaces have shown.
    pub(super) count: u64,
}

/// A connection of the capture: the same number is the same connection, on as many interfaces before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Number {
    connection: u64,
    before: u32,
}

impl Number {
    /// Whether it was the first interface that showed the connection.
    pub(super) fn is_first(self) -> bool {
        self.before == 0
    }
}

struct Seen {
    number: Number,
    figures: ConnectionFigures,
    is_on_several: bool,
}

impl Seen {
    /// The less, the better it was seen. The first interface is the nearest to the client.
    fn rank(&self) -> (bool, u64, u32) {
        (self.figures.is_one_way, self.figures.segments_missed, self.number.before)
    }
}

impl Twins {
    /// Returns the interfaces on which a connection of this one may have passed too.
    pub(super) fn others(&mut self, interface: u32) -> impl Iterator<Item = u32> {
        if !self.interfaces.contains(&interface) && self.interfaces.len() < MAX_INTERFACES {
            self.interfaces.push(interface);
        }
        self.interfaces.iter().copied().filter(move |other| *other != interface)
    }

    /// Numbers a connection, given those of the same one on other interfaces.
    pub(super) fn number(&mut self, same: impl Iterator<Item = Number>) -> Number {
        self.next += 1;
        let last = same.max_by_key(|number| number.before);
        last.map_or(Number { connection: self.next, before: 0 }, |last| Number { before: last.before + 1, ..last })
    }

    /// Takes a connection that is over. Returns one that counts, if that is settled.
    pub(super) fn end(&mut self, number: Number, figures: ConnectionFigures) -> Option<ConnectionFigures> {
        let seen = Seen { number, figures, is_on_several: false };
        if self.interfaces.len() < 2 {
            return Some(seen.figures);
        }
        let is_same = |other: &&mut Seen| other.number.connection == number.connection;
        if let Some(other) = self.waiting.iter_mut().rev().find(is_same) {
            self.count += u64::from(!other.is_on_several);
            let best = if seen.rank() < other.rank() { seen } else { Seen { ..*other } };
            *other = Seen { is_on_several: true, ..best };
            return None;
        }
        self.waiting.push_back(seen);
        (self.waiting.len() > MAX_WAITING).then(|| self.settle()).flatten()
    }

    /// Returns one that counts, whatever other interfaces show.
    pub(super) fn settle(&mut self) -> Option<ConnectionFigures> {
        self.waiting.pop_front().map(|seen| seen.figures)
    }
}
