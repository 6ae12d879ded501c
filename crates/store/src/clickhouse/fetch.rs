//! What a report needs of a server's tables, copied into a file: reports are made of files.

use std::{mem, path::Path, time::Duration};

use dwell_engine::{layers::Ends, measure::Endpoint};
use rusqlite::types::Value;

use super::Server;
use crate::{
    Reader, Refusal, Span, Store, StoreError, Writing,
    columns::{Cell, Column, FlowEnds, Row, TCP, Table, tables},
    html::Choice,
    sqlite::Writers,
};

/// Limit on the answer to a query: a server may have to look at all of its rows.
const LIMIT: Duration = Duration::from_secs(600);
/// Rows that are written in one transaction.
const MOST_ROWS: usize = 8_192;
/// Flows that one query names, well below the server's limit on the length of a query.
const MOST_FLOWS: usize = 1_000;

impl Server {
    /// Returns the time from the beginning of the first interval on the server to the end of the last; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Server::open`].
    pub fn span(&self) -> Result<Option<Span>, StoreError> {
        let mut span: Option<Span> = None;
        for table in ["intervals", "paths"] {
            let sql = format!("SELECT count(), min(time_ns - toInt64(interval_ns)), max(time_ns) FROM {table}");
            self.lines(&sql, LIMIT, |line| {
                let numbers: Vec<i64> =
                    String::from_utf8_lossy(line).split('\t').filter_map(|n| n.parse().ok()).collect();
                let [count, from_ns, to_ns] = numbers[..] else { return Err(self.unexpected(line)) };
                if count > 0 {
                    let known = span.unwrap_or((from_ns, to_ns));
                    span = Some((known.0.min(from_ns), known.1.max(to_ns)));
                }
                Ok(())
            })?;
        }
        Ok(span)
    }

    /// Copies what a report with this choice needs into a new store: the rows of all flows together, those of the flows that are
    /// kept apart, clocks, losses and gray failures. Returns the number of flows that were chosen and not copied.
    ///
    /// # Errors
    ///
    /// As [`Server::open`], and [`StoreError`] of a file.
    pub fn fetch(&self, choice: &Choice, span: Span, path: &Path) -> Result<usize, StoreError> {
        let mut copy = Copy { server: self, store: Store::open_for(path, Writers::Several)?, rows: Vec::new() };
        let times = format!("time_ns > {} AND time_ns <= {}", span.0, span.1);
        let (flows, known) = self.flows(choice, &times)?;
        let [intervals, paths, clock, _, lost, gray] = tables();
        for table in [intervals, paths] {
            if !choice.is_of_flows() {
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
        self.lines("EXISTS TABLE gray", LIMIT, |line| {
            has_gray = line == b"1";
            Ok(())
        })?;
        if has_gray {
            copy.table(gray, &times)?;
        }
        copy.write()?;
        // All hosts of a server have agents, whose silence is told.
        let hosts = Reader::open(path)?.hosts()?;
        let add = |store: &mut Writing<'_>| {
            hosts.iter().try_for_each(|(_, name)| store.batch(name, &[0; 16], (1, 1), span.1).map(drop))
        };
        copy.store.write(add)?;
        Ok(known - flows.len())
    }

    /// Returns the chosen flows with the most bytes, as a file has them, and how many were chosen.
    fn flows(&self, choice: &Choice, times: &str) -> Result<(Vec<Ends>, usize), StoreError> {
        let hosts: Vec<_> = choice.hosts.iter().map(|name| quoted(name)).collect();
        let hosts = hosts.join(", ");
        let (of_host, of_way) = match choice.hosts.is_empty() {
            true => (String::new(), String::new()),
            false => (format!("AND host IN ({hosts})"), format!("AND (tx_host IN ({hosts}) OR rx_host IN ({hosts}))")),
        };
        let chosen = format!("retransmitted = 0 AND src IS NOT NULL AND {times}");
        let sql = format!(
            "SELECT src, sport, dst, dport FROM (
                SELECT src, sport, dst, dport, sum(count) AS n FROM intervals FINAL
                    WHERE segment = 'total' AND {chosen} {of_host} GROUP BY src, sport, dst, dport, host, direction
                UNION ALL SELECT src, sport, dst, dport, sum(count) AS n FROM paths FINAL
                    WHERE segment = 'end-to-end' AND {chosen} {of_way} GROUP BY src, sport, dst, dport
            ) GROUP BY src, sport, dst, dport ORDER BY max(n) DESC, src, sport, dst, dport"
        );
        let (mut flows, mut known) = (Vec::new(), 0);
        self.lines(&sql, LIMIT, |line| {
            let fields: Vec<_> = fields(line).collect();
            let [src, sport, dst, dport] = &fields[..] else { return Err(self.unexpected(line)) };
            let ends = end(src, sport).zip(end(dst, dport)).map(|(src, dst)| Ends { src, dst });
            let ends = ends.ok_or_else(|| self.unexpected(line))?;
            if choice.takes(&ends) {
                known += 1;
                if flows.len() < choice.most_flows {
                    flows.push(ends);
                }
            }
            Ok(())
        })?;
        Ok((flows, known))
    }

