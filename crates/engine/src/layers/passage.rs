//! One byte that went all the way through a side of a host.

use std::num::NonZeroU64;

use zerocopy::FromBytes;

use super::{Direction, Ends, Layer, Segment};
use crate::abi;

/// One stamped byte that went all the way down, or all the way up. On both hosts it
/// has the same ends and the same sequence number, so that they can be joined, but for
/// bytes 4 GiB apart. A byte that TCP sent again after the first copy left has a
/// passage down for each copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// Whose byte it is.
    pub ends: Ends,
    /// Its TCP sequence number.
    pub seq: u32,
    /// Whether it was sent or read.
    pub direction: Direction,
    /// Down: how often TCP had sent it when this copy left, to 255.
    pub sent: u8,
    /// Down: not the first copy. Up: it came in again before TCP took it, so that this
    /// host lost it at least once, and the stamps may be of different copies.
    pub again: bool,
    /// When it was at each layer of its side, in nanoseconds of the host's
    /// CLOCK_MONOTONIC.
    pub stamps: [Option<NonZeroU64>; abi::DWELL_LAYERS as usize],
}

impl Passage {
    /// As the kernel wrote it. `None` of bytes that it did not write.
    pub fn from_kernel(bytes: &[u8]) -> Option<Passage> {
        let (passage, _) = abi::dwell_byte_trace::read_from_prefix(bytes).ok()?;
        Some(Passage::from_core(&passage))
    }

    pub(super) fn from_core(passage: &abi::dwell_byte_trace) -> Passage {
        Passage {
            ends: Ends::from_core(&passage.ends),
            seq: passage.seq,
            direction: match passage.up {
                0 => Direction::Tx,
                _ => Direction::Rx,
            },
            sent: passage.sent,
            again: passage.again != 0,
            stamps: passage.stamp_ns.map(NonZeroU64::new),
        }
    }

    /// When it was at a layer.
    pub fn stamp_ns(&self, layer: Layer) -> Option<u64> {
        self.stamps[layer as usize].map(NonZeroU64::get)
    }

    /// How long it was in a segment; `None` where a stamp is missing.
    pub fn segment_ns(&self, segment: Segment) -> Option<u64> {
        let (from, to) = segment.ends();
        self.stamp_ns(to)?.checked_sub(self.stamp_ns(from)?)
    }
}
