//! Rows of gray failures.

use std::sync::LazyLock;

use dwell_records::{GrayFailure, GrayFigures};

use crate::columns::{Cell, Column::Plain, Row, Table, optional, plain, signed, text};

/// A gray failure that begins or ends.
#[derive(Debug, Clone, Copy)]
pub struct GrayRow<'a> {
    /// When that was noticed, in Unix time.
    pub time_ns: i64,
    /// When it began: the `time_ns` of the row of its beginning, by which that is found, though Unix time may have been set since.
    pub since_ns: i64,
    /// What was noticed.
    pub failure: &'a GrayFailure<'a>,
}

pub(crate) static GRAY: LazyLock<Table> = LazyLock::new(|| {
    let columns = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "UInt64"),
        Plain("event", "String"),
        Plain("reason", "Nullable(String)"),
        Plain("since_ns", "Int64"),
        Plain("subject", "String"),
        Plain("host", "Nullable(String)"),
        Plain("tx_host", "Nullable(String)"),
        Plain("rx_host", "Nullable(String)"),
        Plain("port", "Nullable(UInt16)"),
        Plain("component", "String"),
        Plain("direction", "Nullable(String)"),
        Plain("figure", "Nullable(String)"),
        Plain("value_ns", "Nullable(UInt64)"),
        Plain("past_ns", "Nullable(UInt64)"),
        Plain("expected_ns", "Nullable(UInt64)"),
        Plain("peers_ns", "Nullable(UInt64)"),
        Plain("value_share", "Nullable(Float64)"),
        Plain("past_share", "Nullable(Float64)"),
        Plain("expected_share", "Nullable(Float64)"),
        Plain("peers_share", "Nullable(Float64)"),
        Plain("peers", "UInt32"),
        Plain("paths", "Nullable(UInt32)"),
        Plain("paths_compared", "Nullable(UInt32)"),
        Plain("chance_per_week", "Float64"),
    ];
    Table::new("gray", "gray", &[&columns])
});

impl<'a> From<&GrayRow<'a>> for Row<'a> {
    fn from(row: &GrayRow<'a>) -> Row<'a> {
        let GrayRow { time_ns, since_ns, failure } = *row;
        let finding = &failure.event.finding;
        let [tx_host, rx_host] = failure.path();
        let mut cells = vec![
            plain(time_ns),
            plain(signed(failure.interval_ns)),
            Cell::Word(Some(failure.event())),
            Cell::Word(failure.reason()),
            plain(since_ns),
            Cell::Word(Some(failure.kind())),
            text(failure.host()),
            text(tx_host),
            text(rx_host),
            Cell::Plain(optional(failure.port().map(i64::from))),
            Cell::Word(Some(failure.component())),
            Cell::Word(failure.direction()),
            Cell::Word(failure.figure()),
        ];
        let of = |figures: GrayFigures<_>| [figures.value, figures.past, figures.expected, figures.peers];
        let times = failure.times().map(of);
        cells.extend([0, 1, 2, 3].map(|at| Cell::Plain(optional(times.map(|times| signed(times[at]))))));
        let of = |figures: GrayFigures<_>| [figures.value, figures.past, figures.expected, figures.peers];
        let shares = failure.shares().map(of);
        cells.extend([0, 1, 2, 3].map(|at| Cell::Plain(optional(shares.map(|shares| shares[at])))));
        let paths = |at: usize| Cell::Plain(optional(finding.paths.map(|paths| paths[at] as i64)));
        cells.extend([plain(finding.peers as i64), paths(0), paths(1), plain(finding.per_week)]);
        Row { table: &GRAY, time_ns, owner: None, cells }
    }
}
