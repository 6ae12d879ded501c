//! What happens to a balancer, for output: an object a line.

use std::net::IpAddr;

use serde::Serialize;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    /// It runs.
    #[serde(rename = "lb_started")]
    Started {
        /// Where clients' packets come in.
        interface: String,
        /// The configuration's file.
        config: String,
        /// Whether a data plane was there: new, over, anew.
        taken: &'static str,
        /// Why what was there could not be taken over.
        why: Option<String>,
        /// How many.
        vips: usize,
        /// Over all VIPs.
        backends: usize,
    },
    /// A backend is well, or no longer.
    #[serde(rename = "lb_health")]
    Health {
        /// The VIP's name.
        vip: String,
        /// The backend's name.
        backend: String,
        /// Whether it is well.
        is_up: bool,
        /// What the check said if it failed.
        why: Option<String>,
    },
    /// All backends of a VIP fail, so that all are kept; or no longer.
    #[serde(rename = "lb_all_down")]
    AllDown {
        /// The VIP's name.
        vip: String,
        /// Whether all fail.
        all_down: bool,
    },
    /// A backend can be reached, or no longer.
    #[serde(rename = "lb_reach")]
    Reach {
        /// The backend's address.
        address: IpAddr,
        /// Why not; null if it can be.
        problem: Option<String>,
    },
    /// A VIP has another table.
    #[serde(rename = "lb_weights")]
    Weights {
        /// The VIP's name.
        vip: String,
        /// The part of the table that changed.
        disruption: f64,
        /// Weights, and why.
        backends: Vec<Weight>,
    },
    /// An operator changed something.
    #[serde(rename = "lb_changed")]
    Changed {
        /// By what.
        by: &'static str,
        /// A line each, in words.
        changes: Vec<String>,
    },
    /// A reload was refused: all is as before.
    #[serde(rename = "lb_refused")]
    Refused {
        /// Why.
        error: String,
    },
    /// What the next process needs cannot be kept; told once, until it can be again.
    #[serde(rename = "lb_unsaved")]
    Unsaved {
        /// Where.
        path: String,
        /// Why.
        error: String,
    },
    /// The reader of events was too slow: some are missing before this.
    #[serde(rename = "lb_lost")]
    Lost {
        /// How many.
        events: u64,
    },
    /// A backend has left, with its last connection.
    #[serde(rename = "lb_left")]
    Left {
        /// The backend's name.
        backend: String,
        /// Its address.
        address: IpAddr,
    },
}

/// How much a backend gets, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Weight {
    /// The backend's name.
    pub backend: String,
    /// In the unit of the configuration.
    pub weight: f64,
    /// Part of the table.
    pub share: f64,
    /// In one word.
    pub why: &'static str,
    /// Mean response latency of the last interval.
    pub latency_s: Option<f64>,
}
