//! Reading a store, also while a collector writes it.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use dwell_engine::{
    histogram::Addend,
    layers::{Direction, Ends, PathSegment},
    measure::Endpoint,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params, types::Type};

use super::{
    StoreError,
    columns::NAMES,
    sqlite::{PATIENCE, check, failed},
};

/// A store that is open for reading. All reads see its state at the time of the first one.
#[derive(Debug)]
pub struct Reader {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
    /// The version of its tables.
    version: i64,
}

/// The host, or the two hosts, of a figure, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The path from a host to a host, for bytes that both have seen; `None` where there is no agent.
    Path(Option<i64>, Option<i64>),
    /// One host, for all its bytes.
    Host(i64),
}

/// The time of bytes on a path segment in an interval.
#[derive(Debug, Clone, Copy)]
pub struct StoredSegment<'a> {
    /// The end of the interval in Unix time.
    pub time_ns: i64,
    /// The host or hosts.
    pub place: Place,
    /// The number of one direction of a connection; `None` stands for all flows together.
    pub flow: Option<i64>,
    /// The path segment.
    pub segment: PathSegment,
    /// True for bytes that TCP sent more than once, which are kept apart.
    pub resent: bool,
    /// True if the time is half of a round trip, and not measured with bytes that both hosts have seen.
    pub estimated: bool,
    /// The distribution of the times.
    pub histogram: &'a Addend,
    /// Bound on the error of the clocks.
    pub bound_ns: Option<u64>,
    /// The number of values below 0 but within the bound, which count as 0.
    pub clamped: u64,
    /// The number of values whose bound exceeds the one that was asked for.
    pub doubtful: u64,
    /// The layer without a hook that makes this segment unmeasurable.
    pub missing: Option<&'a str>,
}

/// The quality of a host's clock during a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredClock {
    /// The host's number.
    pub host: i64,
    /// The greatest bound.
    pub bound_ns: u64,
    /// How often the clock jumped.
    pub steps: u64,
    /// How the most recent exchanges were timestamped.
    pub method: String,
}

/// Batches of a host that are not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLoss {
    /// The host's number.
    pub host: i64,
    /// The numbers of the first and of the last batch, if that is known.
    pub batches: (u64, Option<u64>),
    /// When that was noticed, in Unix time.
    pub time_ns: i64,
    /// The time of their measurements, as far as it is known.
    pub since_ns: Option<i64>,
    /// The end of that time.
    pub until_ns: Option<i64>,
    /// Why they are lost: the name of a [`Loss`](crate::Loss).
    pub why: String,
}

/// A time of which an agent's host, which has intervals before it, has none. An idle host has intervals, without bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// The host's number.
    pub host: i64,
    /// The end of the last interval before.
    pub since_ns: i64,
    /// The beginning of the next one; the end of the time that was asked for if there is none.
    pub until_ns: i64,
}

/// A time, from the first to the second in Unix time. An interval belongs to it if it ends after the first and not
/// after the second.
pub type Span = (i64, i64);

/// The condition that a time can be true: from 1970 to 2116. Differences of such times fit into 63 bits.
pub(crate) const POSSIBLE: &str = "time_ns BETWEEN 0 AND 4611686018427387904";
/// The longest interval, of two years.
const MAX_LENGTH_NS: i64 = 1 << 56;

/// Returns an expression for the length of a row's interval, which is possible in any case.
fn length() -> String {
    format!("min(max(ifnull(interval_ns, 1), 1), {MAX_LENGTH_NS})")
}

