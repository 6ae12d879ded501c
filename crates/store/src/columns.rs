//! The columns of a store, once for SQLite and for ClickHouse.
//!
//! On a server, and in the views of a file, a row has names and addresses. In the tables of a file (`schema.sql`),
//! hosts, hooks and flows are numbers of rows of their own.

use std::sync::LazyLock;

use dwell_engine::{
    flow_id,
    histogram::Histogram,
    layers::{Ends, Layer, SegmentHooks},
    measure::Protocol,
};
use rusqlite::types::Value;

use crate::{ClockRow, IntervalRow, LostRow, PathRow};

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    /// A value, with its name and its type on a server.
    Plain(&'static str, &'static str),
    /// The name of a host; the number of the host in a file, as `<name>_id`.
    Host(&'static str, &'static str),
    /// The name of a hook; the number of the hook in a file, as `<name>_id`.
    Hook(&'static str, &'static str),
    /// Five columns with the ends of a flow and its id; one with the number of the flow in a file, as `flow_id`.
    Flow,
}

/// The value of a column.
#[derive(Debug)]
pub(crate) enum Cell<'a> {
    Plain(Value),
    Host(Option<&'a str>),
    Hook(Option<&'a str>),
    Flow(Option<Ends>),
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

/// All flows of a store are of TCP.
pub(crate) const TCP: Protocol = Protocol(6);

impl Table {
    fn new(name: &'static str, file_name: &str, columns: &[&[Column]]) -> Table {
        let columns = columns.concat();
        let names = columns.iter().map(|column| match column {
            Column::Plain(name, _) => (*name).to_owned(),
            Column::Host(name, _) | Column::Hook(name, _) => format!("{name}_id"),
            Column::Flow => "flow_id".to_owned(),
        });
        let names: Vec<_> = names.collect();
        let marks = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT INTO {file_name} ({}) VALUES ({marks})", names.join(", "));
        Table { name, columns, insert }
    }

    /// Returns the names and types of the columns on a server.
    pub(crate) fn server_columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns.iter().flat_map(|column| match column {
            Column::Plain(name, kind) | Column::Host(name, kind) | Column::Hook(name, kind) => vec![(*name, *kind)],
            Column::Flow => FLOW.to_vec(),
        })
    }
}

impl Cell<'_> {
    /// Appends the cell as a server has it.
    pub(crate) fn expand(self, values: &mut Vec<Value>) {
        match self {
            Cell::Plain(value) => values.push(value),
            Cell::Host(name) | Cell::Hook(name) => values.push(optional(name.map(str::to_owned))),
            Cell::Flow(ends) => {
                let [src, dst] = [ends.map(|ends| ends.src), ends.map(|ends| ends.dst)];
                for end in [src, dst] {
                    values.push(optional(end.map(|end| end.address.to_string())));
                    values.push(optional(end.map(|end| i64::from(end.port))));
                }
                values.push(optional(ends.map(|ends| flow_id(&ends.src, &ends.dst, TCP))));
            }
        }
    }
}

use Column::{Flow, Hook, Host, Plain};

/// The figures of a histogram, and the histogram itself.
const FIGURES: &[Column] = &[
    Plain("count", "UInt64"),
    Plain("sum_ns", "UInt64"),
    Plain("mean_ns", "Nullable(UInt64)"),
    Plain("min_ns", "Nullable(UInt64)"),
    Plain("max_ns", "Nullable(UInt64)"),
    Plain("p50_ns", "Nullable(UInt64)"),
    Plain("p90_ns", "Nullable(UInt64)"),
    Plain("p95_ns", "Nullable(UInt64)"),
    Plain("p99_ns", "Nullable(UInt64)"),
    Plain("p99_9_ns", "Nullable(UInt64)"),
    Plain("histogram", "String"),
];

fn figures(histogram: &Histogram) -> [Cell<'static>; 11] {
    let unsigned = |figure: Option<u64>| Cell::Plain(optional(figure.map(signed)));
    [
        unsigned(Some(histogram.count())),
        Cell::Plain(Value::Integer(i64::try_from(histogram.sum_ns()).unwrap_or(i64::MAX))),
        unsigned(histogram.mean_ns()),
        unsigned(histogram.min_ns()),
        unsigned(histogram.max_ns()),
        unsigned(histogram.quantile_ns(0.5)),
        unsigned(histogram.quantile_ns(0.9)),
        unsigned(histogram.quantile_ns(0.95)),
        unsigned(histogram.quantile_ns(0.99)),
        unsigned(histogram.quantile_ns(0.999)),
        Cell::Plain(Value::Blob(histogram.to_bytes())),
    ]
}

