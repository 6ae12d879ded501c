use std::io;

/// Why a capture could not be read, or not to its end.
///
/// [`Error::Open`] and [`Error::NotACapture`] mean that the wrong thing was named: nothing was
/// read. The other three mean that the data is incomplete: all packets before the fault have been
/// delivered and hold. [`Error::is_incomplete_data`] tells the two apart.
///
/// `path` is the file name as given, or "standard input". `packets` counts the packets delivered.
/// `offset` is the byte where the faulty packet, block or file header begins; in a gzip file it
/// counts unpacked bytes. The text of the [`io::Error`] is part of the message, so it is not
/// repeated as `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened, or its first bytes could not be read.
    #[error("cannot open capture {path}: {io}; check the name and that you may read it")]
    Open {
        /// File name.
        path: String,
        /// What the system answered.
        io: io::Error,
    },

    /// Reading failed later on, for instance on a bad disk or a lost network file system.
    #[error(
        "cannot read on in capture {path}: {io}; packets read before: {packets}, all good; \
         copy the file elsewhere to get the rest"
    )]
    Read {
        /// File name.
        path: String,
        /// Packets delivered so far.
        packets: u64,
        /// What the system answered.
        io: io::Error,
    },

    /// The content is no capture of a known format.
    #[error("{path} is not a capture: it {hint}; give a pcap or pcapng file, plain or gzip")]
    NotACapture {
        /// File name.
        path: String,
        /// The first bytes, at most four, after unpacking.
        magic: Vec<u8>,
        /// What the content looks like, as the end of a sentence: "is empty", "starts with 'GET '".
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

    /// A length or another field cannot be true, so that nothing after it can be trusted.
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
        /// What is wrong with it.
        what: String,
    },
}

impl Error {
    /// Whether packets were, or could have been, delivered before the fault: the result is not
    /// wrong but incomplete. False means that the caller named the wrong file.
    pub fn is_incomplete_data(&self) -> bool {
        match self {
            Error::Open { .. } | Error::NotACapture { .. } => false,
            Error::Read { .. } | Error::Truncated { .. } | Error::Corrupt { .. } => true,
        }
    }
}

/// A fault seen by a format parser, which knows neither the file name nor the packet count.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input ended inside a record.
    Cut,
    /// A field cannot be true.
    Corrupt(String),
    /// The input could not be read.
    Io(io::Error),
}
