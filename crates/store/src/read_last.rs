//! Reading the last interval of a store, for a screen that follows it.

use std::sync::Arc;

use dwell_engine::{
    layers::Ends,
    measure::{Endpoint, Method, Protocol},
    names::{EndNames, FlowNames, Pod, PodName},
};
use rusqlite::Row;

use super::{Reader, Span, StoreError, columns::NAMES, read};

/// The latest rows whose intervals are compared.
const COMPARED: usize = 10_000;

/// What a latency of a flow is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastKind {
    /// Round trips.
    Rtt,
    /// Answers of a server.
    Response,
    /// Waits in the send buffer.
    SendBuffer,
}

/// A latency of a flow in the last interval.
#[derive(Debug, Clone)]
pub struct LastLatency {
    /// The end of its interval in Unix time.
    pub time_ns: i64,
    /// What it is of.
    pub kind: LastKind,
    /// The flow.
    pub ends: Ends,
    /// Whether it is a round trip from end to end, of which the two sides may have rows too.
    pub is_around: bool,
    /// Whether `src` is known to be the end on the host that was measured.
    pub is_src_local: bool,
    /// Its transport protocol.
    pub protocol: Protocol,
    /// The names of its ends. Only those on the host that was measured have a process.
    pub names: FlowNames,
    /// The mean.
    pub mean_ns: u64,
    /// What it is the mean of.
    pub count: u64,
}

/// What a backend of a balancer did in the last interval.
#[derive(Debug, Clone, PartialEq)]
pub struct LastBackend {
    /// The name of the balancer's host.
    pub host: String,
    /// The name of its VIP; `None` for one that no VIP has any more.
    pub vip: Option<String>,
    /// Its name.
    pub name: String,
    /// Its state, in a word or two.
    pub state: String,
    /// Why it is in this state, or has its weight.
    pub why: String,
    /// Its part of new connections, from 0 to 1.
    pub share: f64,
    /// Active connections.
    pub active: u64,
    /// Requests that waited for an answer, and how long the oldest had waited at least.
    pub pending: (u64, Option<u64>),
    /// New connections and packets per second; `None` if they are not known.
    pub rates: Option<[f64; 2]>,
    /// The mean response latency, if it is known.
    pub mean_ns: Option<u64>,
}

/// The objects of JSON Lines whose latencies are of one flow in an interval: with their key there.
const KINDS: [(&str, &str, LastKind); 7] = [
    ("rtt.sample", "latency", LastKind::Rtt),
    ("response.epoch", "latency", LastKind::Response),
    ("run.socket", "network_rtt", LastKind::Rtt),
    ("run.socket", "sender_delay", LastKind::SendBuffer),
    ("top.row", "rtt_ns", LastKind::Rtt),
    ("top.row", "response_ns", LastKind::Response),
    ("top.row", "send_buffer_ns", LastKind::SendBuffer),
];

impl Reader {
    /// Returns the last interval of flows: it ends with the latest row. Its length, unless one is given, is the longest of late
    /// rows, so that no run that writes at longer intervals than another is missed. Rows from after `now_ns` count only if
    /// there are no others. `None` if there is no interval.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if the store cannot be read, as for all other reads.
    pub fn last_interval(&self, length_ns: Option<i64>, now_ns: i64) -> Result<Option<Span>, StoreError> {
        let tables = if self.has_latencies() { &["latency", "interval"][..] } else { &["interval"] };
        self.last_of(tables, length_ns, now_ns)
    }

    /// Returns the last interval of backends, in the same way.
    pub fn last_interval_of_backends(&self, now_ns: i64) -> Result<Option<Span>, StoreError> {
        let tables = if self.has_backends() { &["backend"][..] } else { &[] };
        self.last_of(tables, None, now_ns)
    }

    fn last_of(&self, tables: &[&str], length_ns: Option<i64>, now_ns: i64) -> Result<Option<Span>, StoreError> {
        match self.last_until(tables, length_ns, now_ns)? {
            // A clock was wrong then, or is now.
            None => self.last_until(tables, length_ns, i64::MAX),
            last => Ok(last),
        }
    }