/// A row of one of the tables.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) table: &'static Table,
    pub(crate) time_ns: i64,
    /// The host whose agent caused the row; of two hosts, the one that sent the bytes.
    pub(crate) owner: Option<&'a str>,
    /// The cells, in the order of the table's columns.
    pub(crate) cells: Vec<Cell<'a>>,
}

static INTERVALS: LazyLock<Table> = LazyLock::new(|| {
    let head = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "UInt64"),
        Host("host", "String"),
        Flow,
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
        let mut cells = vec![
            plain(row.time_ns),
            plain(signed(row.length_ns)),
            Cell::Host(Some(row.host)),
            Cell::Flow(row.flow),
            text(Some(row.segment.name())),
            text(Some(row.segment.direction().name())),
            text(row.segment.part_of().map(|part| part.name())),
            plain(row.resent),
        ];
        cells.extend(figures(row.histogram));
        let hook =
            |of: fn(&SegmentHooks) -> &Option<String>| Cell::Hook(row.hooks.and_then(|hooks| of(hooks).as_deref()));
        let missing = row.hooks.and_then(|hooks| hooks.missing);
        cells.extend([
            hook(|hooks| &hooks.from),
            hook(|hooks| &hooks.to),
            text(missing.map(Layer::name)),
            plain(row.time_clamped),
        ]);
        Row { table: &INTERVALS, time_ns: row.time_ns, owner: Some(row.host), cells }
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
    ];
    let tail = [Plain("bound_ns", "Nullable(UInt64)"), Plain("clamped", "UInt64"), Plain("doubtful", "UInt64")];
    Table::new("paths", "path", &[&head, FIGURES, &tail])
});

impl<'a> From<&PathRow<'a>> for Row<'a> {
    fn from(row: &PathRow<'a>) -> Row<'a> {
        let mut cells = vec![
            plain(row.time_ns),
            plain(signed(row.length_ns)),
            Cell::Host(row.tx_host),
            Cell::Host(row.rx_host),
            Cell::Flow(row.flow),
            text(Some(row.leg.name())),
            text(row.leg.direction().map(|direction| direction.name())),
            text(row.leg.part_of().map(|part| part.name())),
            plain(row.resent),
            text(Some(row.method.name())),
        ];
        cells.extend(figures(row.histogram));
        cells.extend([
            Cell::Plain(optional(row.bound_ns.map(signed))),
            plain(signed(row.clamped)),
            plain(signed(row.doubtful)),
        ]);
        Row { table: &PATHS, time_ns: row.time_ns, owner: row.tx_host.or(row.rx_host), cells }
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
            Cell::Host(Some(row.host)),
            plain(row.offset_ns),
            plain(signed(row.bound_ns)),
            Cell::Plain(optional(row.drift_ppb)),
            Cell::Plain(optional(row.drift_bound_ppb)),
            Cell::Plain(optional(row.round_trip_ns.map(signed))),
            text(Some(row.method)),
            plain(row.stepped),
        ];
        Row { table: &CLOCK, time_ns: row.time_ns, owner: Some(row.host), cells }
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
        let cells = vec![plain(row.time_ns), Cell::Host(row.host), text(Some(row.name)), plain(signed(row.value))];
        Row { table: &COUNTER, time_ns: row.time_ns, owner: row.host, cells }
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
            Cell::Host(Some(row.host)),
            text(Some(&run)),
            plain(signed(from)),
            Cell::Plain(optional(to.map(signed))),
            Cell::Plain(optional(row.since_ns)),
            Cell::Plain(optional(row.until_ns)),
            text(Some(row.why.name())),
        ];
        Row { table: &LOST, time_ns: row.time_ns, owner: Some(row.host), cells }
    }
}

/// All tables that a server has.
pub(crate) fn tables() -> [&'static Table; 5] {
    [&INTERVALS, &PATHS, &CLOCK, &COUNTER, &LOST]
}

fn plain(value: impl Into<Value>) -> Cell<'static> {
    Cell::Plain(value.into())
}

fn text(value: Option<&str>) -> Cell<'static> {
    Cell::Plain(optional(value.map(str::to_owned)))
}

fn optional(value: Option<impl Into<Value>>) -> Value {
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

    #[test]
    fn the_columns_are_those_of_the_file() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("schema.sql")).unwrap();
        let names = |table: &str| -> Vec<String> {
            let mut statement = db.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).unwrap();
            let names = statement.query_map([], |row| row.get(0)).unwrap();
            names.map(Result::unwrap).collect()
        };
        for table in tables() {
            db.prepare(&table.insert).unwrap();
        }
        for table in [&INTERVALS, &PATHS] {
            let own: Vec<_> = table.server_columns().map(|(name, _)| name).collect();
            assert_eq!(names(table.name), own);
        }
    }
}
