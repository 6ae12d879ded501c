//! Errors that occur before a connection is attempted.

use std::{io, net::SocketAddr, path::PathBuf};

use dwell_socket::acceptor;

/// Why an agent or a collector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate file cannot be read or created.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// The operation that failed: read, create.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file of a new key exists.
    #[error("{} exists, and is not overwritten: move it away first, or delete it if no host needs its key", .0.display())]
    KeyExists(PathBuf),
    /// Every user of this host can read the key.
    #[error(
        "every user of this host can read the key in {}: chmod 600 it; if others may have read it, make a new one with `dwell collect --new-key FILE`, or `--new-agent NAME` for that of an agent", path.display()
    )]
    KeyExposed {
        /// The file.
        path: PathBuf,
    },
    /// The key is so short that it could be guessed.
    #[error("the key in {} has {length} characters, and at least {min} are needed: make one with `dwell collect --new-key FILE`", path.display())]
    KeyTooShort {
        /// The file.
        path: PathBuf,
        /// Length of the key, in bytes.
        length: usize,
        /// Minimum length, in bytes.
        min: usize,
    },
    /// The file is too long to hold a key.
    #[error("the key in {} has more than {max} characters: name a file that holds nothing but the key", path.display())]
    KeyTooLong {
        /// The file.
        path: PathBuf,
        /// Maximum length, in bytes.
        max: usize,
    },
    /// The file of an agent's key is malformed.
    #[error("{} is not the key of an agent: make a new one with `dwell collect --new-agent NAME`", path.display())]
    AgentKey {
        /// The file.
        path: PathBuf,
    },
    /// The kernel refuses the rules by which files are taken from this process.
    #[error("cannot give up access to files: {0}; is a filter of system calls in the way?")]
    Confinement(String),
    /// The list of agents is malformed.
    #[error("line {line} of {} is not the name of an agent, and the number of its key if that is not the first", path.display())]
    Agents {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// The list of agents is full.
    #[error("{} has {most} agents, the most that a list may have: remove one that no longer exists", path.display())]
    TooManyAgents {
        /// The file.
        path: PathBuf,
        /// The most agents of a list.
        most: usize,
    },
    /// The text is no token, or the token may not be used any more.
    #[error(
        "the token is not valid: it was used before, has expired, or is not that of this collector; make a new one with `dwell collect --new-token NAME`"
    )]
    Token,
    /// The file of tokens is malformed.
    #[error("line {line} of {} is not a token: delete it, and make new tokens with `dwell collect --new-token NAME`", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// So many tokens are unused that there is no room for another.
    #[error("{} has {most} unused tokens, which is the limit: delete it to make all of them invalid", path.display())]
    TooManyTokens {
        /// The file.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// The collector could not be asked for a key.
    #[error("cannot get a key from the collector at {collector}: {reason}")]
    Enrolment {
        /// The collector.
        collector: String,
        /// Why.
        reason: String,
    },
    /// An agent's key was given to a collector.
    #[error("this is the key of an agent, which cannot act as a collector: name the collector's --key-file")]
    NotCollector,
    /// A collector's credentials were given to an agent.
    #[error("these are the credentials of a collector, which cannot act as an agent")]
    NotAgent,
    /// A certificate or its private key is malformed, or the two do not belong together.
    #[error("cannot use {}: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The collector cannot listen.
    #[error("cannot listen on {address}: {source}{}", acceptor::remedy(*address, source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The text is not a valid name of an agent.
    #[error("'{0}' is not a valid agent name: use 1 to 64 letters, digits, dots, dashes or underscores")]
    Name(String),
    /// The text is not the address of a collector.
    #[error("'{0}' is not the address of a collector: write HOST:PORT")]
    Collector(String),
}
