//! A store that is read, also while a collector writes it.

use std::path::{Path, PathBuf};

use dwell_engine::{
    histogram::Histogram,
    layers::{Direction, Ends, PathSegment},
    measure::Endpoint,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params, types::Type};

use super::{
    StoreError,
    sqlite::{PATIENCE, check, failed},
};

/// A store that is open for reading. All is read as it was at the first look.
#[derive(Debug)]
pub struct Reader {
    db: Connection,
    path: PathBuf,
}

/// Where a figure was taken: numbers of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// From a host to a host, of bytes that were seen on both; `None` where there is no
    /// agent.
    Way(Option<i64>, Option<i64>),
    /// One host, of all its bytes.
    Host(i64),
}

/// What a leg took in an interval.
#[derive(Debug, Clone)]
pub struct Read {
    /// When the interval ended, in Unix time.
    pub time_ns: i64,
    /// Where.
    pub place: Place,
    /// The number of one direction of a connection; `None`: all.
    pub flow: Option<i64>,
    /// Which leg.
    pub leg: PathSegment,
    /// Of bytes that TCP sent more than once.
    pub resent: bool,
    /// It is half of a round trip, and not of bytes that were seen.
    pub estimated: bool,
    /// What it took.
    pub histogram: Histogram,
    /// By how much the clocks may be wrong, at most.
    pub bound_ns: Option<u64>,
    /// Values below 0 within the bound, taken as 0.
    pub clamped: u64,
    /// Values whose bound is greater than was asked for.
    pub doubtful: u64,
    /// The layer for want of which nothing is known of it.
    pub missing: Option<String>,
}

/// How a host's clock stood over a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockRead {
    /// The host's number.
    pub host: i64,
    /// The greatest bound.
    pub bound_ns: u64,
    /// How often it jumped.
    pub steps: u64,
    /// How the exchanges were stamped, in the end.
    pub method: String,
}

/// The intervals that end in it: after the first and until the second, in Unix time.
pub type Span = (i64, i64);

