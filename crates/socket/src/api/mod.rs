//! For programs that watch their own sockets.

mod info;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use std::io;

pub use info::Info;
pub use session::Session;
pub use socket::{Bound, Socket};

/// Why a socket is not watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be.
    #[error(transparent)]
    Config(#[from] crate::table::Error),
    /// The kernel gave no memory, or no thread.
    #[error("a thread that looks at sockets: {source}")]
    Poller {
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("descriptor {fd} is no TCP connection that is open")]
    NotTcp {
        /// The descriptor.
        fd: i32,
    },
    /// It was closed, or the other end has gone.
    #[error("the connection has ended")]
    Ended,
    /// Too many.
    #[error("more than {} sockets are watched", crate::table::SLOTS)]
    Full,
    /// The session belongs to the process that this one was forked from.
    #[error("this process was forked from the one that began to watch: begin again")]
    Forked,
}