impl Reader {
    /// Opens an existing store.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be read or is not a store.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        // To open the file and close it would end the locks of a writer in this process.
        let file = |io| StoreError::File { path: path.into(), io };
        if std::fs::metadata(path).map_err(file)?.is_dir() {
            return Err(file(io::ErrorKind::IsADirectory.into()));
        }
        // One thread has it at a time, so that nothing must be locked for each value.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags).map_err(|sqlite| failed("open", path, sqlite))?;
        check(&db, path)?;
        Reader::begin(db, path.into())
    }

    /// Begins to read a store. Errors name it by the path.
    pub(super) fn begin(db: Connection, path: PathBuf) -> Result<Reader, StoreError> {
        let mut reader = Reader { db, path, version: 0 };
        reader.read(|db| {
            db.busy_timeout(PATIENCE)?;
            // A transaction sees one state of the store until it ends.
            db.execute_batch("CREATE TEMP TABLE chosen (flow_id INTEGER PRIMARY KEY); BEGIN")
        })?;
        // A writer may have brought it up to date meanwhile.
        reader.version = check(&reader.db, &reader.path)?;
        Ok(reader)
    }

    /// Whether the store has the tables of verbs other than the collector, which version 5 has added.
    pub(crate) fn has_latencies(&self) -> bool {
        self.version >= 5
    }

    /// Whether the store has the table of balancers' backends, which version 7 has added.
    pub(crate) fn has_backends(&self) -> bool {
        self.version >= 7
    }

    /// Returns the columns of names, with NULL in place of those of pods, which version 7 has added, where there are none.
    pub(crate) fn names_columns(&self) -> String {
        let is_there = |name: &str| self.version >= 7 || !name.contains("_pod");
        NAMES.map(|(name, _)| if is_there(name) { name } else { "NULL" }).join(", ")
    }

    /// Whether the store has the table of gray failures, which version 7 has added.
    pub(crate) fn has_gray(&self) -> bool {
        self.version >= 7
    }

    /// Returns the numbers and names of all hosts.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if the store cannot be read, as for all other reads.
    pub fn hosts(&self) -> Result<Vec<(i64, String)>, StoreError> {
        self.all("SELECT host_id, name FROM host ORDER BY name", |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Returns the time from the beginning of the first interval to the end of the last; `None` for an empty store. Rows with times
    /// that cannot be true do not count.
    pub fn span(&self) -> Result<Option<Span>, StoreError> {
        let of = |table: &str, length: &str| {
            format!(
                "SELECT (SELECT time_ns - {length} FROM {table} WHERE {POSSIBLE} ORDER BY time_ns LIMIT 1) AS begin,
                    (SELECT max(time_ns) FROM {table} WHERE {POSSIBLE}) AS end"
            )
        };
        let length = &length();
        let mut tables = vec![of("interval", length), of("path", length)];
        if self.has_latencies() {
            tables.extend([of("latency", length), of("verdict", "1")]);
        }
        if self.has_backends() {
            tables.push(of("backend", length));
        }
        let sql = &format!("SELECT min(begin), max(end) FROM ({})", tables.join(" UNION ALL "));
        let span: (Option<i64>, Option<i64>) =
            self.read(|db| db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))?;
        Ok(span.0.zip(span.1))
    }

    /// Returns the most frequent length of an interval of segments; without any, of one of latencies and of backends.
    pub fn interval_ns(&self, span: Span) -> Result<Option<i64>, StoreError> {
        let most_frequent = |tables: &[&str]| {
            let lengths = tables.iter().map(|table| {
                format!(
                    "SELECT interval_ns FROM (SELECT interval_ns FROM {table}
                        WHERE time_ns > ?1 AND time_ns <= ?2 AND interval_ns BETWEEN 1 AND {MAX_LENGTH_NS} LIMIT 10000)"
                )
            });
            let sql = format!(
                "SELECT interval_ns FROM ({}) GROUP BY interval_ns ORDER BY count(*) DESC, interval_ns DESC LIMIT 1",
                lengths.collect::<Vec<_>>().join(" UNION ALL ")
            );
            self.read(|db| db.query_row(&sql, [span.0, span.1], |row| row.get(0)).optional())
        };
        let others = [(self.has_latencies(), "latency"), (self.has_backends(), "backend")];
        let others: Vec<_> = others.into_iter().filter(|(has, _)| *has).map(|(_, table)| table).collect();
        match most_frequent(&["interval", "path"])? {
            None if !others.is_empty() => most_frequent(&others),
            length => Ok(length),
        }
    }

    /// Returns each flow that one of these hosts saw, or all flows if no hosts are given: its number, its ends, and the
    /// count of its stamped bytes on the segment that has most of them. Flows with the most bytes come first.
    pub fn flows(&self, span: Span, hosts: &[i64]) -> Result<Vec<(i64, Ends, u64)>, StoreError> {
        let list = hosts.iter().map(i64::to_string).collect::<Vec<_>>();
        let list = list.join(",");
        let (of_host, of_path) = match hosts {
            [] => (String::new(), String::new()),
            _ => {
                (format!("AND host_id IN ({list})"), format!("AND (tx_host_id IN ({list}) OR rx_host_id IN ({list}))"))
            }
        };
        let chosen = "NOT retransmitted AND flow_id IS NOT NULL AND time_ns > ?1 AND time_ns <= ?2";
        let sql = format!(
            "SELECT flow_id, src, sport, dst, dport, max(n) AS n FROM (
            SELECT flow_id, CAST(total(count) AS INTEGER) AS n FROM interval
                WHERE segment = 'total' AND {chosen} {of_host} GROUP BY flow_id, host_id, direction
            UNION ALL SELECT flow_id, CAST(total(count) AS INTEGER) FROM path
                WHERE segment = 'end-to-end' AND {chosen} {of_path} GROUP BY flow_id)
            JOIN flow USING (flow_id) GROUP BY flow_id ORDER BY n DESC, flow_id"
        );
        self.read(|db| {
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map([span.0, span.1], |row| {
                let ends = Ends { src: endpoint(row, 1)?, dst: endpoint(row, 3)? };
                Ok((row.get(0)?, ends, row.get::<_, i64>(5)?.cast_unsigned()))
            })?;
            rows.collect()
        })
    }

    /// Returns how the receivers of flows see them, by their numbers, where that is not as their senders do: addresses are
    /// translated.
    pub fn translated(&self, span: Span) -> Result<HashMap<i64, Ends>, StoreError> {
        let has_column = "SELECT count(*) FROM pragma_table_info('path') WHERE name = 'rx_flow_id'";
        let sql =
            "SELECT DISTINCT path.flow_id, src, sport, dst, dport FROM path JOIN flow ON flow.flow_id = rx_flow_id
            WHERE segment = 'end-to-end' AND time_ns > ?1 AND time_ns <= ?2";
        self.read(|db| {
            // A store of an older version has none.
            if !db.query_row(has_column, [], |row| row.get::<_, bool>(0))? {
                return Ok(HashMap::new());
            }
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([span.0, span.1], |row| {
                Ok((row.get(0)?, Ends { src: endpoint(row, 1)?, dst: endpoint(row, 3)? }))
            })?;
            rows.collect()
        })
    }

    /// Reads all rows of a time in order: those of these flows, and those of all flows together. Returns how many were
    /// left out because they are damaged or have unknown values.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], also if all rows are damaged.
    pub fn rows(&self, span: Span, flows: &[i64], mut each: impl FnMut(&StoredSegment<'_>)) -> Result<u64, StoreError> {
        self.read(|db| {
            db.execute("DELETE FROM chosen", [])?;
            let mut insert = db.prepare("INSERT INTO chosen VALUES (?1)")?;
            for flow in flows {
                insert.execute([flow])?;
            }
            let chosen = "time_ns > ?1 AND time_ns <= ?2 AND count + (missing IS NOT NULL) > 0
                AND (flow_id IS NULL OR flow_id IN (SELECT flow_id FROM chosen))";
            let sql = format!(
                "SELECT time_ns, host_id, NULL, flow_id, segment, direction, retransmitted, 0,
                    histogram, NULL, 0, 0, missing, 0 FROM interval WHERE {chosen}
                UNION ALL SELECT time_ns, tx_host_id, rx_host_id, flow_id, segment, direction,
                    retransmitted, method = 'estimated', histogram, bound_ns, clamped, doubtful, missing, 1
                    FROM (SELECT *, NULL AS missing FROM path) WHERE {chosen} ORDER BY time_ns"
            );
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params![span.0, span.1])?;
            let (mut good, mut damaged, mut why) = (0_u64, 0, None);
            let mut addend = Addend::default();
            while let Some(row) = rows.next()? {
                match one(row, &mut addend) {
                    Ok(read) => {
                        good += 1;
                        each(&read);
                    }
                    Err(error) => {
                        damaged += 1;
                        why = Some(error);
                    }
                }
            }
            match why {
                Some(why) if good == 0 => Err(why),
                _ => Ok(damaged),
            }
        })
    }

    /// Returns the quality of each host's clock that was compared with the collector's.
    pub fn clocks(&self, span: Span) -> Result<Vec<StoredClock>, StoreError> {
        // A bare column is of the row with the maximum only where there is one maximum.
        let sql = "WITH chosen AS (SELECT * FROM clock WHERE time_ns > ?1 AND time_ns <= ?2),
                latest AS (SELECT host_id, method, max(time_ns) FROM chosen GROUP BY host_id)
            SELECT host_id, max(bound_ns), CAST(total(stepped) AS INTEGER), latest.method FROM chosen JOIN latest USING (host_id)
            GROUP BY host_id ORDER BY host_id";
        self.read(|db| {
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([span.0, span.1], |row| {
                Ok(StoredClock {
                    host: row.get(0)?,
                    bound_ns: row.get::<_, i64>(1)?.cast_unsigned(),
                    steps: row.get::<_, i64>(2)?.cast_unsigned(),
                    method: row.get(3)?,
                })
            })?;
            rows.collect()
        })
    }

    /// Returns the latest losses of these hosts, or of all if none are given, at most `most`, the latest first; and how many there
    /// are.
    pub fn lost(&self, span: Span, hosts: Option<&[i64]>, most: usize) -> Result<(Vec<StoredLoss>, u64), StoreError> {
        let chosen = format!("ifnull(to_ns, time_ns) > ?1 AND ifnull(from_ns, time_ns) <= ?2 AND {OF_HOSTS}");
        // The tables of older versions know of no losses.
        if self.version < 4 {
            return Ok((Vec::new(), 0));
        }
        self.read(|db| {
            let count = format!("SELECT count(*) FROM lost WHERE {chosen}");
            let count: i64 = db.query_row(&count, params![span.0, span.1, list(hosts)], |row| row.get(0))?;
            let sql = format!(
                "SELECT host_id, from_batch, to_batch, time_ns, from_ns, to_ns, why FROM lost WHERE {chosen}
                    ORDER BY time_ns DESC, from_batch DESC LIMIT ?4"
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params![span.0, span.1, list(hosts), most as i64], |row| {
                Ok(StoredLoss {
                    host: row.get(0)?,
                    batches: (
                        row.get::<_, i64>(1)?.cast_unsigned(),
                        row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
                    ),
                    time_ns: row.get(3)?,
                    since_ns: row.get(4)?,
                    until_ns: row.get(5)?,
                    why: row.get(6)?,
                })
            })?;
            Ok((rows.collect::<Result<_, _>>()?, count.cast_unsigned()))
        })
    }

    /// Returns the latest times of which these hosts, or all if none are given, have agents and no intervals, at most `most`, the
    /// latest first; and how many there are. Who ends `dwell stack` misses nothing.
    pub fn silences(&self, span: Span, hosts: Option<&[i64]>, most: usize) -> Result<(Vec<Silence>, u64), StoreError> {
        // Half of an interval is no silence: an interval may be late, or a clock may have been corrected.
        let length = length();
        let sql = format!(
            "WITH ends AS (
                SELECT host_id, time_ns, {length} AS interval_ns FROM interval
                WHERE flow_id IS NULL AND NOT retransmitted AND time_ns > ?1 AND time_ns <= ?2
                    AND host_id IN (SELECT host_id FROM run) AND {OF_HOSTS}
                GROUP BY host_id, time_ns
            ), steps AS (
                SELECT host_id, time_ns AS since, interval_ns AS length,
                    lead(time_ns - interval_ns, 1, ?2) OVER (PARTITION BY host_id ORDER BY time_ns) AS until
                FROM ends
            ) SELECT host_id, since, until, count(*) OVER () FROM steps WHERE until - since > length + length / 2
            ORDER BY since DESC LIMIT ?4"
        );
        self.read(|db| {
            let (mut found, mut count) = (Vec::new(), 0_i64);
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params![span.0, span.1, list(hosts), most as i64])?;
            while let Some(row) = rows.next()? {
                found.push(Silence { host: row.get(0)?, since_ns: row.get(1)?, until_ns: row.get(2)? });
                count = row.get(3)?;
            }
            Ok((found, count.cast_unsigned()))
        })
    }

    fn all<T>(&self, sql: &str, each: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> Result<Vec<T>, StoreError> {
        self.read(|db| db.prepare(sql)?.query_map([], each)?.collect())
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        read(&self.db).map_err(|sqlite| failed("read", &self.path, sqlite))
    }
}

