//! The figures of a run.

use std::time::Duration;

use dwell_engine::stats::mean;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Distribution;

/// Numbers of connections by their use of 0-RTT.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "sim-connections")]
pub struct ResumptionCounts {
    /// All connections.
    pub connections: u64,
    /// Connections that are not their client's first, which is the most that any policy can resume.
    pub possible: u64,
    /// Connections that attempted 0-RTT: their client had an unused ticket.
    pub tried: u64,
    /// Connections that used 0-RTT.
    pub used: u64,
}

impl ResumptionCounts {
    /// Share of possible 0-RTT that was used; `None` if none was possible.
    pub fn used_share(&self) -> Option<f64> {
        (self.possible > 0).then(|| self.used as f64 / self.possible as f64)
    }
}

impl std::ops::Add for ResumptionCounts {
    type Output = ResumptionCounts;

    fn add(self, other: ResumptionCounts) -> ResumptionCounts {
        ResumptionCounts {
            connections: self.connections + other.connections,
            possible: self.possible + other.possible,
            tried: self.tried + other.tried,
            used: self.used + other.used,
        }
    }
}

/// The load of the servers at the end of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadSample {
    /// End of the interval.
    pub time_s: f64,
    /// Fraction of the interval in which a server was busy, averaged over servers.
    pub busy: f64,
    /// Load of a server, averaged over servers: the service time that its waiting and present requests still need.
    pub load_ms: f64,
    /// Load of the most loaded server relative to the mean; `None` where all were idle.
    pub imbalance: Option<f64>,
}

/// The figures of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Time to the first byte of the first answer, relative to the time with 0-RTT and without waiting.
    pub first_byte: Distribution,
    /// Time to the last byte of the last answer, relative to the time with 0-RTT and without waiting.
    pub completion: Distribution,
    /// Short connections: at most [`Scenario::short`](crate::Scenario::short) packets.
    pub short: ResumptionCounts,
    /// All other connections.
    pub long: ResumptionCounts,
    /// Number of connections that were diverted from the server of their client's address to the least loaded one.
    pub diverted: u64,
    /// Number of packets that were served, without those of handshakes.
    pub packets: u64,
    /// Mean number of packets waiting or in service at a server, over time and servers.
    pub present: f64,
    /// Load per interval, for intervals that ended before the last connection started.
    pub samples: Vec<LoadSample>,
    /// Simulated time.
    pub time: Duration,
    /// Time that the simulation took.
    pub elapsed: Duration,
}

impl Outcome {
    /// Counts of short and long connections together.
    pub fn all(&self) -> ResumptionCounts {
        self.short + self.long
    }

    /// Mean busy fraction over intervals.
    pub fn busy(&self) -> Option<f64> {
        mean(self.samples.iter().map(|sample| sample.busy))
    }

    /// Mean load over samples.
    pub fn load_ms(&self) -> Option<f64> {
        mean(self.samples.iter().map(|sample| sample.load_ms))
    }

    /// Mean imbalance over samples.
    pub fn imbalance(&self) -> Option<f64> {
        mean(self.samples.iter().filter_map(|sample| sample.imbalance))
    }
}
