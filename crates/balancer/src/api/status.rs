//! The status of a balancer. Values that are not known are null.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use dwell_engine::{
    balance::{Forward, Protocol, WhenStale},
    units::nanos,
};
use dwell_records::{Cost, LatencyObject, Object, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{config::PolicyName, control::Pressure, plan::Phase};

/// The status of a balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The time of the status, in RFC 3339. Empty once it stands in a header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time: String,
    /// The version of dwell that runs.
    pub version: String,
    /// The interface that receives clients' packets.
    pub interface: String,
    /// The file of the configuration.
    pub config: String,
    /// The time when the configuration was last read, in RFC 3339.
    pub loaded: String,
    /// The length of the control loop's interval.
    pub interval_ns: u64,
    /// The time that the control loop worked at the end of the last interval.
    pub interval_work_ns: Option<u64>,
    /// The data plane in the kernel.
    pub plane: PlaneStatus,
    /// What is shared with other balancers; null if this one decides alone.
    #[serde(default)]
    pub shared: Option<SharedStatus>,
    /// The VIPs, in the order of the configuration.
    pub vips: Vec<VipStatus>,
    /// Backends that are no longer wanted and wait for their last connections.
    pub leaving: Vec<BackendStatus>,
    /// Conditions that an operator should know about.
    pub warnings: Vec<String>,
    /// What the process of the balancer used, and its program in the kernel since that process loaded it.
    #[serde(default)]
    pub cost: Cost,
    /// The outcome of `--fail-if`. Null without that option.
    #[serde(default)]
    pub fail_if: Option<Verdict>,
}

impl Status {
    /// All backends with the names of their VIPs; those that wait for their last connections have none.
    pub fn backends(&self) -> impl Iterator<Item = (Option<&str>, &BackendStatus)> {
        fn of_vip(vip: &VipStatus) -> impl Iterator<Item = (Option<&str>, &BackendStatus)> {
            vip.backends.iter().map(|backend| (Some(vip.name.as_str()), backend))
        }
        self.vips.iter().flat_map(of_vip).chain(self.leaving.iter().map(|backend| (None, backend)))
    }
}

impl Object for Status {
    const KINDS: &'static [&'static str] = &["lb.state"];
}

/// The data plane in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-plane")]
pub struct PlaneStatus {
    /// How it was started: "new", "taken-over" from an earlier process, or "replaced".
    pub start: String,
    /// The number of tracked connections.
    pub connections: u64,
    /// The number of connections that can be tracked, the next power of two from `limits.connections`.
    pub capacity: u64,
    /// When the control plane last renewed it; null if it never did.
    #[serde(default)]
    pub heartbeat: Option<HeartbeatStatus>,
    /// What fills the connection table, if the last interval had no room for all connections.
    #[serde(default)]
    pub pressure: Option<Pressure>,
    /// What runs the program. Null where that is unknown.
    #[serde(default)]
    pub xdp: Option<XdpStatus>,
    /// The devices by which packets leave.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// Events of the connection table and of latency measurement, by name.
    #[serde(default)]
    pub table: BTreeMap<String, u64>,
    /// Packets by reason of their routing.
    pub packets: BTreeMap<String, u64>,
    /// QUIC connection IDs and tokens by event.
    #[serde(default)]
    pub connection_ids: BTreeMap<String, u64>,
}

/// What a balancer shares with others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-shared")]
pub struct SharedStatus {
    /// The name of this balancer.
    pub name: String,
    /// Why the store is away, so that the last weights stay; null if it is not.
    pub problem: Option<String>,
    /// The names of the balancers that are there, with this one; none while the store is away.
    pub members: Vec<String>,
    /// The name of the one that decides for all; null if there is none, or the store is away.
    pub leader: Option<String>,
    /// Balancer and VIP, as in "lb2: web", where the backends, their weights or the table are configured differently than
    /// at the leader. The leader knows those of all, any other one its own.
    pub differing: Vec<String>,
    /// The number of the set of weights that tables are built from; null if there is none.
    pub set: Option<u64>,
    /// The values of the store that could not be used, and those that were too large for it.
    pub refused: u64,
}

impl SharedStatus {
    /// Lists the other balancers that are there. `None` if there is no other.
    pub fn others(&self) -> Option<String> {
        let others: Vec<_> = self.members.iter().filter(|name| **name != self.name).map(String::as_str).collect();
        (!others.is_empty()).then(|| others.join(", "))
    }
}

