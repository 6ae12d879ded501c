//! The latencies of records, a line for each: what a table holds of them.
//!
//! Each line has the figures that one object of JSON Lines has under one of its keys. Sums over all connections are in no
//! line: the lines of connections give them.

use std::borrow::Cow;

use dwell_engine::{
    histogram::Histogram,
    top::{Metric, RowKey},
};

use crate::{
    FlowObject, Interval, LatencyObject, Record, Response, SocketEnd, SocketOrder, Sockets, Source, Summary, Top,
    formats::{socket_latencies, total_latencies},
};

/// The latencies of a flow, or of a group of flows, in an interval or a run.
#[derive(Debug, Clone)]
pub struct LatencyLine<'a> {
    /// The end of the interval, or the last moment of the run, on the source's clock. `None` where it is unknown.
    pub time_ns: Option<u64>,
    /// The length of the interval, or how long a connection was watched; `None` for another run.
    pub interval_ns: Option<u64>,
    /// The type of the object of JSON Lines that has the same figures.
    pub kind: &'static str,
    /// The key of the figures in that object.
    pub what: &'static str,
    /// The flow; `None` for a group, and for flows that are not kept apart.
    pub flow: Option<FlowObject>,
    /// The process at the end `src`, where it is known without the names of the flow.
    pub pid: Option<u32>,
    /// The interface: a name, or else a number.
    pub interface: Option<Cow<'a, str>>,
    /// What encloses the packets.
    pub tunnel: Option<String>,
    /// The identifier of an ICMP echo.
    pub echo_id: Option<u16>,
    /// The addresses of the group.
    pub prefix: Option<String>,
    /// The name of that prefix.
    pub prefix_name: Option<&'a str>,
    /// What tells flows apart.
    pub flow_key: Option<&'static str>,
    /// The number that tells flows apart where ports do not.
    pub key_id: Option<u32>,
    /// The figures of the latencies.
    pub latency: LatencyObject,
    /// Their distribution; `None` where it is unknown.
    pub histogram: Option<&'a Histogram>,
}

impl LatencyLine<'_> {
    /// Returns a latency of nothing in particular: what it is of is added to it.
    pub fn new(kind: &'static str, what: &'static str, latency: LatencyObject) -> LatencyLine<'static> {
        LatencyLine {
            time_ns: None,
            interval_ns: None,
            kind,
            what,
            flow: None,
            pid: None,
            interface: None,
            tunnel: None,
            echo_id: None,
            prefix: None,
            prefix_name: None,
            flow_key: None,
            key_id: None,
            latency,
            histogram: None,
        }
    }
}

/// The key of the figures of all verbs but `dwell run`.
const LATENCY: &str = "latency";

/// Calls `each` with the lines of a record. Single round trips, segments of hosts and what is no latency have none.
pub fn latencies<'a>(record: &Record<'a>, source: &'a Source, each: &mut dyn FnMut(LatencyLine<'a>)) {
    match record {
        Record::Interval(interval) => groups(interval, source, each),
        Record::Summary(summary) => flows(summary, "rtt.summary", None, source, each),
        Record::Response(response) => each(epoch(response, source)),
        Record::Sockets(sockets) => connections(sockets, source, each),
        Record::SocketEnd(end) => run(end, source, each),
        Record::Top(top) => rows(top, each),
        Record::Sample(_)
        | Record::Flow(_)
        | Record::Status(_)
        | Record::ResponseSummary(_)
        | Record::Stack(_)
        | Record::ByteTrace(_)
        | Record::Path(_)
        | Record::Agent(_)
        | Record::Gray(_)
        | Record::Shift(_)
        | Record::Why(_) => {}
    }
}

/// Calls `each` with the lines of the single round trips of an interval, which ended at `end_ns`.
pub fn sample_latencies<'a>(
    samples: &'a Summary,
    (end_ns, length_ns): (u64, u64),
    source: &'a Source,
    each: &mut dyn FnMut(LatencyLine<'a>),
) {
    flows(samples, "rtt.sample", Some((end_ns, length_ns)), source, each);
}

/// The mean times of the flows of a screen.
fn rows<'a>(top: &Top<'a>, each: &mut dyn FnMut(LatencyLine<'a>)) {
    let times = [("rtt_ns", Metric::Rtt), ("response_ns", Metric::Response), ("send_buffer_ns", Metric::SendBuffer)];
    for row in top.rows {
        let RowKey::Flow(flow) = &row.row.key else { continue };
        let known = times.into_iter().filter_map(|(what, metric)| Some((what, row.row.figures.value(metric)?)));
        for (what, mean_ns) in known {
            let object = FlowObject::new(&flow.ends.src, &flow.ends.dst, flow.protocol, None);
            let latency = LatencyObject { mean_ns: Some(mean_ns), ..LatencyObject::default() };
            each(LatencyLine {
                time_ns: Some(top.end_ns),
                interval_ns: Some(top.length_ns),
                flow: Some(object.named(Some(&row.names))),
                pid: row.row.pid,
                ..LatencyLine::new("top.row", what, latency)
            });
        }
    }
}

