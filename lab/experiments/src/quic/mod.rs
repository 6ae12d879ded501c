//! QUIC connections of real clients to real servers: the value of 0-RTT, and the balancing policies that keep it.

mod changes;
mod client;
mod client_program;
mod goals;
mod handshakes;
mod identity;
mod moves;
mod picture;
mod policies;
mod replay;
mod server;
mod stage;
mod theft;
pub(crate) mod verb;
mod watch;

use std::path::Path;

use clap::ValueEnum;
use dwell_engine::quic_lb::Config;
use dwell_testbed::{Error, Result};

use crate::lb::Star;

pub use changes::{Change, ChangeOptions, ChangeResult, changes};
pub use client::{Early, Mode};
pub use client_program::{ClientProgramOptions, ClientProgramResult, client_program};
pub use handshakes::{HandshakeOptions, HandshakeResult, handshakes};
pub use identity::Certificate;
pub use moves::{MoveOptions, MoveResult, moves};
pub use picture::{by_clients, by_policy};
pub use policies::{PolicyOptions, PolicyResult, policies};
pub use replay::{ReplayOptions, ReplayResult, replay};
pub use theft::Theft;

/// The network and the files of an experiment behind a balancer.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The network.
    pub star: &'a Star,
    /// The `dwell` program that balances.
    pub dwell: &'a Path,
    /// An existing folder for the balancer's files.
    pub folder: &'a Path,
}

/// How the balancer selects a connection's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// By connection ID, else by the client's address, unless that server is overloaded
    ZeroRtt,
    /// By addresses and ports
    #[value(name = "5-tuple")]
    FiveTuple,
    /// By the client's address: session affinity
    Source,
    /// To the server where requests wait the least, as servers report it
    LeastLoaded,
}

impl Policy {
    /// All policies, in the order in which they run.
    pub const ALL: [Policy; 4] = [Policy::ZeroRtt, Policy::FiveTuple, Policy::Source, Policy::LeastLoaded];

    /// Whether packets are routed by connection ID, so that the balancer knows the servers' loads.
    fn has_server_ids(self) -> bool {
        matches!(self, Policy::ZeroRtt | Policy::LeastLoaded)
    }

    /// The name in tables, records and options.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ZeroRtt => "zero-rtt",
            Policy::FiveTuple => "5-tuple",
            Policy::Source => "source",
            Policy::LeastLoaded => "least-loaded",
        }
    }
}

/// The UDP port of all servers.
const PORT: u16 = 443;
/// The key of connection IDs. It is not secret: the network of an experiment is isolated.
const KEY: [u8; 16] = *b"a lab's own key.";

fn config(rotation: u8, key: [u8; 16]) -> Result<Config> {
    Config::own(rotation, key).map_err(|why| Error::invalid("connection IDs", why))
}

/// An error with all its sources: quinn reports "connection lost", and the reason only in its source.
fn failed(why: &(dyn std::error::Error + 'static)) -> Error {
    let below = std::iter::successors(why.source(), |why| why.source());
    let text = below.fold(why.to_string(), |text, why| format!("{text}: {why}"));
    Error::invalid("QUIC connection", text)
}

/// Enlarges a socket's buffer for the packets of many simultaneous clients.
fn enlarge_buffer(socket: &std::net::UdpSocket) -> Result<()> {
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
        .map_err(Error::os("enlarge a socket's buffer"))
}
