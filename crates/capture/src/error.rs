use std::io;

/// Why a capture could not be read, or not to its end.
///
/// [`Error::Open`] and [`Error::NotACapture`] mean that the caller named the wrong file: nothing was read. The others
/// mean that the data is incomplete: all packets before the fault have been delivered and are valid.
/// [`Error::is_incomplete_data`] distinguishes the two.
///
/// `path` is the file name as given, or "standard input". `packets` is the number of packets delivered. `offset` is the
/// byte where the faulty packet, block or file header begins; in a gzip file it counts decompressed bytes. The text of
/// the [`io::Error`] is part of the message, so it is not repeated as `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened, or its first bytes could not be read.
    #[error("cannot open capture {path}: {io}; check the name and that you may read it")]
    Open {
        /// File name.
        path: String,
        /// Error of the system.
        io: io::Error,
    },

    /// Reading failed after the first bytes, for instance on a bad disk or a lost network file system.
    #[error(
        "cannot read on in capture {path}: {io}; packets read before: {packets}, all good; \
         copy the file elsewhere to get the rest"
    )]
    Read {
        /// File name.
        path: String,
        /// Packets delivered so far.
        packets: u64,
        /// Error of the system.
        io: io::Error,
    },

    /// The content is not a capture of a known format.
    #[error("{path} is not a capture: it {hint}; give a pcap or pcapng file, plain or gzip")]
    NotACapture {
        /// File name.
        path: String,
        /// The first bytes, at most four, after decompression.
        magic: Vec<u8>,
        /// Description of the content as the end of a sentence: "is empty", "starts with 'GET '".
        hint: String,
    },

    /// The capture ends inside a packet, a block or the file header.
    #[error(
        "capture {path} is cut off inside the record at byte {offset}; packets read before: \
         {packets}, all good; copy the file again or let the capture finish to get the rest"
    )]
    Truncated {
        /// File name.
        path: String,
        /// Packets delivered so far.
        packets: u64,
        /// Byte where the cut record begins.
        offset: u64,
    },

    /// A length or another field is impossible, so nothing after it can be trusted.
    #[error(
        "capture {path} is damaged at packet {}, byte {offset}: {what}; packets read before: \
         {packets}, all good; copy the file again or repair it to get the rest",
        packets + 1
    )]
    Corrupt {
        /// File name.
        path: String,
        /// Packets delivered so far.
        packets: u64,
        /// Byte where the damaged record begins.
        offset: u64,
        /// Description of the damage.
        what: String,
    },

    /// The copy could not be written, so reading ended. The text is that of the writer's error.
    #[error("{io}")]
    Copy {
        /// Error of the writer, or [`io::ErrorKind::InvalidInput`] for what pcapng cannot hold.
        io: io::Error,
    },
}

impl Error {
    /// Returns true if packets were, or could have been, delivered before the fault: the result is incomplete, not wrong.
    /// False means that the caller named the wrong file.
    pub fn is_incomplete_data(&self) -> bool {
        match self {
            Error::Open { .. } | Error::NotACapture { .. } => false,
            Error::Read { .. } | Error::Truncated { .. } | Error::Corrupt { .. } | Error::Copy { .. } => true,
        }
    }
}

/// A fault found by a format parser, which knows neither the file name nor the packet count.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input ended inside a record.
    Cut,
    /// A field is impossible.
    Corrupt(String),
    /// The input could not be read.
    Io(io::Error),
}
