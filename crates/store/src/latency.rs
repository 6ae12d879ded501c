//! Rows of what verbs other than the collector measure: latencies of flows and groups, and verdicts of `dwell why`.

use std::sync::LazyLock;

use dwell_records::{EstimateObject, FlowObject, Format, Jsonl, LatencyLine, NamesObject, Record, Source, Why};
use rusqlite::types::Value;
use serde_json::Value as Json;

use crate::columns::{
    Cell,
    Column::{AnyFlow, Host, Names, Plain},
    FIGURES_IF_KNOWN, FlowEnds, Row, Table, host, optional, plain, signed, signed_sum, text,
};

pub(crate) static LATENCIES: LazyLock<Table> = LazyLock::new(|| {
    let head = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "Nullable(UInt64)"),
        Host("host", "Nullable(String)"),
        Plain("type", "String"),
        Plain("what", "String"),
        AnyFlow,
        Names,
        Plain("interface", "Nullable(String)"),
        Plain("tunnel", "Nullable(String)"),
        Plain("echo_id", "Nullable(UInt16)"),
        Plain("prefix", "Nullable(String)"),
        Plain("prefix_name", "Nullable(String)"),
        Plain("flow_key", "Nullable(String)"),
        Plain("key_id", "Nullable(UInt32)"),
        Plain("method", "Nullable(String)"),
    ];
    let tail = [
        Plain("low_ns", "Nullable(UInt64)"),
        Plain("high_ns", "Nullable(UInt64)"),
        Plain("p99_low_ns", "Nullable(UInt64)"),
        Plain("p99_high_ns", "Nullable(UInt64)"),
        Plain("confidence", "Nullable(Float64)"),
        Plain("valid", "Nullable(UInt8)"),
        Plain("reason", "Nullable(String)"),
    ];
    Table::new("latencies", "latency", &[&head, FIGURES_IF_KNOWN, &tail])
});

/// Returns the row of a line. `time_ns` is in Unix time.
pub(crate) fn latency_row<'a>(time_ns: i64, source: &'a Source, line: LatencyLine<'_>) -> Row<'a> {
    let LatencyLine { latency, histogram, .. } = line;
    let number = |value: Option<u64>| Cell::Plain(optional(value.map(signed)));
    let small = |value: Option<u32>| Cell::Plain(optional(value));
    let mut cells = vec![
        plain(time_ns),
        number(line.interval_ns),
        host(source.host.as_deref()),
        text(Some(line.kind)),
        text(Some(line.what)),
        Cell::AnyFlow(line.flow.as_ref().map(|flow| Box::new(flow_ends(flow)))),
        Cell::Names(names(line.flow.and_then(|flow| flow.names), line.pid)),
        text(line.interface.as_deref()),
        text(line.tunnel.as_deref()),
        small(line.echo_id.map(u32::from)),
        text(line.prefix.as_deref()),
        text(line.prefix_name),
        text(line.flow_key),
        small(line.key_id),
        text(latency.method.as_deref()),
        number(latency.count),
        Cell::Plain(optional(histogram.map(signed_sum))),
    ];
    let figures = [
        latency.mean_ns,
        latency.min_ns,
        latency.max_ns,
        latency.p50_ns,
        latency.p90_ns,
        latency.p95_ns,
        latency.p99_ns,
        latency.p99_9_ns,
    ];
    cells.extend(figures.map(number));
    cells.push(Cell::Plain(optional(histogram.map(|histogram| histogram.to_bytes()))));
    let estimate = latency.estimate.as_ref();
    let bound = |of: fn(&EstimateObject) -> Option<u64>| number(estimate.and_then(of));
    cells.extend([
        bound(|estimate| estimate.low_ns),
        bound(|estimate| estimate.high_ns),
        bound(|estimate| estimate.p99_low_ns),
        bound(|estimate| estimate.p99_high_ns),
        Cell::Plain(optional(estimate.and_then(|estimate| estimate.confidence))),
        Cell::Plain(optional(estimate.map(|estimate| estimate.valid))),
        text(estimate.and_then(|estimate| estimate.reason.as_deref())),
    ]);
    Row { table: &LATENCIES, time_ns, owner: None, cells }
}

fn flow_ends(flow: &FlowObject) -> FlowEnds {
    FlowEnds {
        src: (flow.src, flow.sport),
        dst: (flow.dst, flow.dport),
        protocol: flow.protocol,
        has_id: flow.id.is_some(),
    }
}

/// Returns the names of a flow, to which a process belongs that may be known without them.
fn names(names: Option<NamesObject>, pid: Option<u32>) -> Option<Box<NamesObject>> {
    let mut names = match (names, pid) {
        (None, None) => return None,
        (names, _) => names.unwrap_or_default(),
    };
    names.src.pid = names.src.pid.or(pid);
    Some(Box::new(names))
}

/// The columns of a verdict that are keys of its object in JSON Lines, with the same values.
const VERDICT: [(&str, &str); 13] = [
    ("target", "String"),
    ("outcome", "String"),
    ("cause", "Nullable(String)"),
    ("certainty", "Nullable(String)"),
    ("sentence", "String"),
    ("observed_ns", "UInt64"),
    ("connections", "UInt64"),
    ("active_ns", "UInt64"),
    ("causes", "String"),
    ("parts", "String"),
    ("facts", "String"),
    ("unseen", "String"),
    ("remedies", "String"),
];

pub(crate) static VERDICTS: LazyLock<Table> = LazyLock::new(|| {
    let head = [Plain("time_ns", "Int64"), Host("host", "Nullable(String)")];
    Table::new("verdicts", "verdict", &[&head, &VERDICT.map(|(name, kind)| Plain(name, kind))])
});

/// Returns the row of a verdict. `time_ns` is in Unix time.
pub(crate) fn verdict_row<'a>(time_ns: i64, source: &'a Source, why: &Why<'_>) -> Row<'a> {
    let mut line = Vec::new();
    Jsonl::default().write(&Record::Why(why), source, &mut line);
    let object: Json = serde_json::from_slice(&line).expect("JSON Lines are JSON");
    let value = |name: &str| match &object[name] {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.clone()),
        Json::Number(number) => optional(number.as_u64().map(signed)),
        list => Value::Text(list.to_string()),
    };
    let mut cells = vec![plain(time_ns), host(source.host.as_deref())];
    cells.extend(VERDICT.map(|(name, _)| Cell::Plain(value(name))));
    Row { table: &VERDICTS, time_ns, owner: None, cells }
}
