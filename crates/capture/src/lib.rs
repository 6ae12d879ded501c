//! Reads packets from capture files: classic pcap, pcapng, and both of them packed with gzip.
//!
//! [`Reader`] hands out one packet at a time, borrowed from one fixed buffer: memory stays the
//! same for a file of any size and whatever lengths the file claims. The first bytes decide the
//! format, never the file name. [`Writer`] makes plain nanosecond pcap files.
//!
//! Damage never hides: every whole packet before it is delivered, then an [`Error`] says at which
//! packet and byte the capture stops making sense.
//!
//! # Why not a parser crate
//!
//! `pcap-parser` 0.17 is fast enough, but it drops the [`std::io::Error`] of a failed read, ignores
//! that pcap files before version 2.4 hold the two packet lengths in the other order, reads
//! `if_tsoffset` of a big-endian section as little-endian, knows the modified pcap format in its
//! little-endian form only, and cannot step over a block larger than its buffer. The records are
//! so simple that the checks, which would be needed on top of it, are most of this crate.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod bytes;
mod classic;
mod error;
mod link;
mod pcapng;
mod reader;
mod window;
mod writer;

pub use error::Error;
pub use link::LinkType;
pub use reader::{MAX_PACKET_BYTES, Packet, Reader};
pub use writer::Writer;
