//! The columns of a store, once for SQLite and for ClickHouse.
//!
//! On a server, and in the views of a file, a row has names and addresses. In the tables of a file (`schema.sql`),
//! hosts, hooks and flows are numbers of rows of their own.

use std::{borrow::Cow, net::IpAddr, sync::LazyLock};

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, FlowJoin, Layer, SegmentHooks},
    measure::{Endpoint, Protocol},
};
use dwell_records::{EndNamesObject, FlowObject, NamesObject};
use rusqlite::types::Value;

use crate::{ClockRow, IntervalRow, LostRow, PathRow, gray::GRAY};

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    /// A value, with its name and its type on a server.
    Plain(&'static str, &'static str),
    /// The name of a host; the number of the host in a file, as `<name>_id`.
    Host(&'static str, &'static str),
    /// The name of a hook; the number of the hook in a file, as `<name>_id`.
    Hook(&'static str, &'static str),
    /// Five columns with the ends of a flow of TCP and its id; one with the number of the flow in a file, as `flow_id`.
    Flow,
    /// The same of a flow as its receiver sees it, with `rx_` before each name.
    RxFlow,
    /// The same of a flow of any protocol, whose name is one more column.
    AnyFlow,
    /// The columns with the names of the ends of a flow; one with their number in a file, as `names_id`.
    Names,
}

/// The value of a column.
#[derive(Debug)]
pub(crate) enum Cell<'a> {
    Plain(Value),
    /// A word of the program's own, of which no copy is made.
    Word(Option<&'static str>),
    Host(Option<Cow<'a, str>>),
    Hook(Option<Cow<'a, str>>),
    Flow(Option<Box<FlowEnds>>),
    AnyFlow(Option<Box<FlowEnds>>),
    Names(Option<Box<NamesObject>>),
}

/// Rows wait in memory for the disk.
const _: () = assert!(size_of::<Cell<'_>>() <= 32);

/// What a flow is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowEnds {
    pub(crate) src: (IpAddr, Option<u16>),
    pub(crate) dst: (IpAddr, Option<u16>),
    pub(crate) protocol: Protocol,
    /// Whether that is enough for an id, and not all between two hosts.
    pub(crate) has_id: bool,
}

impl FlowEnds {
    /// Returns the flow as JSON Lines have it.
    pub(crate) fn object(&self) -> FlowObject {
        let end = |(address, port): (IpAddr, Option<u16>)| Endpoint { address, port: port.unwrap_or_default() };
        match self.src.1 {
            // Echoes of ICMP have no ports, but an id.
            None if !(self.has_id && self.protocol.is_icmp()) => {
                FlowObject::without_ports(self.src.0, self.dst.0, self.protocol, None)
            }
            _ => FlowObject::new(&end(self.src), &end(self.dst), self.protocol, None),
        }
    }
}

impl From<Ends> for FlowEnds {
    fn from(ends: Ends) -> FlowEnds {
        let end = |end: Endpoint| (end.address, Some(end.port));
        FlowEnds { src: end(ends.src), dst: end(ends.dst), protocol: Protocol::TCP, has_id: true }
    }
}

/// A table and how to insert its rows into a file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name on a server, and that of the view in a file, if there is one.
    pub(crate) name: &'static str,
    columns: Vec<Column>,
    /// The statement that inserts a row into the table of a file.
    pub(crate) insert: String,
}

const FLOW: [(&str, &str); 5] = [
    ("src", "Nullable(String)"),
    ("sport", "Nullable(UInt16)"),
    ("dst", "Nullable(String)"),
    ("dport", "Nullable(UInt16)"),
    ("id", "Nullable(String)"),
];

const PROTO: (&str, &str) = ("proto", "Nullable(String)");

const RX_FLOW: [(&str, &str); 5] = [
    ("rx_src", FLOW[0].1),
    ("rx_sport", FLOW[1].1),
    ("rx_dst", FLOW[2].1),
    ("rx_dport", FLOW[3].1),
    ("rx_id", FLOW[4].1),
];

/// The columns of names, in the order of [`name_values`].
pub(crate) const NAMES: [(&str, &str); 13] = [
    ("src_host", "Nullable(String)"),
    ("src_pid", "Nullable(UInt32)"),
    ("src_process", "Nullable(String)"),
    ("src_unit", "Nullable(String)"),
    ("src_pod", "Nullable(String)"),
    ("src_pod_uid", "Nullable(String)"),
    ("dst_host", "Nullable(String)"),
    ("dst_pid", "Nullable(UInt32)"),
    ("dst_process", "Nullable(String)"),
    ("dst_unit", "Nullable(String)"),
    ("dst_pod", "Nullable(String)"),
    ("dst_pod_uid", "Nullable(String)"),
    ("service", "Nullable(String)"),
];

/// Returns the values of the columns of names.
pub(crate) fn name_values(names: Option<&NamesObject>) -> Vec<Value> {
    let of_end = |end: &EndNamesObject| {
        let text = |text: &Option<String>| optional(text.clone());
        let pod = end.pod.as_ref();
        let name = pod.and_then(|pod| {
            let name = [Some(pod.namespace.as_deref()?), Some(pod.name.as_deref()?), pod.container.as_deref()];
            Some(name.into_iter().flatten().collect::<Vec<_>>().join("/"))
        });
        let uid = pod.map(|pod| pod.uid.clone());
        [text(&end.host), optional(end.pid), text(&end.process), text(&end.unit), optional(name), optional(uid)]
    };
    match names {
        None => vec![Value::Null; NAMES.len()],
        Some(names) => {
            let ends = [of_end(&names.src), of_end(&names.dst)].into_iter().flatten();
            ends.chain([optional(names.service.clone())]).collect()
        }
    }
}

impl Table {
    pub(crate) fn new(name: &'static str, file_name: &str, columns: &[&[Column]]) -> Table {
        let columns = columns.concat();
        let names = columns.iter().map(|column| match column {
            Column::Plain(name, _) => (*name).to_owned(),
            Column::Host(name, _) | Column::Hook(name, _) => format!("{name}_id"),
            Column::Flow | Column::AnyFlow => "flow_id".to_owned(),
            Column::RxFlow => "rx_flow_id".to_owned(),
            Column::Names => "names_id".to_owned(),
        });
        let names: Vec<_> = names.collect();
        let marks = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT INTO {file_name} ({}) VALUES ({marks})", names.join(", "));
        Table { name, columns, insert }
    }

    /// The columns, in the order in which rows have cells.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the names and types of the columns on a server.
    pub(crate) fn server_columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns.iter().flat_map(|column| match column {
            Column::Plain(name, kind) | Column::Host(name, kind) | Column::Hook(name, kind) => vec![(*name, *kind)],
            Column::Flow => FLOW.to_vec(),
            Column::RxFlow => RX_FLOW.to_vec(),
            Column::AnyFlow => [&FLOW[..4], &[PROTO], &FLOW[4..]].concat(),
            Column::Names => NAMES.to_vec(),
        })
    }
}

