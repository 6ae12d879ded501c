//! `[[vip.backend]]`: a server behind a VIP.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    table::Table,
    value::{host, number, plain_name, whole},
};

/// The largest weight that a backend may have, in the configuration and in requests.
pub const MAX_WEIGHT: f64 = 1_000_000.0;

/// A server behind a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// The name in output and requests; by default the address.
    pub name: String,
    /// The server's own address, where its packets and health checks are sent.
    pub address: IpAddr,
    /// The weight relative to the other backends of the VIP, from 0 to [`MAX_WEIGHT`]. A backend with weight 0 gets no
    /// new connections.
    pub weight: f64,
    /// The server ID that QUIC connection IDs carry, if the VIP routes by them.
    #[serde(default)]
    pub server_id: Option<u64>,
}

/// The lines of a backend's keys, for faults that are found later.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackendLines {
    pub name: usize,
    pub address: usize,
}

impl Backend {
    pub(super) fn read(mut table: Table<'_>) -> Option<(Backend, BackendLines)> {
        let address = table.require("address", "\"10.0.0.2\"", host);
        let name = table.get("name", plain_name);
        let weight = table.get("weight", number(0.0..=MAX_WEIGHT)).unwrap_or(1.0);
        let server_id = table.get("server_id", whole(0..=i64::MAX));
        let lines = BackendLines { name: table.line_of("name"), address: table.line_of("address") };
        table.finish();
        let address = address?;
        let backend = Backend {
            name: name.unwrap_or_else(|| address.to_string()),
            address,
            weight,
            server_id: server_id.map(|id| id as u64),
        };
        Some((backend, lines))
    }
}
