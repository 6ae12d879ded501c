//! QUIC connections of real clients to real servers: what 0-RTT is worth, and who keeps it.

mod changes;
mod client;
mod handshakes;
mod identity;
mod moves;
mod others;
mod picture;
mod policies;
mod replay;
mod server;
mod stage;
mod theft;
pub(crate) mod verb;
mod watch;

use std::{path::Path, time::Duration};

use dwell_engine::quic_lb::Config;
use dwell_testbed::{Error, Result};

use crate::lb::Star;

pub use changes::{Change, ChangeOptions, Changed, changes};
pub use client::{Early, Mode};
pub use handshakes::{HandshakeOptions, Handshakes, handshakes};
pub use identity::Certificate;
pub use moves::{MoveOptions, Moved, moves};
pub use others::{Other, OtherOptions, other};
pub use picture::{by_clients, by_policy};
pub use policies::{Balanced, PolicyOptions, policies};
pub use replay::{ReplayOptions, Replayed, replay};
pub use theft::Theft;

/// Where all of this runs, but for handshakes.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The network.
    pub star: &'a Star,
    /// The `dwell` that balances.
    pub dwell: &'a Path,
    /// An existing folder for its files.
    pub folder: &'a Path,
}

/// How the balancer places connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// By connection IDs, then by the client's address, unless that server has too much to do.
    ZeroRtt,
    /// By addresses and ports.
    FiveTuple,
    /// By the client's address: session affinity.
    Source,
}

impl Policy {
    /// All, in the order in which they take turns.
    pub const ALL: [Policy; 3] = [Policy::ZeroRtt, Policy::FiveTuple, Policy::Source];

    /// Short.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ZeroRtt => "zero-rtt",
            Policy::FiveTuple => "5-tuple",
            Policy::Source => "source",
        }
    }
}

/// Where servers listen.
const PORT: u16 = 443;
/// Of connection IDs. Networks of a lab are nobody else's.
const KEY: [u8; 16] = *b"a lab's own key.";

fn config(rotation: u8, key: [u8; 16]) -> Result<Config> {
    Config::own(rotation, key).map_err(|why| Error::invalid("connection IDs", why))
}

/// With what lies below it: quinn says "connection lost", and why only there.
fn failed(why: &(dyn std::error::Error + 'static)) -> Error {
    let below = std::iter::successors(why.source(), |why| why.source());
    let text = below.fold(why.to_string(), |text, why| format!("{text}: {why}"));
    Error::invalid("QUIC connection", text)
}

/// Room for the packets of many clients that come at once.
fn widen(socket: &std::net::UdpSocket) -> Result<()> {
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
        .map_err(Error::os("enlarge a socket's buffer"))
}

/// Of values in ascending order (nearest rank).
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