    fn unexpected(&self, line: &[u8]) -> StoreError {
        // An error that comes after the first rows is a line of the answer.
        let StoreError::Refused { address, said, .. } = self.refused(None, &String::from_utf8_lossy(line)) else {
            unreachable!("a refusal is one")
        };
        StoreError::Refused { address, said, refusal: Refusal::Table }
    }
}

/// Rows on their way into a file.
struct Copy<'a> {
    server: &'a Server,
    store: Store,
    rows: Vec<Row<'static>>,
}

impl Copy<'_> {
    /// Copies the rows of a table for which this holds.
    fn table(&mut self, table: &'static Table, condition: &str) -> Result<(), StoreError> {
        let columns: Vec<_> = table.server_columns().map(|(name, _)| name).collect();
        let sql = format!("SELECT {} FROM {} FINAL WHERE {condition}", columns.join(", "), table.name);
        let server = self.server;
        server.lines(&sql, LIMIT, |line| {
            self.rows.push(row(table, line).ok_or_else(|| server.unexpected(line))?);
            if self.rows.len() < MOST_ROWS { Ok(()) } else { self.write() }
        })
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let rows = mem::take(&mut self.rows);
        self.store.write(|store| rows.into_iter().try_for_each(|row| store.insert(row)))
    }
}

/// Reads a line of the format TabSeparated as a row of a table; `None` if it is none.
pub(crate) fn row(table: &'static Table, line: &[u8]) -> Option<Row<'static>> {
    let mut fields = fields(line);
    let mut cells = Vec::new();
    for column in table.columns() {
        let text = |field: Option<Vec<u8>>| field.map(String::from_utf8).transpose().ok();
        cells.push(match column {
            Column::Plain(name, kind) => Cell::Plain(value((name, kind), fields.next()?)?),
            Column::Host(..) => Cell::Host(text(fields.next()?)?.map(Into::into)),
            Column::Hook(..) => Cell::Hook(text(fields.next()?)?.map(Into::into)),
            Column::Flow => {
                let [src, sport, dst, dport, id] = [0; 5].map(|_| fields.next());
                let (src, dst) = ((src?, sport?), (dst?, dport?));
                let ends = match (&src.0, &dst.0) {
                    (None, None) => None,
                    _ => Some(end(&src.0, &src.1).zip(end(&dst.0, &dst.1))?),
                };
                let has_id = id?.is_some();
                let of = |end: Endpoint| (end.address, Some(end.port));
                let flow = ends.map(|(src, dst)| FlowEnds { src: of(src), dst: of(dst), protocol: TCP, has_id });
                Cell::Flow(flow.map(Box::new))
            }
            // Of tables that no server has.
            Column::AnyFlow | Column::Names => return None,
        });
    }
    let Some(Cell::Plain(Value::Integer(time_ns))) = cells.first() else { return None };
    let time_ns = *time_ns;
    fields.next().is_none().then_some(Row { table, time_ns, owner: None, cells })
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
