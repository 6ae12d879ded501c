//! What is asked of a running balancer, and what it answers: JSON over a Unix socket, an object a line.
//!
//! A request is one line of at most [`MOST_REQUEST_BYTES`]; its answer is one line, `{"ok": …}` or
//! `{"error": "…"}`. A connection may ask as often as it wants.

mod client;
mod server;
mod status;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use server::{Answer, Asked, ListenError, Listener};
pub use status::{BackendStatus, HealthWord, HeavyStatus, LoadStatus, PlaneStatus, Status, VipStatus};

/// A longer request is none.
pub const MOST_REQUEST_BYTES: u64 = 256 * 1024;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// What runs. Answer: [`Status`].
    Status {},
    /// Read the configuration again. Answer: [`Changed`].
    Reload {},
    /// Give a backend no new connection, or with `undo` again. Answer: [`Changed`].
    Drain {
        /// Which one.
        #[serde(flatten)]
        backend: Named,
        /// Undo it.
        #[serde(default)]
        undo: bool,
    },
    /// A backend joins, until the next reload. Answer: [`Changed`].
    Add {
        /// The VIP's name.
        vip: String,
        /// The backend's address.
        address: IpAddr,
        /// Its name; without one, its address.
        #[serde(default)]
        name: Option<String>,
        /// Its weight.
        #[serde(default = "one")]
        weight: f64,
        /// By which connection IDs name it, where the policy is `zero-rtt`.
        #[serde(default)]
        server_id: Option<u64>,
    },
    /// A backend leaves, until the next reload. Answer: [`Changed`].
    Remove {
        /// Which one.
        #[serde(flatten)]
        backend: Named,
    },
    /// Another weight for a backend, until the next reload. Answer: [`Changed`].
    Weight {
        /// Which one.
        #[serde(flatten)]
        backend: Named,
        /// From 0.
        weight: f64,
    },
    /// Where packets would go. Answer: a list of [`Went`].
    Where {
        /// Ethernet frames, in hex.
        frames: Vec<String>,
    },
}

fn one() -> f64 {
    1.0
}

/// A backend by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The VIP's name; without one, the backend's name must be that of one backend only.
    #[serde(default)]
    pub vip: Option<String>,
    /// The backend's name, or its address.
    pub backend: String,
}

impl Named {
    /// From `VIP/BACKEND` or `BACKEND`.
    pub fn parse(text: &str) -> Named {
        match text.split_once('/') {
            Some((vip, backend)) => Named { vip: Some(vip.into()), backend: backend.into() },
            None => Named { vip: None, backend: text.into() },
        }
    }
}

/// What a request has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// A line each, in words; none if all was as wanted already.
    pub changes: Vec<String>,
}

/// Where a packet would go, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Went {
    /// What would become of it: pass, drop, send, redirect.
    pub verdict: String,
    /// Why, in one word.
    pub why: String,
    /// The VIP's name.
    pub vip: Option<String>,
    /// The backend's name.
    pub backend: Option<String>,
    /// The backend's address.
    pub address: Option<IpAddr>,
    /// As it would go out, in hex; none if it would not.
    pub frame: Option<String>,
}

/// Bytes from hex, with blanks and colons between as people write them.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b':')
        .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Hex of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
