//! Objects of `dwell response`.

use std::{borrow::Cow, collections::BTreeMap};

use dwell_engine::{
    response::{Key, Method, Truth},
    roles::Role,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    EstimateObject, FlowObject, LatencyObject, Object, Objects,
    object::{names, names_or_null},
};
use crate::{Mode, Response, ResponseSummary, ResponsesOf, Source};

/// An epoch of a flow, which ended at `time`, and the estimate of its response latency.
#[derive(Serialize, JsonSchema)]
pub(super) struct EpochObject<'a> {
    /// The interface of the flow: a name, or else a number. Null where a capture does not record it.
    interface: Option<Cow<'a, str>>,
    /// The length of the epoch.
    interval_ns: u64,
    /// The flow, from the client to the server.
    flow: FlowObject,
    /// The key that identifies a flow.
    #[schemars(extend("enum" = names(Key::ALL.into_iter().filter(|key| *key != Key::Auto), Key::name)))]
    key: &'a str,
    /// The security parameter index of ESP, the receiver index of WireGuard, or a number of the QUIC connection that
    /// survives changes of its addresses. Null for other keys.
    key_id: Option<u32>,
    /// What encloses the client's packets, as in "vlan 7". Null if nothing does.
    tunnel: Option<String>,
    /// Packets of the client in the epoch.
    packets: u32,
    /// The response latency. `count` is the number of responses or batches behind the mean; percentiles are of single
    /// answers, also of those that took longer than `idle-gap`, and null where they are longer or the method does not know
    /// them.
    latency: LatencyObject,
    /// Answers that took longer than `idle-gap`, which are not in the mean. Null if there is no estimate, or if its method does
    /// not know single answers.
    over_long: Option<u32>,
    /// Requests whose connection ended without an answer, at most 3. Null as `over_long`.
    unanswered: Option<u32>,
    /// Which latencies the estimate is the mean of: "all" responses, or those that are "causal", after which the client
    /// sent its next request.
    #[schemars(extend("enum" = names_or_null(Truth::ALL, Truth::name)))]
    truth: Option<&'a str>,
    /// The mean gap between batches of packets, where the method knows it.
    batch_gap_ns: Option<u64>,
    /// The modes of the gaps between packets. Null unless `--set show-modes=true` is given.
    modes: Option<Vec<Mode>>,
}

impl Object for EpochObject<'_> {
    const KINDS: &'static [&'static str] = &["response.epoch"];
}

/// The responses of a flow, a server or a prefix of servers in the whole run, whose last epoch ended at `time`, with `--summary`.
#[derive(Serialize, JsonSchema)]
pub(super) struct SummaryObject<'a> {
    /// The interface of the flow: a name, or else a number. Null for servers and prefixes, and where a capture does not record it.
    interface: Option<Cow<'a, str>>,
    #[serde(flatten)]
    of: &'a ResponsesOf,
    /// The time from the beginning of the first epoch to the end of the last.
    interval_ns: u64,
    /// The epochs of the flow, server or prefix.
    epochs: u64,
    /// Epochs with a valid estimate.
    valid_epochs: u64,
    /// The responses of valid epochs, each with its own latency or, where the method does not know that, with the mean of its epoch.
    latency: LatencyObject,
    /// Epochs without a valid estimate, by reason.
    reasons: &'a BTreeMap<String, u64>,
}

impl Object for SummaryObject<'_> {
    const KINDS: &'static [&'static str] = &["response.summary"];
}

/// Writes one object per line.
pub(super) fn summary(summary: &ResponseSummary<'_>, objects: &mut Objects<'_>) {
    for line in summary.lines {
        let body = SummaryObject {
            interface: line.interface.and_then(|interface| objects.source.interfaces.label(interface)),
            of: line.of,
            interval_ns: line.last_ns.saturating_sub(line.first_ns),
            epochs: line.epochs,
            valid_epochs: line.valid,
            latency: line.latency(),
            reasons: line.reasons,
        };
        objects.write(Some(line.last_ns), &body);
    }
}

pub(super) fn epoch(response: &Response<'_>, objects: &mut Objects<'_>) {
    let record = response.record;
    let knows_singles = response.method == Some(Method::Turns.name()) || record.epoch.overlong > 0;
    let body = EpochObject {
        interface: objects.source.interfaces.label(record.interface),
        interval_ns: record.epoch.epoch_ns,
        flow: response.flow(objects.source),
        key: record.key.name(),
        key_id: record.id,
        tunnel: record.tunnel.label(),
        packets: record.epoch.packets,
        latency: response.latency(),
        over_long: knows_singles.then_some(record.epoch.overlong.into()),
        unanswered: knows_singles.then_some(record.epoch.unanswered.into()),
        truth: response.truth,
        batch_gap_ns: response.ibg_ns,
        modes: response.show_modes.then(|| response.modes().collect()),
    };
    objects.write(Some(response.end_ns()), &body);
}

impl Response<'_> {
    /// Returns the flow, from the client to the server.
    pub fn flow(&self, source: &Source) -> FlowObject {
        let (record, client) = (self.record, Some(Role::Client));
        let flow = match record.key.has_ports() {
            true => FlowObject::new(&record.src, &record.dst, record.protocol, client),
            false => FlowObject::without_ports(record.src.address, record.dst.address, record.protocol, client),
        };
        flow.named(source.names(&record.src, &record.dst, record.protocol).as_ref())
    }

    /// Returns what is known of the response latency.
    pub(crate) fn latency(&self) -> LatencyObject {
        let quantile = |index: usize| self.percentiles.map(|percentiles| percentiles[index]);
        LatencyObject {
            method: self.method.map(Cow::Borrowed),
            count: Some(self.batches),
            mean_ns: self.response_ns,
            p50_ns: quantile(0).and_then(|p50| p50.ns),
            p90_ns: quantile(1).and_then(|p90| p90.ns),
            p95_ns: quantile(2).and_then(|p95| p95.ns),
            p99_ns: quantile(3).and_then(|p99| p99.ns),
            estimate: Some(EstimateObject {
                p99_low_ns: quantile(3).map(|p99| p99.least_ns),
                p99_high_ns: quantile(3).and_then(|p99| p99.most_ns),
                confidence: Some((self.confidence * 1000.0).round() / 1000.0),
                valid: self.is_valid(),
                reason: self.reason.map(Cow::Borrowed),
                ..EstimateObject::default()
            }),
            ..LatencyObject::default()
        }
    }
}