/// What runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-xdp")]
#[serde(rename_all = "lowercase")]
pub enum XdpStatus {
    /// The driver.
    Native,
    /// The network stack.
    Generic,
}

/// A device by which packets leave. Its counts begin with the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-device")]
pub struct DeviceStatus {
    /// The name.
    pub name: String,
    /// Packets that were sent back where they arrived (XDP_TX), and that the driver refused. Null where the kernel does
    /// not tell.
    pub refused_tx: Option<u64>,
    /// Packets that were redirected to the device, and that it refused: on a veth also those that were sent back. Null
    /// where the kernel does not tell.
    pub refused_redirect: Option<u64>,
    /// Why it takes no packets, and the remedy; null if it does, or that is unknown.
    pub problem: Option<String>,
}

/// The control plane's sign of life in the data plane. As an object of its own, `lb.heartbeat`, it stands for the status
/// of a control plane that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-heartbeat")]
pub struct HeartbeatStatus {
    /// The time since the control plane last renewed the data plane.
    pub age_ns: u64,
    /// The age above which the data plane is stale, within a second.
    pub stale_after_ns: u64,
    /// What the data plane does for new connections while it is stale: "keep" its weights, or give all backends that were
    /// usable "equal" ones.
    #[schemars(with = "String")]
    pub when_stale: WhenStale,
    /// Whether it is stale.
    pub is_stale: bool,
    /// Whether its program is attached to an interface. Where it is not, as the interface is gone, nothing is balanced,
    /// whatever the age. Null where another program calls it, or that is not known.
    #[serde(default)]
    pub is_attached: Option<bool>,
}

impl HeartbeatStatus {
    /// Returns the status of a data plane of this age, of which it is known or not whether it is attached.
    pub fn new(
        age: Duration,
        stale_after: Duration,
        when_stale: WhenStale,
        is_attached: Option<bool>,
    ) -> HeartbeatStatus {
        HeartbeatStatus {
            age_ns: nanos(age),
            stale_after_ns: nanos(stale_after),
            when_stale,
            is_stale: age > stale_after,
            is_attached,
        }
    }
}

impl Object for HeartbeatStatus {
    const KINDS: &'static [&'static str] = &["lb.heartbeat"];
}

/// How packets are sent to a backend.
#[allow(dead_code, reason = "the schema of `Forward`, whose crate has no schemas")]
#[derive(JsonSchema)]
#[schemars(rename = "lb-forward", rename_all = "lowercase")]
enum ForwardSchema {
    /// To the backend's MAC address, on a segment of the balancer's.
    L2,
    /// In another IP packet.
    Ipip,
    /// In UDP to this port.
    Gue(u16),
}

/// The status of a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-vip")]
pub struct VipStatus {
    /// The name.
    pub name: String,
    /// The virtual address.
    pub address: IpAddr,
    /// The transport protocol.
    #[schemars(with = "String")]
    pub proto: Protocol,
    /// The port; null for any.
    pub port: Option<u16>,
    /// How the weights of backends are set.
    pub policy: PolicyName,
    /// How packets are forwarded to backends.
    #[schemars(with = "ForwardSchema")]
    pub forward: Forward,
    /// The number of entries in the Maglev table.
    pub table_size: u32,
    /// A hash of the table: the same at all balancers that select alike. Null if it is empty.
    #[serde(default)]
    pub table_hash: Option<String>,
    /// The part of the table that changed in the last interval.
    pub disruption: Option<f64>,
    /// The part of new connections whose response latency is measured, from 0 to 1. Null where an older balancer answers, which
    /// does not say.
    #[serde(default)]
    pub measured: Option<f64>,
    /// Packets from clients.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on.
    pub bytes: u64,
    /// Connections that were entered into the connection table.
    pub connections: u64,
    /// Whether connections that began at another balancer have a second chance: they are in no count of connections.
    #[serde(default)]
    pub second_chance: bool,
    /// Whether all backends fail their checks, so that all are kept.
    pub all_down: bool,
    /// How many QUIC connections of a server are heavy, if that follows from the traffic.
    #[serde(default)]
    pub heavy: Option<HeavyStatus>,
    /// The backends.
    pub backends: Vec<BackendStatus>,
}

/// How many connections of a server are heavy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-heavy")]
pub struct HeavyStatus {
    /// The number of heavy connections of a server.
    pub connections: u32,
    /// The part of a server's packets that the heavy connections should carry.
    pub wanted: f64,
    /// The part of a server's packets that the heavy connections carry, on average.
    pub captured: Option<f64>,
}

