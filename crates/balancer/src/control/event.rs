//! The events of a balancer. `dwell lb run` writes one JSON object per line for them.

use std::net::IpAddr;

use dwell_records::{LatencyObject, Object};
use schemars::JsonSchema;
use serde::Serialize;

use super::Pressure;

/// An event of a balancer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Event {
    /// The balancer has started.
    Started {
        /// The interface that receives clients' packets.
        interface: String,
        /// The file of the configuration.
        config: String,
        /// How the data plane was started: "new", "taken-over" from an earlier process, or "replaced".
        start: &'static str,
        /// Why an existing data plane could not be taken over.
        reason: Option<String>,
        /// For how long nobody had renewed the data plane that was there. Null if there was none, or nobody had.
        heartbeat_age_ns: Option<u64>,
        /// The number of VIPs.
        vips: usize,
        /// The number of backends of all VIPs.
        backends: usize,
    },
    /// A backend's health has changed.
    Health {
        /// The name of the VIP.
        vip: String,
        /// The name of the backend.
        backend: String,
        /// Whether the backend is up.
        up: bool,
        /// Why the check failed; null if it succeeded.
        reason: Option<String>,
    },
    /// All backends of a VIP fail their checks, so that all are kept; or that has ended.
    AllDown {
        /// The name of the VIP.
        vip: String,
        /// Whether all fail.
        all_down: bool,
    },
    /// No health check runs, as no thread can be started for them; or they run again.
    Unchecked {
        /// Why; null if they run again.
        reason: Option<String>,
    },
    /// A backend has become reachable or unreachable.
    Reach {
        /// The address of the backend.
        address: IpAddr,
        /// Why it cannot be reached; null if it can.
        problem: Option<String>,
    },
    /// The Maglev table of a VIP has changed.
    Weights {
        /// The name of the VIP.
        vip: String,
        /// The part of the table that changed.
        disruption: f64,
        /// The weights of all backends, with their reasons.
        backends: Vec<Weight>,
    },
    /// The connection table has no room for all connections, or again for all.
    Pressure {
        /// What the last interval counted; null if there is room again.
        pressure: Option<Pressure>,
    },
    /// An operator has changed something.
    Changed {
        /// The request: "reload", "add", "remove", "weight" or "drain".
        by: &'static str,
        /// A description of each change.
        changes: Vec<String>,
        /// The user who asked for it over the API; null if nobody did, as for a reload by a signal.
        uid: Option<u32>,
        /// The process that asked for it; null likewise.
        pid: Option<i32>,
    },
    /// A reload was refused, and nothing has changed.
    Refused {
        /// The reason.
        reason: String,
        /// The user who asked for it over the API; null if nobody did.
        uid: Option<u32>,
        /// The process that asked for it; null likewise.
        pid: Option<i32>,
    },
    /// The state for the next process cannot be saved. Reported once, until it can be saved again.
    Unsaved {
        /// The file of the state.
        path: String,
        /// The cause.
        reason: String,
    },
    /// The state of the process before cannot be read: backends have new numbers, and what operators changed is lost.
    StateLost {
        /// The file of the state.
        path: String,
        /// The cause, and what became of the file.
        reason: String,
    },
    /// What balancers share has changed: who is there, who leads, whether the store is away.
    Shared {
        /// Why the store is away, so that the last weights stay; null if it is not.
        problem: Option<String>,
        /// The names of the balancers that are there, with this one; none while the store is away.
        members: Vec<String>,
        /// The name of the one that decides for all; null if there is none, or the store is away.
        leader: Option<String>,
        /// As in the status.
        differing: Vec<String>,
    },
    /// A backend has been removed after its last connection.
    Left {
        /// The name of the backend.
        backend: String,
        /// The address of the backend.
        address: IpAddr,
    },
}

impl Object for Event {
    /// In the order of the variants.
    const KINDS: &'static [&'static str] = &[
        "lb.started",
        "lb.health",
        "lb.all-down",
        "lb.unchecked",
        "lb.reach",
        "lb.weights",
        "lb.pressure",
        "lb.changed",
        "lb.refused",
        "lb.unsaved",
        "lb.state-lost",
        "lb.shared",
        "lb.left",
    ];

    fn kind(&self) -> &'static str {
        match self {
            Event::Started { .. } => "lb.started",
            Event::Health { .. } => "lb.health",
            Event::AllDown { .. } => "lb.all-down",
            Event::Unchecked { .. } => "lb.unchecked",
            Event::Reach { .. } => "lb.reach",
            Event::Weights { .. } => "lb.weights",
            Event::Pressure { .. } => "lb.pressure",
            Event::Changed { .. } => "lb.changed",
            Event::Refused { .. } => "lb.refused",
            Event::Unsaved { .. } => "lb.unsaved",
            Event::StateLost { .. } => "lb.state-lost",
            Event::Shared { .. } => "lb.shared",
            Event::Left { .. } => "lb.left",
        }
    }
}

/// The weight of a backend, and the reason for it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "lb-weight")]
pub struct Weight {
    /// The name of the backend.
    pub backend: String,
    /// The weight that the policy has set, in the unit of the configuration.
    pub weight: f64,
    /// The part of the table that it has.
    pub share: f64,
    /// The reason, in one word.
    pub reason: &'static str,
    /// The response latency in the last interval. Null where there was none.
    pub latency: Option<LatencyObject>,
}
