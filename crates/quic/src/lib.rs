//! QUIC servers behind a balancer that keeps 0-RTT (`policy = "zero-rtt"` of `dwell lb`), for quinn and rustls.
//!
//! - [`SingleUseSessions`] stores the sessions that clients may resume. Each ticket is valid for one use.
//! - [`Cids`] generates connection IDs that tell a balancer their server and how long requests wait there.
//! - [`WaitingTimes`] estimates this waiting time from what the application reports about its requests.
//! - [`Setup`] builds quinn's configurations from these, whose tokens lead a client back from any address, and [`accept`] accepts a connection with its 0-RTT data.

mod cids;
mod hand_over;
mod server;
mod sessions;
mod tokens;
mod waiting;

pub use cids::{CidGenerator, Cids, HEARTBEAT};
pub use dwell_engine::quic_lb::Config;
pub use hand_over::HandOver;
pub use server::{Setup, TICKETS, accept, single_use};
pub use sessions::{Counts, Limits, Secrets, SingleUseSessions};
pub use waiting::{Request, Service, WaitingTimes};

/// The result of fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layout of connection IDs has no room for freshness and load.
    #[error("connection IDs need the layout with freshness and load: make their configuration by Config::own")]
    Layout,
    /// Tickets would be self-contained, and could be used more than once.
    #[error("the TLS configuration has a ticketer, whose tickets can be used more than once: leave it out")]
    Ticketer,
    /// QUIC needs this cipher suite for its first packets.
    #[error("the TLS configuration lacks TLS 1.3 with AES-128-GCM, which QUIC's first packets need")]
    CipherSuite,
    /// The system gave no random bytes for the key of tokens.
    #[error("the system gives no random bytes, which the key of address-validation tokens is made of")]
    Random,
}
