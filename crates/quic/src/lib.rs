//! QUIC servers behind a balancer that keeps 0-RTT (`policy = "zero-rtt"` of `dwell lb`), for quinn and rustls.
//!
//! - [`SingleUseSessions`] is what a server remembers of clients that may come back: each ticket is good for one use.
//! - [`Cids`] makes connection IDs that tell a balancer which server they are of, and how long requests wait there.
//! - [`WaitingTimes`] is how long: of what the application tells of its requests.
//! - [`Setup`] makes quinn's configurations of these, and [`accept`] takes a connection with its 0-RTT data.

mod cids;
mod server;
mod sessions;
mod waiting;

pub use cids::{CidGenerator, Cids, HEARTBEAT};
pub use server::{Setup, TICKETS, accept, single_use};
pub use sessions::{Counts, Limits, Secrets, SingleUseSessions};
pub use waiting::{Request, Service, WaitingTimes};

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There would be no room for a stamp.
    #[error("connection IDs are not of the layout with a stamp: make their configuration by Config::own")]
    Layout,
    /// Tickets would be self-contained.
    #[error("the TLS configuration has a ticketer, whose tickets can be used more than once: leave it out")]
    Ticketer,
    /// QUIC needs it for its first packets.
    #[error("the TLS configuration has no TLS 1.3 with AES-128-GCM, which QUIC begins with")]
    CipherSuite,
}
