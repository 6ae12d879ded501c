//! The API of a running balancer: JSON over a Unix socket, one object per line.
//!
//! A request is one line of at most [`MAX_REQUEST_BYTES`]; its answer is one line, `{"ok": …}` or `{"error": "…"}`. A
//! connection may carry any number of requests.

mod client;
mod route;
mod server;
mod status;

use std::{net::IpAddr, ops::RangeInclusive};

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use route::{PacketRoute, RouteObject};
pub use server::{Answer, ListenError, Listener, PendingRequest, Requester};
pub use status::{
    BackendStatus, DeviceStatus, HealthState, HeartbeatStatus, HeavyStatus, LoadStatus, PendingStatus, PlaneStatus,
    SharedStatus, Status, VipStatus, XdpStatus,
};

/// The greatest length of a request, with its newline.
pub const MAX_REQUEST_BYTES: u64 = 256 * 1024;

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Report what runs. Answer: [`Status`].
    Status {},
    /// Reload the configuration, or with `dry_run` only say what that would change. Answer: [`Changes`].
    Reload {
        /// Whether nothing is to be changed.
        #[serde(default)]
        dry_run: bool,
    },
    /// Stop sending new connections to a backend, or resume with `undo`. Answer: [`Changes`].
    Drain {
        /// The backend to drain.
        #[serde(flatten)]
        backend: BackendName,
        /// Whether to end the drain.
        #[serde(default)]
        undo: bool,
    },
    /// Add a backend, until the next reload. Answer: [`Changes`].
    Add {
        /// The name of the VIP.
        vip: String,
        /// The address of the backend.
        address: IpAddr,
        /// The name of the backend; by default its address.
        #[serde(default)]
        name: Option<String>,
        /// The weight of the backend.
        #[serde(default = "one")]
        weight: f64,
        /// The server ID that connection IDs carry, if the policy is `zero-rtt`.
        #[serde(default)]
        server_id: Option<u64>,
    },
    /// Remove a backend, until the next reload. Answer: [`Changes`].
    Remove {
        /// The backend to remove.
        #[serde(flatten)]
        backend: BackendName,
    },
    /// Change the weight of a backend, until the next reload. Answer: [`Changes`].
    Weight {
        /// The backend to change.
        #[serde(flatten)]
        backend: BackendName,
        /// The new weight, from 0.
        weight: f64,
    },
    /// Report where packets would be sent. Answer: a list of [`PacketRoute`].
    Where {
        /// The packets: Ethernet frames, in hexadecimal digits.
        frames: Vec<String>,
    },
}

fn one() -> f64 {
    1.0
}

/// A backend as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendName {
    /// The name of the VIP; it may be omitted if only one VIP has a backend of this name.
    #[serde(default)]
    pub vip: Option<String>,
    /// The name or the address of the backend.
    pub backend: String,
}

impl BackendName {
    /// Parses `VIP/BACKEND` or `BACKEND`.
    pub fn parse(text: &str) -> BackendName {
        match text.split_once('/') {
            Some((vip, backend)) => BackendName { vip: Some(vip.into()), backend: backend.into() },
            None => BackendName { vip: None, backend: text.into() },
        }
    }
}

/// The changes that a request made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// A description of each change; empty if nothing had to change.
    pub changes: Vec<String>,
    /// The keys of the configuration from which nothing follows, after a reload.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The bytes that a frame may have over which the kernel runs a program.
pub const FRAME_BYTES: RangeInclusive<usize> = 14..=3_500;

/// Parses hexadecimal digits. White space and colons between them are ignored. None if anything else is there, or an
/// odd number of digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b':')
        .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Formats bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
