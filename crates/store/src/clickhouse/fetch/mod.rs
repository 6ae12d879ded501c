//! What is wanted of a server's tables, copied into a file: reports and verdicts are made of files.

use std::{collections::HashSet, mem};

use dwell_engine::{
    gray::LONGEST_NS,
    layers::Ends,
    measure::{Endpoint, Protocol},
};
use rusqlite::types::Value;

use super::{Patience, Server};
use crate::{
    Reader, Span, Store, StoreError,
    columns::{Cell, Column, FlowEnds, Row, Table, tables},
};

/// Rows that are written in one transaction, and bytes of them.
const MOST_ROWS: usize = 8_192;
const MOST_ROW_BYTES: usize = 16 << 20;
/// Flows that one query names, well below the server's limit on the length of a query.
const MOST_FLOWS: usize = 1_000;

/// What of a server's rows is wanted.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Which flows are, as their senders or their receivers see them; `None` stands for all, and all of them together.
    pub flows: Option<&'a dyn Fn(&Ends) -> bool>,
    /// Hosts with these names; all if there are none.
    pub hosts: &'a [String],
    /// Maximum number of flows that are copied: those with most bytes.
    pub most_flows: usize,
}

impl Server {
    /// Returns the time from the beginning of the first interval on the server to the end of the last; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Server::prepare`].
    pub fn span(&self, patience: Patience) -> Result<Option<Span>, StoreError> {
        let mut span: Option<Span> = None;
        for table in ["intervals", "paths"] {
            let sql = format!("SELECT count(), min(time_ns - toInt64(interval_ns)), max(time_ns) FROM {table}");
            self.lines(&sql, patience, |line| {
                let numbers: Vec<i64> =
                    String::from_utf8_lossy(line).split('\t').filter_map(|n| n.parse().ok()).collect();
                let [count, from_ns, to_ns] = numbers[..] else { return Ok(false) };
                if count > 0 {
                    let known = span.unwrap_or((from_ns, to_ns));
                    span = Some((known.0.min(from_ns), known.1.max(to_ns)));
                }
                Ok(true)
            })?;
        }
        Ok(span)
    }

    /// Copies what is wanted into a temporary file of at most `most_bytes`, or little more: the rows of all flows together unless some
    /// are wanted, those of single flows, clocks, losses and gray failures. Returns the copy, and the number of flows that were wanted
    /// and not copied.
    ///
    /// # Errors
    ///
    /// As [`Server::prepare`], [`StoreError::Large`], and [`StoreError`] of a file.
    pub fn fetch(
        &self,
        wanted: &Wanted<'_>,
        span: Span,
        patience: Patience,
        most_bytes: u64,
    ) -> Result<(Reader, usize), StoreError> {
        let store = Store::temporary(&format!("copy of {}", self.address))?;
        let mut copy = Copy { server: self, patience, most_bytes, store, rows: Vec::new(), row_bytes: 0 };
        let times = format!("time_ns > {} AND time_ns <= {}", span.0, span.1);
        let (flows, known) = self.flows(wanted, &times, patience)?;
        let [intervals, paths, clock, _, lost, gray] = tables();
        if wanted.flows.is_some() {
            // One row of each interval tells when its host was not silent.
            copy.table(intervals, &format!("{times} AND src IS NULL AND retransmitted = 0 LIMIT 1 BY host, time_ns"))?;
        }
        for table in [intervals, paths] {
            if wanted.flows.is_none() {
                copy.table(table, &format!("{times} AND src IS NULL"))?;
            }
            for flows in flows.chunks(MOST_FLOWS) {
                let named: Vec<_> = flows.iter().map(named).collect();
                let ends = ["src", "sport", "dst", "dport"].map(|column| format!("assumeNotNull({column})")).join(", ");
                copy.table(table, &format!("{times} AND src IS NOT NULL AND ({ends}) IN ({})", named.join(", ")))?;
            }
        }
        copy.table(clock, &times)?;
        let missed = format!("ifNull(to_ns, time_ns) > {} AND ifNull(from_ns, time_ns) <= {}", span.0, span.1);
        copy.table(lost, &missed)?;
        // The collectors of a server that has no such table are of an older version.
        let mut has_gray = false;
        self.lines("EXISTS TABLE gray", patience, |line| {
            has_gray = line == b"1";
            Ok(true)
        })?;
        if has_gray {
            // What began before and has not ended, or ended later, is of this time too.
            let since_ns = span.0.saturating_sub_unsigned(LONGEST_NS);
            copy.table(gray, &format!("time_ns > {since_ns} AND time_ns <= {}", span.1))?;
        }
        copy.write()?;
        // All hosts of a server have agents, whose silence is told.
        copy.store.add_runs(span.1)?;
        Ok((copy.store.into_reader()?, known - flows.len()))
    }

