//! The trace of one byte through one side of a host.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use super::{Direction, Ends, Layer, Segment};
use crate::abi;

/// The initial sequence numbers of both ends of a TCP connection (RFC 9293, 3.4.1), by which both hosts know it, whatever its
/// addresses are where they see it. Two connections have the same with a probability of 2^-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isns {
    /// That of the end that sends the flow.
    pub src: u32,
    /// That of the end that receives it.
    pub dst: u32,
}

impl Isns {
    fn from_core(isns: &abi::dwell_isns) -> Option<Isns> {
        let abi::dwell_isns { src, dst } = *isns;
        ((src, dst) != (0, 0)).then_some(Isns { src, dst })
    }
}

/// The times at which one stamped byte passed the layers of one side of a host. Traces of the same byte on two hosts
/// have the same sequence number, and the same ends or, where addresses are translated, the same initial sequence numbers. So
/// they can be joined unless the bytes are 4 GiB apart. A byte that TCP retransmitted after the first copy left has one downward
/// trace per copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteTrace {
    /// The flow of the byte.
    pub ends: Ends,
    /// The number of the network namespace that the flow's socket on this host is in.
    pub namespace: u32,
    /// The TCP sequence number.
    pub seq: u32,
    /// The initial sequence numbers of the flow's connection; `None` if they are not known.
    pub isns: Option<Isns>,
    /// Whether the byte was sent or received.
    pub direction: Direction,
    /// For a sent byte, how many times TCP had sent it when this copy left, at most 255.
    pub sent: u8,
    /// For a sent byte: this is not the first copy. For a received byte: it arrived again before TCP took it, so this
    /// host dropped it at least once, and the stamps may be of different copies.
    pub again: bool,
    /// The time at each layer of the side, in nanoseconds of the host's CLOCK_MONOTONIC.
    pub stamps: [Option<NonZeroU64>; abi::DWELL_LAYERS as usize],
}

impl ByteTrace {
    /// Decodes a record of the kernel's ring buffer. `None` if the kernel did not write these bytes.
    pub fn from_kernel(bytes: &[u8]) -> Option<ByteTrace> {
        let (trace, _) = abi::dwell_byte_trace::read_from_prefix(bytes).ok()?;
        Some(ByteTrace::from_core(&trace))
    }

    pub(super) fn from_core(trace: &abi::dwell_byte_trace) -> ByteTrace {
        ByteTrace {
            ends: Ends::from_core(&trace.ends),
            namespace: trace.ends.netns,
            seq: trace.seq,
            isns: Isns::from_core(&trace.isns),
            direction: match trace.up {
                0 => Direction::Tx,
                _ => Direction::Rx,
            },
            sent: trace.sent,
            again: trace.again != 0,
            stamps: trace.stamp_ns.map(NonZeroU64::new),
        }
    }

    /// Returns the time at a layer, if it was stamped there.
    pub fn stamp_ns(&self, layer: Layer) -> Option<u64> {
        self.stamps[layer as usize].map(NonZeroU64::get)
    }

    /// Returns the time in a segment; `None` if a stamp is missing.
    pub fn segment_ns(&self, segment: Segment) -> Option<u64> {
        let (from, to) = segment.ends();
        self.stamp_ns(to)?.checked_sub(self.stamp_ns(from)?)
    }
}
