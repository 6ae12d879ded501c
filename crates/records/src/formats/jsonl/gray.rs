//! Gray failures of a fleet.

use dwell_engine::{baseline::Figure, gray::Component, layers::Direction};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Object, Objects,
    object::{names, names_or_null},
    rounded,
};
use crate::{GrayFailure, shift::figure_name};

/// A gray failure: a host, a path or a service that has become slower than its peers, or loses more. One object when that is
/// noticed, at `time`, and one when it has ended.
#[derive(Serialize, JsonSchema)]
pub(super) struct GrayObject<'a> {
    /// The length of the intervals whose figures are compared.
    interval_ns: u64,
    /// "begin" or "end".
    #[schemars(extend("enum" = ["begin", "end"]))]
    event: &'a str,
    /// Why it ends: it does not differ any more, nothing is known of it any more, it has lasted for a day and is usual now, or
    /// the collector stops. Null if it begins.
    #[schemars(extend("enum" = names_or_null(GrayFailure::REASONS, |name| name)))]
    reason: Option<&'a str>,
    /// How long it has lasted since it was noticed.
    lasted_ns: u64,
    /// What differs.
    #[schemars(extend("enum" = names(GrayFailure::KINDS, |name| name)))]
    subject: &'a str,
    /// The name of the agent on the host that differs. Null unless it is a host.
    agent: Option<&'a str>,
    /// The sending host of the path that differs. Null unless it is a path.
    tx_host: Option<&'a str>,
    /// The receiving host of that path.
    rx_host: Option<&'a str>,
    /// The port of the service that differs. Null unless it is a service.
    port: Option<u16>,
    /// In what it differs: a segment, or the share of bytes that were retransmitted.
    #[schemars(extend("enum" = names(Component::names(), |name| name)))]
    component: &'a str,
    /// "tx" or "rx" of a segment on a host, null of others.
    #[schemars(extend("enum" = names_or_null(Direction::ALL, Direction::name)))]
    direction: Option<&'a str>,
    /// The figure of the times that differs. Null for a share.
    #[schemars(extend("enum" = names_or_null([Figure::Median, Figure::P99], figure_name)))]
    figure: Option<&'a str>,
    /// The median of that figure in the recent intervals. Null for a share, as all times.
    value_ns: Option<u64>,
    /// The median of that figure in the subject's own past. Null for a share.
    past_ns: Option<u64>,
    /// What `past_ns` would be now, had it changed as its peers have.
    expected_ns: Option<u64>,
    /// The median of its peers now.
    peers_ns: Option<u64>,
    /// The median of the share in the recent intervals, from 0 to 1. Null for times, as all shares.
    value_share: Option<f64>,
    /// The median of the share in the subject's own past. Null for times.
    past_share: Option<f64>,
    /// What `past_share` would be now, had it changed as its peers have.
    expected_share: Option<f64>,
    /// The median of its peers now.
    peers_share: Option<f64>,
    /// The number of peers that it was compared with.
    peers: usize,
    /// Of a host that differs by its paths: how many of them do, and how many were compared. Null for others.
    paths: Option<[usize; 2]>,
    /// An upper bound of how often per week chance alone makes such an event, among all subjects of the collector.
    chance_per_week: f64,
}

impl Object for GrayObject<'_> {
    const KINDS: &'static [&'static str] = &["collect.gray"];
}

pub(super) fn failure(failure: &GrayFailure<'_>, objects: &mut Objects<'_>) {
    let (times, shares, [tx_host, rx_host]) = (failure.times(), failure.shares(), failure.path());
    let finding = &failure.event.finding;
    let body = GrayObject {
        interval_ns: failure.interval_ns,
        event: failure.event(),
        reason: failure.reason(),
        lasted_ns: failure.lasted_ns(),
        subject: failure.kind(),
        agent: failure.host(),
        tx_host,
        rx_host,
        port: failure.port(),
        component: failure.component(),
        direction: failure.direction(),
        figure: failure.figure(),
        value_ns: times.map(|times| times.value),
        past_ns: times.map(|times| times.past),
        expected_ns: times.map(|times| times.expected),
        peers_ns: times.map(|times| times.peers),
        value_share: shares.map(|shares| rounded(shares.value)),
        past_share: shares.map(|shares| rounded(shares.past)),
        expected_share: shares.map(|shares| rounded(shares.expected)),
        peers_share: shares.map(|shares| rounded(shares.peers)),
        peers: finding.peers,
        paths: finding.paths,
        chance_per_week: finding.per_week,
    };
    objects.write(Some(failure.time_ns), &body);
}
