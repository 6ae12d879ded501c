//! The interface between the format parsers and the reader.

use std::ops::Range;

use crate::link::LinkType;

/// The most captured bytes that one packet may have. Capture tools use the same limit for network interfaces, so a file
/// that claims more is damaged.
pub const MAX_PACKET_BYTES: u32 = 256 * 1024;

/// Result of parsing one record or block.
pub(crate) enum Step {
    Packet(Record),
    /// A block without a packet.
    NoPacket,
    /// The end of the capture.
    End,
}

/// A packet whose captured bytes are still in the window.
pub(crate) struct Record {
    pub(crate) time_ns: u64,
    pub(crate) is_timed: bool,
    pub(crate) interface: u32,
    pub(crate) link: LinkType,
    pub(crate) wire_len: u32,
    /// Position of the captured bytes in the window.
    pub(crate) data: Range<usize>,
}

/// A packet that lies whole in memory and has not been reached yet.
pub(crate) struct Glance {
    pub(crate) interface: u32,
    pub(crate) link: LinkType,
    pub(crate) wire_len: u32,
    /// Where its captured bytes are, from the start of its record or block.
    pub(crate) data: Range<usize>,
    /// The length of the record or block.
    pub(crate) len: usize,
}