impl Cell<'_> {
    /// Appends the cell as a server has it.
    pub(crate) fn expand(self, values: &mut Vec<Value>) {
        match self {
            Cell::Plain(value) => values.push(value),
            Cell::Word(word) => values.push(optional(word.map(str::to_owned))),
            Cell::Host(name) | Cell::Hook(name) => values.push(optional(name.map(Cow::into_owned))),
            Cell::Flow(flow) => values.extend(
                flow_values(flow.as_deref()).into_iter().filter_map(|(name, value)| (name != PROTO.0).then_some(value)),
            ),
            Cell::AnyFlow(flow) => values.extend(flow_values(flow.as_deref()).map(|(_, value)| value)),
            Cell::Names(names) => values.extend(name_values(names.as_deref())),
        }
    }

    /// Returns the cell without what it borrows.
    fn into_owned(self) -> Cell<'static> {
        let owned = |name: Option<Cow<'_, str>>| name.map(|name| Cow::Owned(name.into_owned()));
        match self {
            Cell::Plain(value) => Cell::Plain(value),
            Cell::Word(word) => Cell::Word(word),
            Cell::Host(name) => Cell::Host(owned(name)),
            Cell::Hook(name) => Cell::Hook(owned(name)),
            Cell::Flow(flow) => Cell::Flow(flow),
            Cell::AnyFlow(flow) => Cell::AnyFlow(flow),
            Cell::Names(names) => Cell::Names(names),
        }
    }
}

