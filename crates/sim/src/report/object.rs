//! The object of JSON Lines output.

use std::collections::BTreeMap;

use dwell_records::Object;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    Estimate, Policy, ResumptionCounts,
    study::{QUANTILES, Summary},
};

/// The figures of a simulated policy with a number of servers, over all completed runs. Each figure is the mean over runs.
#[derive(Serialize, JsonSchema)]
pub struct RunObject<'a> {
    /// The name of the part of the study: "scenario" for what a user simulates.
    part: &'a str,
    /// The name of the policy.
    #[schemars(with = "String")]
    policy: Policy,
    /// The number of servers.
    servers: usize,
    /// The number of completed runs.
    runs: usize,
    /// The number of requested runs.
    runs_requested: usize,
    /// The quantiles of the time to the first byte of the first answer, relative to the time with 0-RTT and without
    /// waiting.
    first_byte_ratio: BTreeMap<String, Option<Estimate>>,
    /// The quantiles of the time to the last byte of the last answer, relative to the time with 0-RTT and without waiting.
    completion_ratio: BTreeMap<String, Option<Estimate>>,
    /// The use of 0-RTT.
    zero_rtt: ZeroRttObject,
    /// The share of time in which servers are busy, from 0 to 1.
    busy_share: Option<Estimate>,
    /// The service time that the requests at a server still need.
    load_ns: Option<Estimate>,
    /// The load of the most loaded server relative to the mean.
    imbalance: Option<Estimate>,
    /// The number of packets at a server.
    packets_present: Option<Estimate>,
    /// The share of connections that were diverted to the least loaded server, from 0 to 1.
    diverted_share: Option<Estimate>,
    /// The time that the simulation of a run took.
    elapsed_ns: Option<Estimate>,
}

impl Object for RunObject<'_> {
    const KINDS: &'static [&'static str] = &["sim.run"];
}

/// The use of 0-RTT in a simulation: counts of all runs, and shares of what was possible, from 0 to 1.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "sim-zero-rtt")]
struct ZeroRttObject {
    /// Short connections.
    short: ResumptionCounts,
    /// All other connections.
    long: ResumptionCounts,
    /// The share of short connections.
    short_share: Option<Estimate>,
    /// The share of long connections.
    long_share: Option<Estimate>,
    /// The share of all connections.
    share: Option<Estimate>,
}

impl<'a> RunObject<'a> {
    /// Creates the object of a summary.
    pub fn new(part: &'a str, summary: &Summary) -> RunObject<'a> {
        let named = |values: &[Option<Estimate>]| {
            let pairs = QUANTILES.iter().zip(values);
            pairs.map(|(q, value)| (format!("p{}", q * 100.0), *value)).collect()
        };
        RunObject {
            part,
            policy: summary.policy,
            servers: summary.servers,
            runs: summary.runs,
            runs_requested: summary.requested,
            first_byte_ratio: named(&summary.first_byte),
            completion_ratio: named(&summary.completion),
            zero_rtt: ZeroRttObject {
                short: summary.short,
                long: summary.long,
                short_share: summary.short_used_share,
                long_share: summary.long_used_share,
                share: summary.used_share,
            },
            busy_share: summary.busy,
            load_ns: summary.load_ms.map(|load| load.scaled(1e6)),
            imbalance: summary.imbalance,
            packets_present: summary.present,
            diverted_share: summary.diverted,
            elapsed_ns: summary.elapsed_s.map(|elapsed| elapsed.scaled(1e9)),
        }
    }
}