/// The condition that a row is of one of the hosts in the third parameter, which is a [`list`].
pub(crate) const OF_HOSTS: &str = "(?3 IS NULL OR host_id IN (SELECT value FROM json_each(?3)))";

/// Writes numbers of hosts as an array of JSON; `None` stands for all hosts.
pub(crate) fn list(hosts: Option<&[i64]>) -> Option<String> {
    hosts.map(|hosts| serde_json::Value::from(hosts).to_string())
}

/// Reads a row, with its distribution in `addend`.
fn one<'a>(row: &'a Row<'_>, addend: &'a mut Addend) -> rusqlite::Result<StoredSegment<'a>> {
    let (name, direction) = (row.get_ref(4)?.as_str()?, row.get_ref(5)?.as_str_or_null()?);
    let segment = PathSegment::ALL
        .into_iter()
        .find(|segment| segment.name() == name && segment.direction().map(Direction::name) == direction);
    let is_path: bool = row.get(13)?;
    addend.decode(row.get_ref(8)?.as_blob()?).map_err(|error| wrong(8, Type::Blob, error.to_string()))?;
    Ok(StoredSegment {
        time_ns: row.get(0)?,
        place: match is_path {
            true => Place::Path(row.get(1)?, row.get(2)?),
            false => Place::Host(row.get(1)?),
        },
        flow: row.get(3)?,
        segment: segment.ok_or_else(|| wrong(4, Type::Text, format!("{name:?} is not a segment")))?,
        resent: row.get(6)?,
        estimated: row.get(7)?,
        histogram: addend,
        bound_ns: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        clamped: row.get::<_, i64>(10)?.cast_unsigned(),
        doubtful: row.get::<_, i64>(11)?.cast_unsigned(),
        missing: row.get_ref(12)?.as_str_or_null()?,
    })
}

/// Reads a number that is never negative.
pub(crate) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

/// Reads an end of a flow: the address is in this column, the port in the next.
pub(crate) fn endpoint(row: &Row<'_>, column: usize) -> rusqlite::Result<Endpoint> {
    let address: String = row.get(column)?;
    Ok(Endpoint {
        address: address.parse().map_err(|_| wrong(column, Type::Text, format!("{address:?} is not an address")))?,
        port: row.get(column + 1)?,
    })
}

fn wrong(column: usize, found: Type, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, found, what.into())
}
