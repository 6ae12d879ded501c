//! Reads packets from capture files: classic pcap and pcapng, both also compressed with gzip.
//!
//! [`Reader`] returns one packet at a time, borrowed from one fixed buffer: memory stays the same for a file of any size
//! and whatever lengths the file claims. The first bytes decide the format, never the file name. [`Writer`] writes
//! nanosecond pcap files without compression. A reader that is opened with [`Reader::open_copying`] writes what it reads
//! again as pcapng, with comments on packets.
//!
//! Damage is never hidden: every whole packet before it is delivered, then an [`Error`] gives the packet and the byte at
//! which the capture stops making sense.
//!
//! # Why not a parser crate
//!
//! `pcap-parser` 0.17 is fast enough, but it drops the [`std::io::Error`] of a failed read, ignores that pcap files
//! before version 2.4 hold the two packet lengths in the other order, reads `if_tsoffset` of a big-endian section as
//! little-endian, knows the modified pcap format in its little-endian form only, and cannot step over a block larger
//! than its buffer. The records are so simple that the checks, which would be needed in addition to it, are most of
//! this crate.

#![deny(clippy::print_stderr, reason = "printing is the program's business")]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bytes;
mod classic;
mod copy;
mod error;
mod link;
mod pcapng;
mod reader;
mod record;
mod window;
mod writer;

pub use error::Error;
pub use link::LinkType;
pub use reader::{Packet, Reader, Upcoming};
pub use record::MAX_PACKET_BYTES;
pub use writer::Writer;
