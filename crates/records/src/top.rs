//! The rows of `dwell top`.

use dwell_engine::{
    names::FlowNames,
    top::{Metric, Row, View},
};

/// The rows of a view in an interval.
#[derive(Debug, Clone, Copy)]
pub struct Top<'a> {
    /// The end of the interval on the source's clock.
    pub end_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// What a row stands for.
    pub view: View,
    /// What the rows are ranked by.
    pub by: Metric,
    /// The rows, the worst first.
    pub rows: &'a [TopRow],
    /// Rows that are left out.
    pub cut: usize,
    /// Flows that found no room.
    pub omitted: u64,
}

/// A row with its names.
#[derive(Debug, Clone, PartialEq)]
pub struct TopRow {
    /// The row.
    pub row: Row,
    /// The row in words.
    pub line: String,
    /// The names of the end in this host, of the peer and of the service.
    pub names: FlowNames,
}
