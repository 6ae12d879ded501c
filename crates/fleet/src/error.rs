//! What can go wrong before a connection is tried.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why an agent or a collector cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of a key or certificate cannot be read or made.
    #[error("cannot {doing} {}: {io}", path.display())]
    File {
        /// What: read, make.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
    /// Anybody on this host can read the key.
    #[error("the key in {} can be read by all on this host: chmod 600 it, or make a new one with `dwell collect --new-key FILE`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A key that could be guessed.
    #[error("the key in {} has {length} characters, and {least} are needed: make one with `dwell collect --new-key FILE`", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// How many it has.
        length: usize,
        /// How many it must have.
        least: usize,
    },
    /// Nobody would have such a key.
    #[error("the key in {} has more than {most} characters: name a file with nothing but the key", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// How many it may have.
        most: usize,
    },
    /// A certificate or its key is no such thing.
    #[error("cannot use {}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The collector cannot listen.
    #[error("cannot listen on {address}: {io}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        io: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Not a name for an agent.
    #[error("'{0}' is no name for an agent: take 1 to 64 letters, digits, dots, dashes or underscores")]
    Name(String),
    /// Not where a collector could be.
    #[error("'{0}' is no collector: write HOST:PORT")]
    Collector(String),
}