impl Reader {
    /// Opens a store that there is.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the file cannot be read or is none of ours.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let file = |io| StoreError::File { path: path.into(), io };
        std::fs::File::open(path).map_err(file)?;
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(|sqlite| failed("open", path, sqlite))?;
        check(&db, path)?;
        let reader = Reader { db, path: path.into() };
        reader.read(|db| {
            db.busy_timeout(PATIENCE)?;
            // One state of the store until the end.
            db.execute_batch("CREATE TEMP TABLE chosen (flow_id INTEGER PRIMARY KEY); BEGIN")
        })?;
        Ok(reader)
    }

    /// The names of all hosts that there were, by their numbers.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], if it cannot be read, as all below.
    pub fn hosts(&self) -> Result<Vec<(i64, String)>, StoreError> {
        self.all("SELECT host_id, name FROM host ORDER BY name", |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// From the begin of the first interval to the end of the last; `None` of an empty
    /// store.
    pub fn span(&self) -> Result<Option<Span>, StoreError> {
        let sql = "SELECT min(begin), max(end) FROM (
            SELECT (SELECT time_ns - length_ns FROM interval ORDER BY time_ns LIMIT 1) AS begin,
                (SELECT max(time_ns) FROM interval) AS end
            UNION ALL SELECT (SELECT time_ns - length_ns FROM path ORDER BY time_ns LIMIT 1),
                (SELECT max(time_ns) FROM path))";
        let span: (Option<i64>, Option<i64>) =
            self.read(|db| db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))?;
        Ok(span.0.zip(span.1))
    }

    /// The length of most intervals.
    pub fn interval_ns(&self, span: Span) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT length_ns FROM (
            SELECT length_ns FROM (SELECT length_ns FROM interval
                WHERE time_ns > ?1 AND time_ns <= ?2 LIMIT 10000)
            UNION ALL SELECT length_ns FROM (SELECT length_ns FROM path
                WHERE time_ns > ?1 AND time_ns <= ?2 LIMIT 10000))
            GROUP BY length_ns ORDER BY count(*) DESC, length_ns DESC LIMIT 1";
        self.read(|db| db.query_row(sql, [span.0, span.1], |row| row.get(0)).optional())
    }

    /// Each flow that one of these hosts saw, or any if there are none, with its number and
    /// how many of its bytes were stamped where most were; most first.
    pub fn flows(&self, span: Span, hosts: &[i64]) -> Result<Vec<(i64, Ends, u64)>, StoreError> {
        let list = hosts.iter().map(i64::to_string).collect::<Vec<_>>();
        let list = list.join(",");
        let (of_host, of_way) = match hosts {
            [] => (String::new(), String::new()),
            _ => {
                (format!("AND host_id IN ({list})"), format!("AND (tx_host_id IN ({list}) OR rx_host_id IN ({list}))"))
            }
        };
        let chosen = "NOT resent AND flow_id IS NOT NULL AND time_ns > ?1 AND time_ns <= ?2";
        let sql = format!(
            "SELECT flow_id, src, sport, dst, dport, max(n) AS n FROM (
            SELECT flow_id, sum(count) AS n FROM interval
                WHERE segment = 'total' AND {chosen} {of_host} GROUP BY flow_id, host_id, direction
            UNION ALL SELECT flow_id, sum(count) FROM path
                WHERE segment = 'end-to-end' AND {chosen} {of_way} GROUP BY flow_id)
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

    /// All rows of a time in its order: of these flows, and of all flows together. Returns how many
    /// were left out as they are damaged, or hold what means nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], also if all are so.
    pub fn rows(&self, span: Span, flows: &[i64], mut each: impl FnMut(Read)) -> Result<u64, StoreError> {
        self.read(|db| {
            db.execute("DELETE FROM chosen", [])?;
            let mut insert = db.prepare("INSERT INTO chosen VALUES (?1)")?;
            for flow in flows {
                insert.execute([flow])?;
            }
            let chosen = "time_ns > ?1 AND time_ns <= ?2 AND count + (missing IS NOT NULL) > 0
                AND (flow_id IS NULL OR flow_id IN (SELECT flow_id FROM chosen))";
            let sql = format!(
                "SELECT time_ns, host_id, NULL, flow_id, segment, direction, resent, 0,
                    histogram, NULL, 0, 0, missing, 0 FROM interval WHERE {chosen}
                UNION ALL SELECT time_ns, tx_host_id, rx_host_id, flow_id, segment, direction,
                    resent, method = 'estimated', histogram, bound_ns, clamped, doubtful, missing, 1
                    FROM (SELECT *, NULL AS missing FROM path) WHERE {chosen} ORDER BY time_ns"
            );
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(params![span.0, span.1])?;
            let (mut good, mut damaged, mut why) = (0_u64, 0, None);
            while let Some(row) = rows.next()? {
                match one(row) {
                    Ok(read) => {
                        good += 1;
                        each(read);
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

    /// How the clock of each host stood that was compared with the collector's.
    pub fn clocks(&self, span: Span) -> Result<Vec<ClockRead>, StoreError> {
        let sql = "SELECT host_id, max(bound_ns), sum(stepped), method, max(time_ns) FROM clock
            WHERE time_ns > ?1 AND time_ns <= ?2 GROUP BY host_id ORDER BY host_id";
        self.read(|db| {
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([span.0, span.1], |row| {
                Ok(ClockRead {
                    host: row.get(0)?,
                    bound_ns: row.get::<_, i64>(1)?.cast_unsigned(),
                    steps: row.get::<_, i64>(2)?.cast_unsigned(),
                    method: row.get(3)?,
                })
            })?;
            rows.collect()
        })
    }

    fn all<T>(&self, sql: &str, each: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> Result<Vec<T>, StoreError> {
        self.read(|db| db.prepare(sql)?.query_map([], each)?.collect())
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        read(&self.db).map_err(|sqlite| failed("read", &self.path, sqlite))
    }
}

fn one(row: &Row<'_>) -> rusqlite::Result<Read> {
    let (segment, direction): (String, Option<String>) = (row.get(4)?, row.get(5)?);
    let leg = PathSegment::ALL
        .into_iter()
        .find(|leg| leg.name() == segment && leg.direction().map(Direction::name) == direction.as_deref());
    let histogram = Histogram::from_bytes(row.get_ref(8)?.as_blob()?);
    let is_way: bool = row.get(13)?;
    Ok(Read {
        time_ns: row.get(0)?,
        place: match is_way {
            true => Place::Way(row.get(1)?, row.get(2)?),
            false => Place::Host(row.get(1)?),
        },
        flow: row.get(3)?,
        leg: leg.ok_or_else(|| wrong(4, Type::Text, format!("{segment:?} is no segment")))?,
        resent: row.get(6)?,
        estimated: row.get(7)?,
        histogram: histogram.map_err(|error| wrong(8, Type::Blob, error.to_string()))?,
        bound_ns: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        clamped: row.get::<_, i64>(10)?.cast_unsigned(),
        doubtful: row.get::<_, i64>(11)?.cast_unsigned(),
        missing: row.get(12)?,
    })
}

/// Of a flow: its address is in this column, the port in the next.
fn endpoint(row: &Row<'_>, column: usize) -> rusqlite::Result<Endpoint> {
    let address: String = row.get(column)?;
    Ok(Endpoint {
        address: address.parse().map_err(|_| wrong(column, Type::Text, format!("{address:?} is no address")))?,
        port: row.get(column + 1)?,
    })
}

fn wrong(column: usize, found: Type, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, found, what.into())
}
