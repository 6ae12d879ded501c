//! What is marked at a descriptor for the calls on it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dwell_engine::socket::control::Setting;

/// How a call opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The other end initiated the connection.
    Accepted,
    /// This end initiated it, and it is established.
    Initiated,
    /// This end initiated it, and it is not established yet.
    InProgress,
}

impl Opening {
    pub(super) fn mark(self) -> u64 {
        match self {
            Opening::Accepted => Mark::WATCHED,
            Opening::Initiated => Mark::WATCHED | Mark::INITIATED,
            Opening::InProgress => Mark::WATCHED | Mark::INITIATED | Mark::IN_PROGRESS,
        }
    }
}

/// Instructions for a hook of a call that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub(super) u64);

impl Mark {
    pub(super) const WATCHED: u64 = 1 << 63;
    /// The number of bytes is that of [`Order::Hold`], and not that of [`Order::Pieces`].
    const HOLD: u64 = 1 << 62;
    /// This end initiated the connection.
    pub(super) const INITIATED: u64 = 1 << 55;
    /// The connection was not established when the call returned.
    pub(super) const IN_PROGRESS: u64 = 1 << 54;
    /// Generation of the descriptor: a count of the connections that it has been, modulo 64.
    const GENERATION: u64 = 0x3f << Mark::BYTES;
    /// Bits of a number of bytes; no send buffer is larger.
    const BYTES: u32 = 32;

    /// Marks a descriptor as a new connection. Returns the mark before.
    pub(super) fn begin(mark: &AtomicU64, opening: Opening) -> u64 {
        let new = |before: u64| {
            let generation = (before & Mark::GENERATION).wrapping_add(1 << Mark::BYTES);
            Some(opening.mark() | generation & Mark::GENERATION)
        };
        mark.fetch_update(Relaxed, Relaxed, new).unwrap_or_default()
    }

    /// Stores the mark, and keeps the descriptor's generation.
    pub(super) fn put(self, mark: &AtomicU64) {
        let new = |before: u64| Some(before & Mark::GENERATION | self.0);
        let _ = mark.fetch_update(Relaxed, Relaxed, new);
    }

    pub(super) fn with(setting: &Setting) -> Mark {
        let most = (1 << Mark::BYTES) - 1;
        let order = match (setting.hold_above, setting.piece_bytes) {
            (Some(unsent_bytes), _) => Mark::HOLD | unsent_bytes.min(most),
            (None, Some(bytes)) => u64::from(bytes),
            (None, None) => 0,
        };
        Mark(Mark::WATCHED | order)
    }

    /// Returns true if the descriptor is a watched connection.
    pub fn is_watched(self) -> bool {
        self.0 & Mark::WATCHED != 0
    }

    /// Returns the generation of the descriptor.
    pub fn generation(self) -> u8 {
        ((self.0 & Mark::GENERATION) >> Mark::BYTES) as u8
    }

    pub(super) fn is_initiated(self) -> bool {
        self.0 & Mark::INITIATED != 0
    }

    /// Returns what a controller demands of the call.
    pub fn order(self) -> Order {
        let bytes = self.0 as u32;
        match (self.0 & Mark::HOLD != 0, bytes) {
            (true, _) => Order::Hold { unsent_bytes: bytes.into() },
            (false, 0) => Order::None,
            (false, bytes) => Order::Pieces { bytes },
        }
    }
}

/// What a controller demands of calls that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    None,
    /// The call is delayed while many bytes are unsent.
    Hold {
        /// More bytes than this are many.
        unsent_bytes: u64,
    },
    /// The call passes its bytes to the kernel in pieces.
    Pieces {
        /// The size of a piece; not 0.
        bytes: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_what_a_controller_wants() {
        let hold = |unsent_bytes| Setting { hold_above: Some(unsent_bytes), ..Setting::default() };
        let pieces = |bytes| Setting { piece_bytes: Some(bytes), ..Setting::default() };
        for (setting, order) in [
            (Setting::default(), Order::None),
            (hold(0), Order::Hold { unsent_bytes: 0 }),
            (hold(u64::MAX), Order::Hold { unsent_bytes: u32::MAX.into() }),
            (pieces(2896), Order::Pieces { bytes: 2896 }),
            (pieces(0), Order::None),
        ] {
            let mark = Mark::with(&setting);
            assert!(mark.is_watched());
            assert_eq!(mark.order(), order);
        }
        assert!(!Mark(0).is_watched());
    }

    #[test]
    fn each_connection_that_a_descriptor_is_has_its_generation() {
        let word = AtomicU64::new(0);
        let mut last = Mark(0).generation();
        for opening in [Opening::Accepted, Opening::Initiated, Opening::InProgress].repeat(50) {
            Mark::begin(&word, opening);
            let mark = Mark(word.load(Relaxed));
            assert!(mark.is_watched() && mark.order() == Order::None);
            assert_eq!(mark.is_initiated(), opening != Opening::Accepted);
            assert_ne!(mark.generation(), last);
            last = mark.generation();
            Mark::with(&Setting { hold_above: Some(u64::MAX), ..Setting::default() }).put(&word);
            assert_eq!(Mark(word.load(Relaxed)).generation(), last);
            Mark(0).put(&word);
            let mark = Mark(word.load(Relaxed));
            assert!(mark.generation() == last && !mark.is_watched());
        }
    }
}
