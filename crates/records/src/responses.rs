//! The summary of `dwell response`.

use std::collections::BTreeMap;

use dwell_engine::histogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{FlowObject, LatencyObject, formats::EstimateObject};

/// The responses of a run by flow, server or prefix.
#[derive(Debug, Clone, Copy)]
pub struct ResponseSummary<'a> {
    /// What a line is about: "flow", "server" or "prefix of servers".
    pub about: &'static str,
    /// Its lines, in the order in which they are written.
    pub lines: &'a [ResponseLine<'a>],
    /// Lines that are left out because of `--top`.
    pub cut: usize,
    /// Epochs of others, for which there was no line left.
    pub other: u64,
}

/// The responses of a flow, server or prefix in a run.
#[derive(Debug, Clone)]
pub struct ResponseLine<'a> {
    /// Its name for people.
    pub name: &'a str,
    /// The interface of a flow.
    pub interface: Option<u32>,
    /// What it is of.
    pub of: &'a ResponsesOf,
    /// The beginning of its first epoch on the source's clock.
    pub first_ns: u64,
    /// The end of its last epoch.
    pub last_ns: u64,
    /// The number of its epochs.
    pub epochs: u64,
    /// Of these, the ones with a valid estimate.
    pub valid: u64,
    /// The responses of valid epochs, each with its own latency or, where the method does not know that, with the mean of its epoch.
    pub responses: &'a Histogram,
    /// The least and the most that the 99th percentile of the responses can be, each if it is known.
    pub p99_bounds_ns: (Option<u64>, Option<u64>),
    /// Epochs without a valid estimate, by reason.
    pub reasons: &'a BTreeMap<String, u64>,
}

/// What responses are of: one of `flow`, `server` and `prefix` is not null.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ResponsesOf {
    /// The flow, from the client to the server.
    pub flow: Option<FlowObject>,
    /// The server's address, with `--summary=server`.
    pub server: Option<std::net::IpAddr>,
    /// The server's port, with `--summary=server`.
    pub port: Option<u16>,
    /// The transport protocol, with `--summary=server`.
    pub proto: Option<String>,
    /// The addresses of the servers, as in "192.0.2.0/24", with `--summary=prefix`.
    pub prefix: Option<String>,
}

impl ResponseLine<'_> {
    /// What is known of the latency of its responses.
    pub(crate) fn latency(&self) -> LatencyObject {
        let (p99_low_ns, p99_high_ns) = self.p99_bounds_ns;
        let reason = if self.valid > 0 { None } else { self.commonest_reason() };
        LatencyObject {
            estimate: Some(EstimateObject {
                p99_low_ns,
                p99_high_ns,
                valid: self.valid > 0,
                reason: reason.map(|(reason, _)| reason.to_owned().into()),
                ..EstimateObject::default()
            }),
            ..LatencyObject::new(None, self.responses)
        }
    }

    /// The reason that most epochs have for which there is no valid estimate, with their number.
    pub(crate) fn commonest_reason(&self) -> Option<(&str, u64)> {
        let commonest = self.reasons.iter().max_by_key(|(_, epochs)| **epochs);
        commonest.map(|(reason, epochs)| (reason.as_str(), *epochs))
    }
}
