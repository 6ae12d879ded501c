//! What a store holds, as one HTML page that needs nothing else: `page.html` with its style and
//! script, and the data as JSON within it. The script draws; all figures are counted here, but
//! for those of several chosen flows, which it adds up.

mod backends;
mod gather;
mod gray;
mod latency;
mod ranking;

use std::net::IpAddr;

use dwell_engine::layers::{Ends, PathSegment};
use serde::Serialize;

pub use gather::Report;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const LATENCY: &str = include_str!("latency.js");
const BACKENDS: &str = include_str!("backends.js");
const GRAY: &str = include_str!("gray.js");
const CHARTS: &str = include_str!("charts.js");
const SCRIPT: &str = include_str!("page.js");

/// The part of a store that a report covers.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Start: intervals that end after this Unix time.
    pub since_ns: Option<i64>,
    /// End: intervals that end at or before this Unix time.
    pub until_ns: Option<i64>,
    /// Flows that have all of these ends.
    pub ends: Vec<FlowEnd>,
    /// Flows of which one end has this port.
    pub port: Option<u16>,
    /// Hosts with these names; all if there are none.
    pub hosts: Vec<String>,
    /// Maximum number of flows that are kept apart: those with most bytes.
    pub most_flows: usize,
    /// Flows that were chosen too, but left out when the store was copied from a server.
    pub left_out: usize,
}

/// An end that a flow may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its port, if it matters.
    pub port: Option<u16>,
}

impl Choice {
    /// True if flows are chosen: then what is known of all flows together says nothing.
    pub fn is_of_flows(&self) -> bool {
        !self.ends.is_empty() || self.port.is_some()
    }

    /// Whether a flow has the ends and the port that were chosen.
    pub fn takes(&self, flow: &Ends) -> bool {
        let ends = [flow.src, flow.dst];
        let has = |wanted: &FlowEnd| {
            ends.iter().any(|end| end.address == wanted.address && wanted.port.is_none_or(|port| end.port == port))
        };
        self.ends.iter().all(has) && self.port.is_none_or(|port| ends.iter().any(|end| end.port == port))
    }
}

/// The data of the page's script. Hosts, flows, places and path segments are referred to by their index in their lists.
#[derive(Debug, Serialize)]
struct Page {
    made: String,
    from_ms: f64,
    to_ms: f64,
    bin_ms: f64,
    hosts: Vec<String>,
    flows: Vec<Flow>,
    /// How many flows there were; of those not in `flows` there are only sums.
    flows_known: usize,
    /// Rows without a flow are of all flows together.
    has_sums: bool,
    segments: Vec<SegmentName>,
    places: Vec<PagePlace>,
    rows: Vec<Row>,
    resent: Vec<Resent>,
    clocks: Vec<Clock>,
    losses: Vec<PageLoss>,
    /// How many losses there were; of those not in `losses` nothing is shown.
    losses_known: u64,
    /// What other verbs than the collector have stored.
    latency: Option<latency::PageLatency>,
    verdicts: Vec<Verdict>,
    /// How many verdicts there were; of those not in `verdicts` nothing is shown.
    verdicts_known: u64,
    backends: backends::PageBackends,
    gray: Vec<gray::PageGray>,
    /// How many gray failures there were; of those not in `gray` nothing is shown.
    gray_known: u64,
}

#[derive(Debug, Serialize)]
struct Flow {
    src: String,
    dst: String,
    /// Both as the receiver sees them, if that is something else.
    #[serde(skip_serializing_if = "is_default")]
    rx: Option<String>,
}

#[derive(Debug, Serialize)]
struct SegmentName {
    name: &'static str,
    direction: Option<&'static str>,
    part_of: Option<usize>,
    /// Whether its time adds up with that of the other path segments.
    adds: bool,
}

/// A host, or the path from one host to another; null where there is no agent.
#[derive(Debug, Serialize)]
struct PagePlace {
    host: Option<usize>,
    tx: Option<usize>,
    rx: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Row {
    place: usize,
    flow: Option<usize>,
    segment: usize,
    count: u64,
    sum_ns: f64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    /// Lower edge and count of each bucket that is not empty, alternately.
    buckets: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    estimated: bool,
    #[serde(skip_serializing_if = "is_default")]
    bound_ns: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    clamped: u64,
    #[serde(skip_serializing_if = "is_default")]
    doubtful: u64,
    #[serde(skip_serializing_if = "is_default")]
    missing: Option<String>,
    /// Index, count, mean and p99 of each time bin that is not empty.
    times: Vec<[u64; 4]>,
}

/// Bytes that TCP sent more than once, which are in no row.
#[derive(Debug, Serialize)]
struct Resent {
    place: usize,
    count: u64,
    mean_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Clock {
    host: String,
    bound_ns: u64,
    steps: u64,
    method: String,
}

/// A time of which measurements of a host are missing.
#[derive(Debug, Serialize)]
struct PageLoss {
    host: String,
    from_ms: Option<f64>,
    to_ms: Option<f64>,
    /// Null if it is not known how many.
    batches: Option<u64>,
    /// The reason as in the store's table `lost`, or `silent`: there are no intervals.
    why: String,
}

/// What `dwell why` said.
#[derive(Debug, Serialize)]
struct Verdict {
    time_ms: f64,
    host: Option<String>,
    target: String,
    outcome: String,
    cause: Option<String>,
    certainty: Option<String>,
    sentence: String,
    /// As in JSON Lines.
    parts: serde_json::Value,
    facts: serde_json::Value,
    remedies: serde_json::Value,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn segment_names() -> Vec<SegmentName> {
    let place = |segment: PathSegment| PathSegment::ALL.iter().position(|other| *other == segment);
    let name = |segment: PathSegment| SegmentName {
        name: segment.name(),
        direction: segment.direction().map(|direction| direction.name()),
        part_of: segment.part_of().and_then(place),
        adds: segment.is_addend(),
    };
    PathSegment::ALL.map(name).into()
}

impl Page {
    /// Names come from other hosts: within the page they are data, of which nothing can end
    /// the element that holds it.
    fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("plain data becomes JSON");
        let data = data.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
        let mut page = String::with_capacity(data.len() + 65_536);
        let mut rest = PAGE;
        for (mark, content) in [
            ("/* style */", STYLE),
            ("/* data */", &data),
            ("/* charts */", CHARTS),
            ("/* latency */", LATENCY),
            ("/* backends */", BACKENDS),
            ("/* gray */", GRAY),
            ("/* script */", SCRIPT),
        ] {
            let (before, after) = rest.split_once(mark).expect("a mark of the page");
            page.push_str(before);
            page.push_str(content);
            rest = after;
        }
        page.push_str(rest);
        page
    }
}

#[cfg(test)]
mod tests;
