//! The objects `*.status`: what a verb lost, and what it cost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Object, Objects};
use crate::{Cost, Status, Verb, Verdict};

/// The losses and the cost of a verb since the start of the run.
#[derive(Serialize, JsonSchema)]
pub(super) struct StatusObject<'a> {
    #[serde(skip)]
    verb: Verb,
    /// Whether the run is over and these are its final figures.
    last: bool,
    /// The number of results that are missing because dwell could not keep up: samples, epochs, bytes, connections,
    /// batches or events, whichever the verb writes.
    lost: u64,
    /// What dwell itself used.
    cost: Cost,
    /// Totals by name. Each verb has its own names. Where they are not 0, all verbs have `lines_lost`, lines that could not be
    /// written to the file of `--write`, and `store_rows_dropped` and `store_rows_failed`, rows that are missing in the store.
    counters: BTreeMap<&'a str, u64>,
    /// The outcome of `--fail-if`. Null without that option, and before the run is over.
    fail_if: Option<&'a Verdict>,
}

impl Object for StatusObject<'_> {
    const KINDS: &'static [&'static str] = &[
        "rtt.status",
        "response.status",
        "stack.status",
        "run.status",
        "collect.status",
        "lb.status",
        "top.status",
        "agent.status",
        "decap.status",
    ];

    fn kind(&self) -> &'static str {
        Self::KINDS[self.verb as usize]
    }
}

pub(super) fn status(status: &Status, objects: &mut Objects<'_>) {
    let Status { verb, time_ns, last, lost, cost, .. } = *status;
    let counters = status.counters.iter().map(|(name, count)| (&**name, *count)).collect();
    objects.write(time_ns, &StatusObject { verb, last, lost, cost, counters, fail_if: status.verdict.as_ref() });
}