    /// Returns the wanted flows with the most bytes, as a file has them, and how many were wanted. One whose receiver has seen it with
    /// other ends is wanted if any of these are: behind a balancer, the same client port may have led to several servers.
    fn flows(&self, wanted: &Wanted<'_>, times: &str, patience: Patience) -> Result<(Vec<Ends>, usize), StoreError> {
        let hosts: Vec<_> = wanted.hosts.iter().map(|name| quoted(name)).collect();
        let hosts = hosts.join(", ");
        let (of_host, of_way) = match wanted.hosts.is_empty() {
            true => (String::new(), String::new()),
            false => (format!("AND host IN ({hosts})"), format!("AND (tx_host IN ({hosts}) OR rx_host IN ({hosts}))")),
        };
        let chosen = format!("retransmitted = 0 AND src IS NOT NULL AND {times}");
        let sql = format!(
            "SELECT src, sport, dst, dport, a, b, c, d FROM (
                SELECT src, sport, dst, dport, sum(count) AS n, NULL AS a, NULL AS b, NULL AS c, NULL AS d FROM intervals FINAL
                    WHERE segment = 'total' AND {chosen} {of_host} GROUP BY src, sport, dst, dport, host, direction
                UNION ALL SELECT src, sport, dst, dport, sum(count) AS n,
                    rx_src AS a, rx_sport AS b, rx_dst AS c, rx_dport AS d FROM paths FINAL
                    WHERE segment = 'end-to-end' AND {chosen} {of_way} GROUP BY src, sport, dst, dport, a, b, c, d
            ) GROUP BY src, sport, dst, dport, a, b, c, d ORDER BY max(n) DESC, src, sport, dst, dport"
        );
        let (mut flows, mut known) = (Vec::new(), HashSet::new());
        self.lines(&sql, patience, |line| {
            let fields: Vec<_> = fields(line).collect();
            let [src, sport, dst, dport, rx @ ..] = &fields[..] else { return Ok(false) };
            let ends = |[src, sport, dst, dport]: [&Option<Vec<u8>>; 4]| {
                end(src, sport).zip(end(dst, dport)).map(|(src, dst)| Ends { src, dst })
            };
            let Some(flow) = ends([src, sport, dst, dport]) else { return Ok(false) };
            // Where the receiver sees it as the sender does, it has no ends of its own. An error that breaks a row off is in none.
            let received = match rx {
                [None, None, None, None] => None,
                [src, sport, dst, dport] => match ends([src, sport, dst, dport]) {
                    None => return Ok(false),
                    ends => ends,
                },
                _ => return Ok(false),
            };
            let is_wanted = wanted.flows.is_none_or(|takes| takes(&flow) || received.as_ref().is_some_and(takes));
            if is_wanted && known.insert(flow) && flows.len() < wanted.most_flows {
                flows.push(flow);
            }
            Ok(true)
        })?;
        Ok((flows, known.len()))
    }
}

/// Rows on their way into a file.
struct Copy<'a> {
    server: &'a Server,
    patience: Patience,
    most_bytes: u64,
    store: Store,
    rows: Vec<Row<'static>>,
    /// The bytes of their lines.
    row_bytes: usize,
}

impl Copy<'_> {
    /// Copies the rows of a table for which this holds.
    fn table(&mut self, table: &'static Table, condition: &str) -> Result<(), StoreError> {
        let columns: Vec<_> = table.server_columns().map(|(name, _)| name).collect();
        // The last value shows that a row is whole: an error that breaks it off would become a part of a text.
        let sql = format!("SELECT {}, {END} FROM {} FINAL WHERE {condition}", columns.join(", "), table.name);
        let (server, patience) = (self.server, self.patience);
        server.lines(&sql, patience, |line| {
            let Some(row) = row(table, line) else { return Ok(false) };
            self.rows.push(row);
            self.row_bytes += line.len();
            if self.rows.len() >= MOST_ROWS || self.row_bytes >= MOST_ROW_BYTES {
                self.write()?;
            }
            Ok(true)
        })
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let rows = mem::take(&mut self.rows);
        self.row_bytes = 0;
        let written = self.store.write(|store| rows.into_iter().try_for_each(|row| store.insert(row)));
        written.map_err(|error| match error {
            StoreError::Sqlite { doing, path, sqlite, .. } => {
                StoreError::Sqlite { doing, path, sqlite, remedy: NO_ROOM }
            }
            other => other,
        })?;
        if self.store.bytes()? > self.most_bytes {
            return Err(StoreError::Large { address: self.server.address.to_string(), bytes: self.most_bytes });
        }
        Ok(())
    }
}