/// Returns the columns of a flow, as in a file.
pub(crate) fn flow_values(flow: Option<&FlowEnds>) -> [(&'static str, Value); 6] {
    let flow = flow.map(FlowEnds::object);
    let flow = flow.as_ref();
    [
        ("src", optional(flow.map(|flow| flow.src.to_string()))),
        ("sport", optional(flow.and_then(|flow| flow.sport).map(i64::from))),
        ("dst", optional(flow.map(|flow| flow.dst.to_string()))),
        ("dport", optional(flow.and_then(|flow| flow.dport).map(i64::from))),
        (PROTO.0, optional(flow.map(|flow| flow.proto.clone().into_owned()))),
        ("id", optional(flow.and_then(|flow| flow.id.clone()))),
    ]
}

use Column::{Flow, Hook, Host, Plain, RxFlow};

/// The figures of a histogram, and the histogram itself.
const FIGURES: &[Column] = &figure_columns("UInt64", "String");
/// The same where there may be none.
pub(crate) const FIGURES_IF_KNOWN: &[Column] = &figure_columns("Nullable(UInt64)", "Nullable(String)");

const fn figure_columns(count: &'static str, histogram: &'static str) -> [Column; 11] {
    [
        Plain("count", count),
        Plain("sum_ns", count),
        Plain("mean_ns", "Nullable(UInt64)"),
        Plain("min_ns", "Nullable(UInt64)"),
        Plain("max_ns", "Nullable(UInt64)"),
        Plain("p50_ns", "Nullable(UInt64)"),
        Plain("p90_ns", "Nullable(UInt64)"),
        Plain("p95_ns", "Nullable(UInt64)"),
        Plain("p99_ns", "Nullable(UInt64)"),
        Plain("p99_9_ns", "Nullable(UInt64)"),
        Plain("histogram", histogram),
    ]
}

fn figures(histogram: &Histogram) -> [Cell<'static>; 11] {
    let unsigned = |figure: Option<u64>| Cell::Plain(optional(figure.map(signed)));
    let [p50, p90, p95, p99, p99_9] = histogram.quantiles_ns([0.5, 0.9, 0.95, 0.99, 0.999]);
    [
        unsigned(Some(histogram.count())),
        plain(signed_sum(histogram)),
        unsigned(histogram.mean_ns()),
        unsigned(histogram.min_ns()),
        unsigned(histogram.max_ns()),
        unsigned(p50),
        unsigned(p90),
        unsigned(p95),
        unsigned(p99),
        unsigned(p99_9),
        Cell::Plain(Value::Blob(histogram.to_bytes())),
    ]
}

/// Returns the sum of a histogram for SQLite.
pub(crate) fn signed_sum(histogram: &Histogram) -> i64 {
    i64::try_from(histogram.sum_ns()).unwrap_or(i64::MAX)
}

/// A row of one of the tables.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) table: &'static Table,
    pub(crate) time_ns: i64,
    /// The host whose agent caused the row; of two hosts, the one that sent the bytes.
    pub(crate) owner: Option<Cow<'a, str>>,
    /// The cells, in the order of the table's columns.
    pub(crate) cells: Vec<Cell<'a>>,
}

impl Row<'_> {
    /// Returns the row without what it borrows.
    pub(crate) fn into_owned(self) -> Row<'static> {
        Row {
            table: self.table,
            time_ns: self.time_ns,
            owner: self.owner.map(|name| Cow::Owned(name.into_owned())),
            cells: self.cells.into_iter().map(Cell::into_owned).collect(),
        }
    }
}

static INTERVALS: LazyLock<Table> = LazyLock::new(|| {
    let head = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "UInt64"),
        Host("host", "String"),
        Flow,
        Plain("namespace", "Nullable(String)"),
        Plain("segment", "String"),
        Plain("direction", "String"),
        Plain("part_of", "Nullable(String)"),
        Plain("retransmitted", "UInt8"),
    ];
    let tail = [
        Hook("hook_from", "Nullable(String)"),
        Hook("hook_to", "Nullable(String)"),
        Plain("missing", "Nullable(String)"),
        Plain("time_clamped", "UInt8"),
    ];
    Table::new("intervals", "interval", &[&head, FIGURES, &tail])
});

