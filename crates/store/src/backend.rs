//! Rows of what the backends of a balancer do.

use std::{net::IpAddr, sync::LazyLock};

use dwell_records::LatencyObject;

use crate::columns::{
    Cell,
    Column::{Host, Plain},
    Row, Table, host, optional, plain, signed, text,
};

/// What a backend of a balancer did in an interval.
#[derive(Debug, Clone, Copy)]
pub struct BackendRow<'a> {
    /// The end of the interval in Unix time.
    pub time_ns: i64,
    /// The length of the interval.
    pub length_ns: u64,
    /// The name of the balancer's host.
    pub host: &'a str,
    /// The name of the VIP; `None` for a backend that no VIP has any more, and whose connections are still open.
    pub vip: Option<&'a str>,
    /// The name of the backend.
    pub backend: &'a str,
    /// Its own address.
    pub address: IpAddr,
    /// Its state at the end of the interval, in a word or two.
    pub state: &'static str,
    /// Why it is in this state, or has its weight.
    pub why: &'a str,
    /// Its weight.
    pub weight: f64,
    /// The part of new connections that it gets, from 0 to 1.
    pub share: f64,
    /// Active connections at the end of the interval.
    pub active: u64,
    /// All of its connections in the connection table, if they were counted.
    pub tracked: Option<u64>,
    /// Requests that waited for an answer at the end of the interval.
    pub pending: u64,
    /// For how long the oldest of them had waited at least.
    pub pending_oldest_ns: Option<u64>,
    /// Connections, packets and bytes of the interval; `None` where what was counted before is not known.
    pub traffic: Option<[u64; 3]>,
    /// The response latency; `None` where there was none.
    pub latency: Option<&'a LatencyObject>,
}

pub(crate) static BACKENDS: LazyLock<Table> = LazyLock::new(|| {
    let columns = [
        Plain("time_ns", "Int64"),
        Plain("interval_ns", "UInt64"),
        Host("host", "String"),
        Plain("vip", "Nullable(String)"),
        Plain("backend", "String"),
        Plain("address", "String"),
        Plain("state", "String"),
        Plain("why", "String"),
        Plain("weight", "Float64"),
        Plain("share", "Float64"),
        Plain("active", "UInt64"),
        Plain("tracked", "Nullable(UInt64)"),
        Plain("pending", "UInt64"),
        Plain("pending_oldest_ns", "Nullable(UInt64)"),
        Plain("connections", "Nullable(UInt64)"),
        Plain("packets", "Nullable(UInt64)"),
        Plain("bytes", "Nullable(UInt64)"),
        Plain("count", "Nullable(UInt64)"),
        Plain("mean_ns", "Nullable(UInt64)"),
        Plain("p50_ns", "Nullable(UInt64)"),
        Plain("p90_ns", "Nullable(UInt64)"),
        Plain("p99_ns", "Nullable(UInt64)"),
    ];
    Table::new("backends", "backend", &[&columns])
});

impl<'a> From<&BackendRow<'a>> for Row<'a> {
    fn from(row: &BackendRow<'a>) -> Row<'a> {
        let number = |value: Option<u64>| Cell::Plain(optional(value.map(signed)));
        let mut cells = vec![
            plain(row.time_ns),
            plain(signed(row.length_ns)),
            host(Some(row.host)),
            text(row.vip),
            text(Some(row.backend)),
            text(Some(&row.address.to_string())),
            Cell::Word(Some(row.state)),
            text(Some(row.why)),
            plain(row.weight),
            plain(row.share),
            plain(signed(row.active)),
            number(row.tracked),
            plain(signed(row.pending)),
            number(row.pending_oldest_ns),
        ];
        cells.extend([0, 1, 2].map(|at| number(row.traffic.map(|traffic| traffic[at]))));
        let of = |figure: fn(&LatencyObject) -> Option<u64>| number(row.latency.and_then(figure));
        cells.extend([
            of(|latency| latency.count),
            of(|latency| latency.mean_ns),
            of(|latency| latency.p50_ns),
            of(|latency| latency.p90_ns),
            of(|latency| latency.p99_ns),
        ]);
        Row { table: &BACKENDS, time_ns: row.time_ns, owner: Some(row.host.into()), cells }
    }
}