fn groups<'a>(interval: &Interval<'a>, source: &'a Source, each: &mut dyn FnMut(LatencyLine<'a>)) {
    for group in interval.ordered() {
        let key = group.key.as_ref();
        let histogram = &group.figures.histogram;
        each(LatencyLine {
            time_ns: Some(interval.end_ns),
            interval_ns: Some(interval.length_ns),
            interface: key.and_then(|key| source.interfaces.label(key.interface)),
            tunnel: key.and_then(|key| key.tunnel.label()),
            prefix: key.map(|key| key.prefix.to_string()),
            prefix_name: key.and_then(|key| source.prefixes.name(&key.prefix)),
            histogram: Some(histogram),
            ..LatencyLine::new(
                "rtt.aggregate",
                LATENCY,
                LatencyObject::new(key.map(|key| key.method.name()), histogram),
            )
        });
    }
}

/// The distributions of a run, or of an interval, by flow and method.
fn flows<'a>(
    summary: &'a Summary,
    kind: &'static str,
    interval: Option<(u64, u64)>,
    source: &'a Source,
    each: &mut dyn FnMut(LatencyLine<'a>),
) {
    let interval_ns = interval.map(|(_, length_ns)| length_ns);
    for flow in summary.flows() {
        let key = flow.key;
        let histogram = &flow.figures.histogram;
        each(LatencyLine {
            time_ns: Some(interval.map_or(flow.last_ns, |(end_ns, _)| end_ns)),
            interval_ns,
            flow: Some(FlowObject::of_source(&key.src, &key.dst, key.protocol, flow.src_role, source)),
            interface: source.interfaces.label(key.interface),
            tunnel: key.tunnel.label(),
            echo_id: key.protocol.is_icmp().then_some(key.src.port),
            histogram: Some(histogram),
            ..LatencyLine::new(kind, LATENCY, LatencyObject::new(Some(key.method.name()), histogram))
        });
    }
    for (method, other) in summary.other() {
        each(LatencyLine {
            time_ns: interval.map(|(end_ns, _)| end_ns),
            interval_ns,
            histogram: Some(&other.histogram),
            ..LatencyLine::new(kind, LATENCY, LatencyObject::new(Some(method.name()), &other.histogram))
        });
    }
}

fn epoch<'a>(response: &Response<'a>, source: &'a Source) -> LatencyLine<'a> {
    let record = response.record;
    LatencyLine {
        time_ns: Some(response.end_ns()),
        interval_ns: Some(record.epoch.epoch_ns),
        flow: Some(response.flow(source)),
        interface: source.interfaces.label(record.interface),
        tunnel: record.tunnel.label(),
        flow_key: Some(record.key.name()),
        key_id: record.id,
        ..LatencyLine::new("response.epoch", LATENCY, response.latency())
    }
}

fn connections<'a>(sockets: &Sockets<'a>, source: &'a Source, each: &mut dyn FnMut(LatencyLine<'a>)) {
    for socket in sockets.sockets {
        let account = &socket.account;
        for (what, latency) in known(socket_latencies(socket)) {
            each(LatencyLine {
                time_ns: Some(sockets.end_ns),
                interval_ns: Some(sockets.length_ns),
                flow: Some(FlowObject::of_tcp(&account.ends, source)),
                pid: account.pid,
                ..LatencyLine::new("run.socket", what, latency)
            });
        }
    }
}

fn run<'a>(end: &SocketEnd<'a>, source: &'a Source, each: &mut dyn FnMut(LatencyLine<'a>)) {
    for line in end.summary.lines(SocketOrder::default(), usize::MAX) {
        let account = &line.last;
        for (what, latency) in known(total_latencies(&line.total, Some(account))) {
            each(LatencyLine {
                time_ns: Some(line.end_ns),
                interval_ns: Some(line.total.length_ns),
                flow: Some(FlowObject::of_tcp(&account.ends, source)),
                pid: account.pid,
                ..LatencyLine::new("run.summary", what, latency)
            });
        }
    }
}

/// Leaves out latencies of which nothing is known.
fn known(all: [(&'static str, LatencyObject); 3]) -> impl Iterator<Item = (&'static str, LatencyObject)> {
    all.into_iter().filter(|(_, latency)| latency.mean_ns.or(latency.min_ns).or(latency.max_ns).is_some())
}