/// The status of a backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-backend")]
pub struct BackendStatus {
    /// The name.
    pub name: String,
    /// The server's own address.
    pub address: IpAddr,
    /// The number in the kernel's maps.
    pub real: u32,
    /// Whether new connections may be sent to it.
    pub phase: Phase,
    /// The names of the balancers at which an operator drains it, where several share their weights. Empty where none does, or
    /// it is not known which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained_by: Vec<String>,
    /// What its health checks say.
    pub health: HealthState,
    /// Why the last check failed; null if it succeeded.
    pub health_problem: Option<String>,
    /// The duration of the last successful check.
    pub check_ns: Option<u64>,
    /// The configured weight.
    pub configured: f64,
    /// The weight that the policy has set, in the unit of the configuration.
    pub weight: f64,
    /// The part of the Maglev table, and so of new connections, from 0 to 1.
    pub share: f64,
    /// The reason for the weight, in one word.
    pub reason: String,
    /// The reason for the weight, in a sentence.
    pub explanation: String,
    /// The response latency in the last interval. Null where there was none.
    pub latency: Option<LatencyObject>,
    /// The number of requests in the last interval divided by the number of connections that were active at its end.
    pub freshness: Option<f64>,
    /// The number of connections with a packet within the active time, or with a request that waits for its answer.
    pub active: u64,
    /// The number of connections in the connection table whose packets go to it, however long they have been silent: those
    /// that would break if it were switched off, and those that have ended within the last `idle_timeout`. Null until they are
    /// first counted, and where an older balancer answers, which does not count them.
    pub tracked: Option<u64>,
    /// The requests that waited for the first byte of their answers when the interval ended.
    #[serde(default)]
    pub pending: PendingStatus,
    /// The number of connections that were assigned to it.
    pub connections: u64,
    /// Packets sent to it.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on, without encapsulation.
    pub bytes: u64,
    /// Why it cannot be reached; null if it can.
    pub problem: Option<String>,
    /// The server ID that connection IDs carry.
    #[serde(default)]
    pub server_id: Option<u64>,
    /// The load that the server reports in connection IDs.
    #[serde(default)]
    pub load: Option<LoadStatus>,
    /// Time since a short header last had a connection ID that names it, as far as the control loop has seen. Null before the first
    /// since the process started or the layouts changed, and where QUIC is not routed by connection ID.
    #[serde(default)]
    pub named_age_ns: Option<u64>,
    /// The name of the backend to which clients with this one's tokens go while it is drained or leaves. Null otherwise, or if
    /// it has no tokens.
    #[serde(default)]
    pub successor: Option<String>,
}

impl BackendStatus {
    /// Returns in a word or two whether it is used.
    pub fn state(&self) -> &'static str {
        match (self.phase, self.health) {
            (Phase::Leaving, _) => "leaving",
            (Phase::Draining, _) => "draining",
            _ if self.problem.is_some() => "no path",
            (_, HealthState::Down) => "down",
            (_, HealthState::Rising) => "rising",
            (_, HealthState::Up) => "up",
            (_, HealthState::Pending) => "pending",
            (_, HealthState::Unchecked) => "serving",
        }
    }

    /// Returns why it is in this state or has its weight.
    pub fn why(&self) -> &str {
        let problem = self.problem.as_deref().or(self.health_problem.as_deref());
        problem.unwrap_or(&self.explanation)
    }
}

/// Requests that wait, where latency is measured and TCP's header can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-pending")]
pub struct PendingStatus {
    /// The number of requests. Where only some connections are measured it is an estimate: the number of those that wait on
    /// measured connections, divided by the part of connections that is measured.
    pub requests: u64,
    /// For how long the oldest on a measured connection has waited at least: for less than twice that. Null if there is none.
    pub oldest_ns: Option<u64>,
    /// How many of them count for nothing when load is steered, as later ones are answered: their server has reset the connection, or
    /// the client has acknowledged the answer by way of another balancer.
    #[serde(default)]
    pub strays: u64,
}

/// The load that a server reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-load")]
pub struct LoadStatus {
    /// How long a request waits at the server; null if the server does not know.
    pub wait_ns: Option<u64>,
    /// The age of the report.
    pub age_ns: u64,
}

/// The state of a backend's health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "lb-health")]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// It is not checked, or has not been checked since the balancer began.
    Unchecked,
    /// It has joined a VIP that runs, and gets no connections until its first check has ended.
    Pending,
    /// It is healthy.
    Up,
    /// It is healthy again, but does not have its whole weight yet.
    Rising,
    /// It is not healthy.
    Down,
}
