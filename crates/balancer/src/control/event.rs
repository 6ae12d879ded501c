//! The events of a balancer. `dwell lb run` writes one JSON object per line for them.

use std::net::IpAddr;

use serde::Serialize;

/// An event of a balancer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    /// The balancer has started.
    #[serde(rename = "lb_started")]
    Started {
        /// The interface that receives clients' packets.
        interface: String,
        /// The file of the configuration.
        config: String,
        /// How the data plane was started: "new", "over" (taken over) or "anew" (replaced).
        #[serde(rename = "taken")]
        start: &'static str,
        /// Why an existing data plane could not be taken over.
        why: Option<String>,
        /// The number of VIPs.
        vips: usize,
        /// The number of backends of all VIPs.
        backends: usize,
    },
    /// A backend's health has changed.
    #[serde(rename = "lb_health")]
    Health {
        /// The name of the VIP.
        vip: String,
        /// The name of the backend.
        backend: String,
        /// Whether the backend is up.
        is_up: bool,
        /// Why the check failed; null if it succeeded.
        why: Option<String>,
    },
    /// All backends of a VIP fail their checks, so that all are kept; or that has ended.
    #[serde(rename = "lb_all_down")]
    AllDown {
        /// The name of the VIP.
        vip: String,
        /// Whether all fail.
        all_down: bool,
    },
    /// A backend has become reachable or unreachable.
    #[serde(rename = "lb_reach")]
    Reach {
        /// The address of the backend.
        address: IpAddr,
        /// Why it cannot be reached; null if it can.
        problem: Option<String>,
    },
    /// The Maglev table of a VIP has changed.
    #[serde(rename = "lb_weights")]
    Weights {
        /// The name of the VIP.
        vip: String,
        /// The part of the table that changed.
        disruption: f64,
        /// The weights of all backends, with their reasons.
        backends: Vec<Weight>,
    },
    /// An operator has changed something.
    #[serde(rename = "lb_changed")]
    Changed {
        /// The request: "reload", "add", "remove", "weight" or "drain".
        by: &'static str,
        /// A description of each change.
        changes: Vec<String>,
    },
    /// A reload was refused, and nothing has changed.
    #[serde(rename = "lb_refused")]
    Refused {
        /// The reason.
        error: String,
    },
    /// The state for the next process cannot be saved. Reported once, until it can be saved again.
    #[serde(rename = "lb_unsaved")]
    Unsaved {
        /// The file of the state.
        path: String,
        /// The cause.
        error: String,
    },
    /// The reader of events was too slow: events before this one are missing.
    #[serde(rename = "lb_lost")]
    Lost {
        /// The number of lost events.
        events: u64,
    },
    /// A backend has been removed after its last connection.
    #[serde(rename = "lb_left")]
    Left {
        /// The name of the backend.
        backend: String,
        /// The address of the backend.
        address: IpAddr,
    },
}

/// The weight of a backend, and the reason for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Weight {
    /// The name of the backend.
    pub backend: String,
    /// The weight that the policy has set, in the unit of the configuration.
    pub weight: f64,
    /// The part of the table that it has.
    pub share: f64,
    /// The reason, in one word.
    pub why: &'static str,
    /// The mean response latency of the last interval.
    pub latency_s: Option<f64>,
}
