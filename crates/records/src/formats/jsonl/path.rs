//! Objects of `dwell collect`.

use dwell_engine::layers::{Direction, FlowJoin, PathSegment};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    FlowObject, LatencyObject, Object, Objects,
    object::{names, names_or_null},
    rounded,
};
use crate::{AgentEvent, PathTable};

/// The method of times from the stamps of both hosts. The store has estimates too.
const MATCHED: &str = "matched";

/// The time on one segment of the path between two hosts in an interval, of bytes that were seen on both. All segments
/// of one interval, pair and flow are of the same bytes.
#[derive(Serialize, JsonSchema)]
pub(super) struct PathObject<'a> {
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// The host that sent the bytes.
    tx_host: &'a str,
    /// The host that received them.
    rx_host: &'a str,
    /// The direction of a connection, from the sender to the receiver of the bytes, with the addresses that the sender sees.
    /// Null for all flows together.
    flow: Option<FlowObject>,
    /// The direction of the connection, with the addresses that the receiver sees. Null where they are those of `flow`,
    /// and for all flows together.
    rx_flow: Option<FlowObject>,
    /// By what the flows of both hosts are known to be one: "address", or "sequence" where addresses are translated between the
    /// hosts. Null for all flows together.
    #[schemars(extend("enum" = names_or_null(FlowJoin::ALL, FlowJoin::name)))]
    joined: Option<&'static str>,
    /// Whether the figures are of bytes that TCP sent more than once, which are kept apart.
    retransmitted: bool,
    /// The name of the segment.
    #[schemars(extend("enum" = names(PathSegment::ALL, PathSegment::name)))]
    segment: &'a str,
    /// "tx" on the sending host, "rx" on the receiving host, null between them.
    #[schemars(extend("enum" = names_or_null(Direction::ALL, Direction::name)))]
    direction: Option<&'a str>,
    /// The segment that contains this one. Null for those that are not part of another.
    part_of: Option<&'a str>,
    /// The time on the segment.
    latency: LatencyObject,
    /// The share of the segment in the time from end to end, from 0 to 1.
    share: Option<f64>,
    /// The greatest error of times between the two hosts, because their clocks are only known that well.
    bound_ns: u64,
    /// Bytes whose time between the hosts was negative within that error, and is counted as 0.
    clamped: u64,
    /// Bytes whose time between the hosts may be wrong by more than `--max-clock-error`.
    doubtful: u64,
}

impl Object for PathObject<'_> {
    const KINDS: &'static [&'static str] = &["collect.segment"];
}

/// An agent that comes to the collector, or leaves it, at `time`.
#[derive(Serialize, JsonSchema)]
pub(super) struct AgentObject<'a> {
    /// The name of the agent.
    agent: &'a str,
    /// "join" or "leave".
    #[schemars(extend("enum" = ["join", "leave"]))]
    event: &'a str,
    /// The address and port that it connected from.
    address: String,
    /// Whether it brings what an earlier run has left, before it comes as itself.
    past: bool,
    /// Why it left. Null if it joins.
    reason: Option<&'a str>,
}

impl Object for AgentObject<'_> {
    const KINDS: &'static [&'static str] = &["collect.agent"];
}

pub(super) fn agent(event: &AgentEvent<'_>, objects: &mut Objects<'_>) {
    let body = AgentObject {
        agent: event.agent,
        event: if event.left.is_some() { "leave" } else { "join" },
        address: event.address.to_string(),
        past: event.is_past,
        reason: event.left,
    };
    objects.write(Some(event.time_ns), &body);
}

/// Writes one object per segment of the path.
pub(super) fn interval(table: &PathTable<'_>, objects: &mut Objects<'_>) {
    for segment in PathSegment::ALL {
        let body = PathObject {
            interval_ns: table.length_ns,
            tx_host: table.tx_host,
            rx_host: table.rx_host,
            flow: table.flow.as_ref().map(|ends| objects.tcp(ends)),
            rx_flow: table.rx_flow.as_ref().map(|ends| objects.tcp(ends)),
            joined: table.flow.map(|_| FlowJoin::of(table.rx_flow).name()),
            retransmitted: table.resent,
            segment: segment.name(),
            direction: segment.direction().map(|direction| direction.name()),
            part_of: segment.part_of().map(PathSegment::name),
            latency: LatencyObject::new(Some(MATCHED), table.path.segment(segment)),
            share: table.share(segment).map(rounded),
            bound_ns: table.path.bound_ns,
            clamped: table.path.clamped,
            doubtful: table.path.doubtful,
        };
        objects.write(Some(table.end_ns), &body);
    }
}
