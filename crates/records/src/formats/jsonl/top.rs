//! Objects of `dwell top`.

use std::{borrow::Cow, net::IpAddr};

use dwell_engine::top::{Metric, RowKey, View};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    FlowObject, Object, Objects,
    flow::{NetworkObject, PodObject},
    object::names,
};
use crate::{Top, TopRow};

/// A row of the screen in an interval: one flow, or all flows of a peer, a prefix, a process or a unit.
#[derive(Serialize, JsonSchema)]
pub(super) struct RowObject<'a> {
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// What the row stands for.
    #[schemars(extend("enum" = names(View::ALL, View::name)))]
    view: &'a str,
    /// The place of the row, from 1, the worst.
    rank: u64,
    /// What the rows are ranked by.
    #[schemars(extend("enum" = names(Metric::ALL, Metric::name)))]
    rank_by: &'a str,
    /// The flow, from the end in this host. Null for several flows.
    flow: Option<FlowObject>,
    /// The address at the other end. Null for flows of several peers.
    peer: Option<IpAddr>,
    /// The name of that address in /etc/hosts, by an answer of DNS, or with `--resolve` by a reverse look-up. Null where it has
    /// none, or with `--no-names`.
    peer_name: Option<&'a str>,
    /// The network of that address, by the files of `--as-file`. The key is missing where they do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_network: Option<NetworkObject>,
    /// The prefix of such addresses. Null unless rows stand for prefixes.
    prefix: Option<Cow<'a, str>>,
    /// The process that has the flow. Null where it is not known, and for flows of several processes.
    pid: Option<u32>,
    /// The name of that process. Null where it is not known, or with `--no-names`.
    process: Option<&'a str>,
    /// The unit of systemd of the process or processes, or the first 12 digits of their container's ID. Null where there is none,
    /// where it is not known, for flows of several units, and, unless rows stand for units, with `--no-names`.
    unit: Option<&'a str>,
    /// The pod of Kubernetes of the process or processes, without a container of several. The key is missing where they are in
    /// none, and, unless rows stand for units, with `--no-names`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<PodObject>,
    /// The name of the server's port in /etc/services. Null where it has none, or with `--no-names`.
    service: Option<&'a str>,
    /// The number of flows.
    flows: u64,
    /// The round trip in the interval; of several flows the mean. Null if nothing was acknowledged.
    rtt_ns: Option<u64>,
    /// The last round trip that was measured, maybe before the interval. Null for several flows.
    last_rtt_ns: Option<u64>,
    /// How long the server took to respond; of several flows the mean.
    response_ns: Option<u64>,
    /// How long the server took or has taken so far, where no mean is believed: an estimate that is not, the most that it can be, or at
    /// least how long the last request has waited, whichever is longest; of several flows the mean. Rows are ranked by it where there is no `response_ns`.
    doubted_response_ns: Option<u64>,
    /// How long bytes waited in the send buffer; of several flows the mean.
    send_buffer_ns: Option<u64>,
    /// Segments with data that were sent, including those sent again.
    segments_sent: Option<u64>,
    /// Segments that were sent again.
    retransmitted: Option<u64>,
    /// Acknowledged bits per second.
    sent_bps: Option<u64>,
    /// Received bits per second.
    received_bps: Option<u64>,
    /// Bits per second in both directions.
    rate_bps: Option<u64>,
}

impl Object for RowObject<'_> {
    const KINDS: &'static [&'static str] = &["top.row"];
}

/// Writes one object per row.
pub(super) fn rows(top: &Top<'_>, objects: &mut Objects<'_>) {
    for (rank, row) in (1..).zip(top.rows) {
        objects.write(Some(top.end_ns), &object(top, rank, row));
    }
}

fn object<'a>(top: &Top<'a>, rank: u64, named: &'a TopRow) -> RowObject<'a> {
    let TopRow { row, names, .. } = named;
    let (mut flow, mut peer, mut prefix) = (None, None, None);
    match &row.key {
        RowKey::Flow(key) => {
            let ends = &key.ends;
            flow = Some(FlowObject::new(&ends.src, &ends.dst, key.protocol, names.src_role).named(Some(names)));
            peer = Some(ends.dst.address);
        }
        RowKey::Peer(address) => peer = Some(*address),
        RowKey::Prefix(found) => prefix = Some(found.to_string().into()),
        RowKey::Process(_) | RowKey::Unit(_) => {}
    }
    let figures = &row.figures;
    RowObject {
        interval_ns: top.length_ns,
        view: top.view.name(),
        rank,
        rank_by: top.by.name(),
        flow,
        peer,
        peer_name: names.dst.host.as_deref(),
        peer_network: names.dst.network.as_ref().map(NetworkObject::from),
        prefix,
        pid: row.pid,
        process: names.src.process.as_deref(),
        unit: names.src.unit.as_deref(),
        pod: names.src.pod.as_deref().map(PodObject::from),
        service: names.service.as_deref(),
        flows: row.flows,
        rtt_ns: figures.rtt_ns,
        last_rtt_ns: row.last_rtt_ns,
        response_ns: figures.response_ns,
        doubted_response_ns: figures.doubted_response_ns,
        send_buffer_ns: figures.send_buffer_ns,
        segments_sent: figures.segments_sent,
        retransmitted: figures.retransmissions,
        sent_bps: figures.sent_bps,
        received_bps: figures.received_bps,
        rate_bps: figures.rate_bps,
    }
}