    fn last_until(&self, tables: &[&str], length_ns: Option<i64>, until_ns: i64) -> Result<Option<Span>, StoreError> {
        let late = tables.iter().map(|table| {
            format!(
                "SELECT * FROM (SELECT time_ns, interval_ns FROM {table} WHERE time_ns <= ?1
                    ORDER BY time_ns DESC LIMIT {COMPARED})"
            )
        });
        let late: Vec<_> = late.collect();
        if late.is_empty() {
            return Ok(None);
        }
        let sql = format!("SELECT max(time_ns), max(interval_ns) FROM ({})", late.join(" UNION ALL "));
        let last: (Option<i64>, Option<i64>) =
            self.read(|db| db.query_row(&sql, [until_ns], |row| Ok((row.get(0)?, row.get(1)?))))?;
        let interval = last.0.zip(length_ns.or(last.1));
        Ok(interval.map(|(end_ns, length_ns)| (end_ns.saturating_sub(length_ns.max(1)), end_ns)))
    }

    /// Calls `each` with the latencies of flows in a time: those that are believed, and of intervals.
    pub fn last_latencies(&self, span: Span, mut each: impl FnMut(LastLatency)) -> Result<(), StoreError> {
        let names = self.names_columns();
        let nulls = NAMES.map(|_| "NULL").join(", ");
        // Stores of older versions have flows of TCP only.
        let proto = if self.has_latencies() { "proto" } else { "'TCP'" };
        // What waits between socket and TCP waits in the send buffer.
        let mut sql = format!(
            "SELECT time_ns, 'run.socket', 'sender_delay', count, mean_ns, src, sport, dst, dport, {proto}, {nulls}, 1, NULL
                FROM interval JOIN flow USING (flow_id)
                WHERE time_ns > ?1 AND time_ns <= ?2 AND segment = 'socket-tcp' AND NOT retransmitted AND mean_ns IS NOT NULL"
        );
        if self.has_latencies() {
            sql += &format!(
                " UNION ALL SELECT time_ns, type, what, count, mean_ns, src, sport, dst, dport, proto, {names}, host_id IS NOT NULL,
                    method
                    FROM latency JOIN flow USING (flow_id) LEFT JOIN names USING (names_id)
                    WHERE time_ns > ?1 AND time_ns <= ?2 AND interval_ns IS NOT NULL AND mean_ns IS NOT NULL
                        AND ifnull(valid, 1)"
            );
        }
        self.read(|db| {
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query([span.0, span.1])?;
            while let Some(row) = rows.next()? {
                if let Some(latency) = latency(row)? {
                    each(latency);
                }
            }
            Ok(())
        })
    }

    /// Returns what each backend did at the end of a time.
    pub fn last_backends(&self, span: Span) -> Result<Vec<LastBackend>, StoreError> {
        if !self.has_backends() {
            return Ok(Vec::new());
        }
        // The bare columns are those of the row with the latest time.
        let sql = "SELECT max(time_ns), vip, backend, state, why, share, active, pending, pending_oldest_ns, connections, packets,
                interval_ns, mean_ns, host.name
            FROM backend JOIN host USING (host_id) WHERE time_ns > ?1 AND time_ns <= ?2 GROUP BY host_id, vip, backend
            ORDER BY vip, backend";
        self.read(|db| {
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([span.0, span.1], |row| {
                let seconds = row.get::<_, i64>(11)?.max(1) as f64 / 1e9;
                let rate =
                    |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|n| n as f64 / seconds));
                let number = |column| read::number(row, column);
                Ok(LastBackend {
                    host: row.get(13)?,
                    vip: row.get(1)?,
                    name: row.get(2)?,
                    state: row.get(3)?,
                    why: row.get(4)?,
                    share: row.get(5)?,
                    active: number(6)?.unwrap_or_default(),
                    pending: (number(7)?.unwrap_or_default(), number(8)?),
                    rates: rate(9)?.zip(rate(10)?).map(|(connections, packets)| [connections, packets]),
                    mean_ns: number(12)?,
                })
            })?;
            rows.collect()
        })
    }
}

/// Reads a row; `None` if it is not of one flow, or of a kind that is not known.
fn latency(row: &Row<'_>) -> rusqlite::Result<Option<LastLatency>> {
    let (kind, what) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
    let Some((of, _, kind)) = KINDS.iter().find(|(own, key, _)| *own == kind && *key == what) else {
        return Ok(None);
    };
    // Of a capture on the screen no end is local.
    let is_src_local = *of == "run.socket" || (*of == "top.row" && row.get(23)?);
    let Some(protocol) = protocol(row.get_ref(9)?.as_str()?) else {
        return Ok(None);
    };
    let (Some(src), Some(dst)) = (end(row, 5, protocol)?, end(row, 7, protocol)?) else {
        return Ok(None);
    };
    let names = |first: usize| -> rusqlite::Result<EndNames> {
        let text = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<String>>(column)?.map(Into::into));
        Ok(EndNames {
            host: text(first)?,
            pid: row.get(first + 1)?,
            process: text(first + 2)?,
            unit: text(first + 3)?,
            pod: pod(row, first + 4)?,
            network: None,
        })
    };
    let service = row.get::<_, Option<String>>(22)?.map(Into::into);
    Ok(Some(LastLatency {
        time_ns: row.get(0)?,
        kind: *kind,
        ends: Ends { src, dst },
        is_around: row.get_ref(24)?.as_str_or_null()? == Some(Method::QuicSpinLoop.name()),
        is_src_local,
        protocol,
        names: FlowNames { src: names(10)?, dst: names(16)?, service, ..FlowNames::default() },
        mean_ns: row.get::<_, i64>(4)?.cast_unsigned(),
        count: row.get::<_, Option<i64>>(3)?.map_or(1, i64::cast_unsigned).max(1),
    }))
}

/// Reads a pod: `NAMESPACE/NAME/CONTAINER` is in this column, the UID in the next.
fn pod(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Arc<Pod>>> {
    let (text, uid): (Option<String>, Option<String>) = (row.get(column)?, row.get(column + 1)?);
    let mut parts = text.as_deref().unwrap_or_default().splitn(3, '/');
    let name = parts.next().zip(parts.next());
    let name = name.map(|(namespace, name)| PodName { namespace: namespace.into(), name: name.into() });
    let container = parts.next().map(Into::into);
    Ok(uid.map(|uid| Arc::new(Pod { uid: uid.into(), name, container })))
}

/// Reads an end of a flow. All flows between two hosts together have no ports, and neither have echoes.
fn end(row: &Row<'_>, column: usize, protocol: Protocol) -> rusqlite::Result<Option<Endpoint>> {
    let port: Option<u16> = row.get(column + 1)?;
    let address = row.get_ref(column)?.as_str()?.parse();
    let port = port.or(protocol.is_icmp().then_some(0));
    Ok(address.ok().zip(port).map(|(address, port)| Endpoint { address, port }))
}

/// Returns the protocol of this name, as [`Protocol`] is displayed.
fn protocol(name: &str) -> Option<Protocol> {
    [1, 6, 17, 58]
        .map(Protocol)
        .into_iter()
        .find(|known| known.to_string() == name)
        .or_else(|| name.parse().ok().map(Protocol))
}
