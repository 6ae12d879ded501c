//! What a balancer tells of itself. Unknown is null.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    config::{Forward, PolicyName, Protocol},
    plan::Phase,
};

/// All of a balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When, as RFC 3339.
    pub time: String,
    /// The version of dwell that runs.
    pub version: String,
    /// Where clients' packets come in.
    pub interface: String,
    /// The configuration's file.
    pub config: String,
    /// When it was last read, as RFC 3339.
    pub loaded: String,
    /// The length of an interval.
    pub interval_s: f64,
    /// How long the work of the last interval took.
    pub interval_work_s: Option<f64>,
    /// The kernel's side.
    pub plane: PlaneStatus,
    /// In the order of the configuration.
    pub vips: Vec<VipStatus>,
    /// Backends that are no longer wanted, and wait for their last connections.
    pub leaving: Vec<BackendStatus>,
    /// What an operator should look at.
    pub warnings: Vec<String>,
}

/// The kernel's side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaneStatus {
    /// Whether it was there before this process: "new", "over" or "anew".
    pub taken: String,
    /// Connections that are followed.
    pub connections: u64,
    /// For so many there is room.
    pub places: u64,
    /// Packets by what became of them.
    pub packets: BTreeMap<String, u64>,
    /// Connection IDs of QUIC by what was seen of them.
    #[serde(default)]
    pub connection_ids: BTreeMap<String, u64>,
}

/// A VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VipStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its transport.
    pub protocol: Protocol,
    /// Its port; none for all.
    pub port: Option<u16>,
    /// How weights are found.
    pub policy: PolicyName,
    /// How packets go to backends.
    pub forward: Forward,
    /// Places in its Maglev table.
    pub table_size: u32,
    /// The part of the table that the last change of weights changed.
    pub disruption: Option<f64>,
    /// Clients' packets.
    pub packets: u64,
    /// Their bytes of IP.
    pub bytes: u64,
    /// Connections that were entered.
    pub connections: u64,
    /// All backends fail their checks, so that all are kept.
    pub all_down: bool,
    /// Which connections of QUIC are heavy, where that follows from what clients send.
    #[serde(default)]
    pub heavy: Option<HeavyStatus>,
    /// Who stands behind it.
    pub backends: Vec<BackendStatus>,
}

/// How many connections of a server are heavy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeavyStatus {
    /// So many.
    pub connections: u32,
    /// The part of a server's packets that they are to have.
    pub wanted: f64,
    /// And that they have, on average.
    pub captured: Option<f64>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its number in the kernel's maps.
    pub real: u32,
    /// Whether new connections may go there.
    pub phase: Phase,
    /// What checks say.
    pub health: HealthWord,
    /// What the last check said if it failed.
    pub health_why: Option<String>,
    /// How long the last good check took.
    pub check_s: Option<f64>,
    /// As configured.
    pub configured: f64,
    /// As the policy has it, in the unit of the configuration.
    pub weight: f64,
    /// Part of new connections, 0 to 1.
    pub share: f64,
    /// Why the weight is what it is, in one word.
    pub why: String,
    /// The same in words.
    pub why_words: String,
    /// Mean response latency of the last interval.
    pub latency_s: Option<f64>,
    /// Connections that it is of.
    pub latency_connections: Option<u32>,
    /// Requests of the last interval over connections active at its end.
    pub freshness: Option<f64>,
    /// Connections with a packet within the active time.
    pub active: u64,
    /// Connections that were placed there.
    pub connections: u64,
    /// Packets sent there.
    pub packets: u64,
    /// Their bytes of IP.
    pub bytes: u64,
    /// Why it cannot be reached.
    pub problem: Option<String>,
    /// By which connection IDs name it.
    #[serde(default)]
    pub server_id: Option<u64>,
    /// What it says of its load in connection IDs.
    #[serde(default)]
    pub load: Option<LoadStatus>,
}

/// What a server says of its load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// How long a request waits there.
    pub wait_s: Option<f64>,
    /// How long ago that came.
    pub age_s: f64,
}

/// What checks say of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthWord {
    /// It is not checked, or was not asked yet.
    Unchecked,
    /// Well.
    Up,
    /// Well again, and not yet given its whole weight.
    Rising,
    /// Not well.
    Down,
}