/// What to do where a temporary file cannot be written.
const NO_ROOM: &str = "; it is in a temporary file below TMPDIR, or else in /var/tmp: make room there, or ask for less";

/// The value after those of a row.
const END: &str = "1";

/// Reads a line of the format TabSeparated as a row of a table and the value after it; `None` if it is none.
fn row(table: &'static Table, line: &[u8]) -> Option<Row<'static>> {
    let mut fields = fields(line);
    let mut cells = Vec::new();
    for column in table.columns() {
        let text = |field: Option<Vec<u8>>| field.map(String::from_utf8).transpose().ok();
        cells.push(match column {
            Column::Plain(name, kind) => Cell::Plain(value((name, kind), fields.next()?)?),
            Column::Host(..) => Cell::Host(text(fields.next()?)?.map(Into::into)),
            Column::Hook(..) => Cell::Hook(text(fields.next()?)?.map(Into::into)),
            Column::Flow | Column::RxFlow => {
                let [src, sport, dst, dport, id] = [0; 5].map(|_| fields.next());
                let (src, dst) = ((src?, sport?), (dst?, dport?));
                let ends = match (&src.0, &dst.0) {
                    (None, None) => None,
                    _ => Some(end(&src.0, &src.1).zip(end(&dst.0, &dst.1))?),
                };
                let has_id = id?.is_some();
                let of = |end: Endpoint| (end.address, Some(end.port));
                let flow =
                    ends.map(|(src, dst)| FlowEnds { src: of(src), dst: of(dst), protocol: Protocol::TCP, has_id });
                Cell::Flow(flow.map(Box::new))
            }
            // Of tables that no server has.
            Column::AnyFlow | Column::Names => return None,
        });
    }
    let Some(Cell::Plain(Value::Integer(time_ns))) = cells.first() else { return None };
    let time_ns = *time_ns;
    let is_whole = fields.next()? == Some(END.into()) && fields.next().is_none();
    is_whole.then_some(Row { table, time_ns, owner: None, cells })
}

fn value((name, kind): (&str, &str), field: Option<Vec<u8>>) -> Option<Value> {
    let Some(field) = field else { return Some(Value::Null) };
    if name == "histogram" {
        return Some(Value::Blob(field));
    }
    let text = String::from_utf8(field).ok()?;
    match kind {
        kind if kind.contains("String") => Some(Value::Text(text)),
        kind if kind.contains("Float") => text.parse().ok().map(Value::Real),
        _ => text.parse().ok().map(Value::Integer),
    }
}

fn end(address: &Option<Vec<u8>>, port: &Option<Vec<u8>>) -> Option<Endpoint> {
    let text = |field: &Option<Vec<u8>>| String::from_utf8(field.clone()?).ok();
    Some(Endpoint { address: text(address)?.parse().ok()?, port: text(port)?.parse().ok()? })
}

/// Returns the values of a line; `None` is NULL.
fn fields(line: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> {
    line.split(|byte| *byte == b'\t').map(|field| {
        if field == b"\\N" {
            return None;
        }
        let (mut value, mut bytes) = (Vec::with_capacity(field.len()), field.iter());
        while let Some(byte) = bytes.next() {
            value.push(match (byte, *byte == b'\\') {
                (byte, false) => *byte,
                (_, true) => match bytes.next()? {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'0' => 0,
                    other => *other,
                },
            });
        }
        Some(value)
    })
}

/// Writes a flow as a tuple.
fn named(flow: &Ends) -> String {
    let Ends { src, dst } = flow;
    format!("('{}', {}, '{}', {})", src.address, src.port, dst.address, dst.port)
}

/// Writes text as a literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests;