impl<'a> From<&IntervalRow<'a>> for Row<'a> {
    fn from(row: &IntervalRow<'a>) -> Row<'a> {
        let mut cells = Vec::with_capacity(INTERVALS.columns.len());
        cells.extend([
            plain(row.time_ns),
            plain(signed(row.length_ns)),
            host(Some(row.host)),
            Cell::Flow(row.flow.map(|flow| Box::new(flow.into()))),
            Cell::Plain(optional(row.namespace.map(str::to_owned))),
            Cell::Word(Some(row.segment.name())),
            Cell::Word(Some(row.segment.direction().name())),
            Cell::Word(row.segment.part_of().map(|part| part.name())),
            plain(row.resent),
        ]);
        cells.extend(figures(row.histogram));
        let hook = |of: fn(&SegmentHooks) -> &Option<String>| {
            Cell::Hook(row.hooks.and_then(|hooks| of(hooks).as_deref().map(Cow::Borrowed)))
        };
        let missing = row.hooks.and_then(|hooks| hooks.missing);
        cells.extend([
            hook(|hooks| &hooks.from),
            hook(|hooks| &hooks.to),
            Cell::Word(missing.map(Layer::name)),
            plain(row.time_clamped),
        ]);
        Row { table: &INTERVALS, time_ns: row.time_ns, owner: Some(Cow::Borrowed(row.host)), cells }
    }
}

static PATHS: LazyLock<Table> = LazyLock::new(|| {
    let head = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "UInt64"),
        Host("tx_host", "Nullable(String)"),
        Host("rx_host", "Nullable(String)"),
        Flow,
        Plain("segment", "String"),
        Plain("direction", "Nullable(String)"),
        Plain("part_of", "Nullable(String)"),
        Plain("retransmitted", "UInt8"),
        Plain("method", "String"),
        Plain("joined", "Nullable(String)"),
        RxFlow,
    ];
    let tail = [Plain("bound_ns", "Nullable(UInt64)"), Plain("clamped", "UInt64"), Plain("doubtful", "UInt64")];
    Table::new("paths", "path", &[&head, FIGURES, &tail])
});

impl<'a> From<&PathRow<'a>> for Row<'a> {
    fn from(row: &PathRow<'a>) -> Row<'a> {
        let mut cells = Vec::with_capacity(PATHS.columns.len());
        cells.extend([
            plain(row.time_ns),
            plain(signed(row.length_ns)),
            host(row.tx_host),
            host(row.rx_host),
            Cell::Flow(row.flow.map(|flow| Box::new(flow.into()))),
            Cell::Word(Some(row.segment.name())),
            Cell::Word(row.segment.direction().map(|direction| direction.name())),
            Cell::Word(row.segment.part_of().map(|part| part.name())),
            plain(row.resent),
            Cell::Word(Some(row.method.name())),
            Cell::Word(row.joined().map(FlowJoin::name)),
            Cell::Flow(row.rx_flow.map(|flow| Box::new(flow.into()))),
        ]);
        cells.extend(figures(row.histogram));
        cells.extend([
            Cell::Plain(optional(row.bound_ns.map(signed))),
            plain(signed(row.clamped)),
            plain(signed(row.doubtful)),
        ]);
        Row { table: &PATHS, time_ns: row.time_ns, owner: row.tx_host.or(row.rx_host).map(Cow::Borrowed), cells }
    }
}

static CLOCK: LazyLock<Table> = LazyLock::new(|| {
    let columns = [
        Plain("time_ns", "Int64"),
        Host("host", "String"),
        Plain("offset_ns", "Int64"),
        Plain("bound_ns", "UInt64"),
        Plain("drift_ppb", "Nullable(Float64)"),
        Plain("drift_bound_ppb", "Nullable(Float64)"),
        Plain("round_trip_ns", "Nullable(UInt64)"),
        Plain("method", "String"),
        Plain("stepped", "UInt8"),
    ];
    Table::new("clock", "clock", &[&columns])
});

