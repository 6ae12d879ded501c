//! The interface for programs that watch their own sockets.

mod info;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use std::io;

pub use info::Info;
pub use session::Session;
pub use socket::{Bound, Socket};

/// Why a socket cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is impossible.
    #[error(transparent)]
    Config(#[from] crate::table::Error),
    /// The kernel provided no memory or no thread.
    #[error("cannot start a thread that polls sockets: {source}")]
    Poller {
        /// Error of the system.
        source: io::Error,
    },
    /// The descriptor is something else.
    #[error("descriptor {fd} is not an open TCP connection")]
    NotTcp {
        /// The descriptor.
        fd: i32,
    },
    /// The connection was closed, or the other end is gone.
    #[error("the connection has ended")]
    Ended,
    /// The session watches as many sockets as it can.
    #[error("more than {} sockets are watched", crate::table::SLOTS)]
    Full,
    /// The session belongs to the process that this one was forked from.
    #[error("this process was forked from the one that started the session: start another")]
    Forked,
}
