//! Reading what verbs other than the collector have stored. Stores of older versions have nothing of it.

use std::fmt;

use dwell_engine::layers::Ends;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Reader, Span, StoreError,
    read::{OF_HOSTS, list},
};

/// A row of the table `latency`, with the numbers of its host, flow and names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatencyRead<'a> {
    /// The end of the interval in Unix time.
    pub(crate) time_ns: i64,
    pub(crate) host: Option<i64>,
    /// The type of the object of JSON Lines that has the same figures, and their key there.
    pub(crate) kind: &'a str,
    pub(crate) what: &'a str,
    pub(crate) flow: Option<i64>,
    pub(crate) names: Option<i64>,
    /// The addresses of a group, and their name.
    pub(crate) prefix: Option<&'a str>,
    pub(crate) prefix_name: Option<&'a str>,
    pub(crate) method: Option<&'a str>,
    pub(crate) count: Option<u64>,
    pub(crate) mean_ns: Option<u64>,
    /// Whether an estimate may be believed; `None` for a measurement.
    pub(crate) valid: Option<bool>,
    /// The bytes of the distribution, if there is one.
    pub(crate) histogram: Option<&'a [u8]>,
}

/// A flow as a report names it.
#[derive(Debug, Clone)]
pub(crate) struct FlowRead {
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) proto: String,
    /// The ends with their ports, if both have one.
    pub(crate) ends: Option<Ends>,
}

impl fmt::Display for FlowRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {}", self.proto, self.src, self.dst)
    }
}

/// The names of an end of a flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndRead {
    pub(crate) host: Option<String>,
    pub(crate) process: Option<String>,
    /// The pod of Kubernetes with its container; without one, the unit of systemd or the container.
    pub(crate) unit: Option<String>,
}

/// A row of the table `verdict`.
#[derive(Debug, Clone)]
pub(crate) struct VerdictRead {
    pub(crate) time_ns: i64,
    pub(crate) host: Option<i64>,
    pub(crate) target: String,
    pub(crate) outcome: String,
    pub(crate) cause: Option<String>,
    pub(crate) certainty: Option<String>,
    pub(crate) sentence: String,
    /// JSON.
    pub(crate) parts: String,
    pub(crate) facts: String,
    pub(crate) remedies: String,
}