impl<'a> From<&ClockRow<'a>> for Row<'a> {
    fn from(row: &ClockRow<'a>) -> Row<'a> {
        let cells = vec![
            plain(row.time_ns),
            host(Some(row.host)),
            plain(row.offset_ns),
            plain(signed(row.bound_ns)),
            Cell::Plain(optional(row.drift_ppb)),
            Cell::Plain(optional(row.drift_bound_ppb)),
            Cell::Plain(optional(row.round_trip_ns.map(signed))),
            text(Some(row.method)),
            plain(row.stepped),
        ];
        Row { table: &CLOCK, time_ns: row.time_ns, owner: Some(Cow::Borrowed(row.host)), cells }
    }
}

/// A counter since the start of a host's run; without a host, of the collector.
#[derive(Debug)]
pub(crate) struct CounterRow<'a> {
    pub(crate) time_ns: i64,
    pub(crate) host: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) value: u64,
}

static COUNTER: LazyLock<Table> = LazyLock::new(|| {
    let columns = [
        Plain("time_ns", "Int64"),
        Host("host", "Nullable(String)"),
        Plain("name", "String"),
        Plain("value", "UInt64"),
    ];
    Table::new("counter", "counter", &[&columns])
});

impl<'a> From<&CounterRow<'a>> for Row<'a> {
    fn from(row: &CounterRow<'a>) -> Row<'a> {
        let cells = vec![plain(row.time_ns), host(row.host), text(Some(row.name)), plain(signed(row.value))];
        Row { table: &COUNTER, time_ns: row.time_ns, owner: row.host.map(Cow::Borrowed), cells }
    }
}

static LOST: LazyLock<Table> = LazyLock::new(|| {
    let columns = [
        Plain("time_ns", "Int64"),
        Host("host", "String"),
        Plain("run", "String"),
        Plain("from_batch", "UInt64"),
        Plain("to_batch", "Nullable(UInt64)"),
        Plain("from_ns", "Nullable(Int64)"),
        Plain("to_ns", "Nullable(Int64)"),
        Plain("why", "String"),
    ];
    Table::new("lost", "lost", &[&columns])
});

impl<'a> From<&LostRow<'a>> for Row<'a> {
    fn from(row: &LostRow<'a>) -> Row<'a> {
        let run: String = row.run.iter().map(|byte| format!("{byte:02x}")).collect();
        let (from, to) = row.batches;
        let cells = vec![
            plain(row.time_ns),
            host(Some(row.host)),
            text(Some(&run)),
            plain(signed(from)),
            Cell::Plain(optional(to.map(signed))),
            Cell::Plain(optional(row.since_ns)),
            Cell::Plain(optional(row.until_ns)),
            text(Some(row.why.name())),
        ];
        Row { table: &LOST, time_ns: row.time_ns, owner: Some(Cow::Borrowed(row.host)), cells }
    }
}

/// All tables that a server has.
pub(crate) fn tables() -> [&'static Table; 6] {
    [&INTERVALS, &PATHS, &CLOCK, &COUNTER, &LOST, &GRAY]
}

pub(crate) fn host(name: Option<&str>) -> Cell<'_> {
    Cell::Host(name.map(Cow::Borrowed))
}

pub(crate) fn plain(value: impl Into<Value>) -> Cell<'static> {
    Cell::Plain(value.into())
}

pub(crate) fn text(value: Option<&str>) -> Cell<'static> {
    Cell::Plain(optional(value.map(str::to_owned)))
}

pub(crate) fn optional(value: Option<impl Into<Value>>) -> Value {
    value.map_or(Value::Null, Into::into)
}

/// Converts a number to SQLite's, which has nothing above `i64::MAX`; as nanoseconds that is 292 years.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::{
        backend::BACKENDS,
        latency::{LATENCIES, VERDICTS},
    };

    #[test]
    fn the_columns_are_those_of_the_file() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(&crate::tables::schema()).unwrap();
        let names = |table: &str| -> Vec<String> {
            let mut statement = db.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).unwrap();
            let names = statement.query_map([], |row| row.get(0)).unwrap();
            names.map(Result::unwrap).collect()
        };
        for table in tables().into_iter().chain([&*LATENCIES, &VERDICTS, &BACKENDS]) {
            db.prepare(&table.insert).unwrap();
        }
        for table in [&INTERVALS, &PATHS, &LATENCIES, &VERDICTS, &BACKENDS, &GRAY] {
            let own: Vec<_> = table.server_columns().map(|(name, _)| name).collect();
            assert_eq!(names(table.name), own);
        }
    }
}