impl Reader {
    /// Returns how many rows of latencies of a time there are of each type, the one of JSON Lines: of the flows that are wanted, or
    /// of all. Wanted flows have ports at both ends.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if the store cannot be read.
    pub fn count_latencies(
        &self,
        span: Span,
        wanted: Option<&dyn Fn(&Ends) -> bool>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        if !self.has_latencies() {
            return Ok(Vec::new());
        }
        let index = self.latency_index(span)?;
        self.read(|db| {
            let of_wanted = match wanted {
                None => "",
                Some(wanted) => {
                    choose(db, wanted)?;
                    "AND flow_id IN (SELECT flow_id FROM chosen)"
                }
            };
            // To sort millions of rows takes longer than to look at each.
            let sql = format!("SELECT type FROM latency {index} WHERE time_ns > ?1 AND time_ns <= ?2 {of_wanted}");
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params![span.0, span.1])?;
            let mut counts: Vec<(String, u64)> = Vec::new();
            while let Some(row) = rows.next()? {
                let kind = row.get_ref(0)?.as_str()?;
                match counts.iter_mut().find(|(known, _)| known == kind) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((kind.to_owned(), 1)),
                }
            }
            Ok(counts)
        })
    }

    /// Returns a flow.
    pub(crate) fn flow(&self, number: i64) -> Result<FlowRead, StoreError> {
        self.read(|db| {
            let sql = "SELECT src, sport, dst, dport, proto FROM flow WHERE flow_id = ?1";
            db.prepare_cached(sql)?.query_row([number], |row| {
                Ok(FlowRead {
                    src: end(row, 0)?,
                    dst: end(row, 2)?,
                    proto: row.get(4)?,
                    ends: super::read::endpoint(row, 0)
                        .and_then(|src| Ok(Ends { src, dst: super::read::endpoint(row, 2)? }))
                        .ok(),
                })
            })
        })
    }

    /// Returns the names of the ends of a flow.
    pub(crate) fn names(&self, number: i64) -> Result<[EndRead; 2], StoreError> {
        self.read(|db| {
            let sql = format!("SELECT {} FROM names WHERE names_id = ?1", self.names_columns());
            db.prepare_cached(&sql)?.query_row([number], |row| {
                let end = |first| -> rusqlite::Result<_> {
                    let get = |column: usize| -> rusqlite::Result<Option<String>> { row.get(first + column) };
                    let (unit, pod, uid) = (get(3)?, get(4)?, get(5)?);
                    Ok(EndRead { host: get(0)?, process: get(2)?, unit: pod.or(uid).or(unit) })
                };
                Ok([end(0)?, end(6)?])
            })
        })
    }

    /// Returns the time, in RFC 3339, and the sentence of the last verdict on a target.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if the store cannot be read.
    pub fn last_verdict(&self, span: Span, target: &str) -> Result<Option<(String, String)>, StoreError> {
        if !self.has_latencies() {
            return Ok(None);
        }
        let sql = "SELECT time_ns, sentence FROM verdict WHERE time_ns > ?1 AND time_ns <= ?2 AND target = ?3
            ORDER BY time_ns DESC LIMIT 1";
        let last: Option<(i64, String)> = self.read(|db| {
            db.query_row(sql, params![span.0, span.1, target], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })?;
        Ok(last.map(|(time_ns, sentence)| {
            let time = jiff::Timestamp::from_nanosecond(time_ns.into());
            (time.map(|time| format!("{time:.0}")).unwrap_or_default(), sentence)
        }))
    }

    /// Returns the latest verdicts on these hosts, or all if none are given, at most `most`, the latest first; and how many there
    /// are.
    pub(crate) fn verdicts(
        &self,
        span: Span,
        hosts: Option<&[i64]>,
        most: usize,
    ) -> Result<(Vec<VerdictRead>, u64), StoreError> {
        if !self.has_latencies() {
            return Ok((Vec::new(), 0));
        }
        self.read(|db| {
            let chosen = format!("verdict WHERE time_ns > ?1 AND time_ns <= ?2 AND {OF_HOSTS}");
            let count = format!("SELECT count(*) FROM {chosen}");
            let count: i64 = db.query_row(&count, params![span.0, span.1, list(hosts)], |row| row.get(0))?;
            let sql = format!(
                "SELECT time_ns, host_id, target, outcome, cause, certainty, sentence, parts, facts, remedies FROM {chosen}
                    ORDER BY time_ns DESC LIMIT ?4"
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params![span.0, span.1, list(hosts), most as i64], |row| {
                Ok(VerdictRead {
                    time_ns: row.get(0)?,
                    host: row.get(1)?,
                    target: row.get(2)?,
                    outcome: row.get(3)?,
                    cause: row.get(4)?,
                    certainty: row.get(5)?,
                    sentence: row.get(6)?,
                    parts: row.get(7)?,
                    facts: row.get(8)?,
                    remedies: row.get(9)?,
                })
            })?;
            Ok((rows.collect::<Result<_, _>>()?, count.cast_unsigned()))
        })
    }
}

/// Chooses the flows that are wanted among all of the store.
fn choose(db: &Connection, wanted: &dyn Fn(&Ends) -> bool) -> rusqlite::Result<()> {
    db.execute("DELETE FROM chosen", [])?;
    let mut insert = db.prepare("INSERT INTO chosen VALUES (?1)")?;
    let mut flows = db.prepare("SELECT flow_id, src, sport, dst, dport FROM flow")?;
    let mut rows = flows.query([])?;
    while let Some(row) = rows.next()? {
        let ends = super::read::endpoint(row, 1).and_then(|src| Ok(Ends { src, dst: super::read::endpoint(row, 3)? }));
        if ends.is_ok_and(|ends| wanted(&ends)) {
            insert.execute([row.get::<_, i64>(0)?])?;
        }
    }
    Ok(())
}

/// Writes an end of a flow: the address is in this column, the port, if there is one, in the next.
fn end(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    let (address, port): (String, Option<u16>) = (row.get(column)?, row.get(column + 1)?);
    Ok(match port {
        None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    })
}
