//! A store in a file of SQLite, with a write-ahead log: others may read while it is written.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_engine::{histogram::Histogram, layers::Ends};
use rusqlite::{Connection, OptionalExtension, params};

use super::{ClockRow, IntervalRow, PathRow, Progress, StoreError, error::remedy};

/// "dwel", so that a file of something else is told.
const APPLICATION: i64 = 0x6477_656c;
/// Of the tables in `schema.sql`.
const VERSION: i64 = 1;
const SCHEMA: &str = include_str!("schema.sql");

/// How long a write waits for readers that hold the file.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Flows whose numbers are remembered; beyond them, they are looked up again.
const FLOWS_KNOWN: usize = 100_000;

/// A store that is open for writing. Only one process has it so.
#[derive(Debug)]
pub struct Store {
    // Before the lock, which must outlast it: closing any descriptor of a file
    // ends the locks of SQLite on it.
    db: Connection,
    _lock: File,
    path: PathBuf,
    known: Known,
    /// Rows go on to a server.
    is_spool: bool,
}

/// Numbers of names.
#[derive(Debug, Default)]
struct Known {
    hosts: HashMap<String, i64>,
    hooks: HashMap<String, i64>,
    flows: HashMap<Ends, i64>,
}

impl Store {
    /// Opens a store, or makes one.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the file cannot be written, is none of ours, or has another
    /// writer.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let file = |io| StoreError::File { path: path.into(), io };
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(file)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Taken { path: path.into() },
            TryLockError::Error(io) => file(io),
        })?;
        let (db, path) = (Connection::open(path), path.to_owned());
        let db = db.map_err(|sqlite| failed("open", &path, sqlite))?;
        let mut store = Store { db, _lock: lock, path, known: Known::default(), is_spool: false };
        store.prepare()?;
        Ok(store)
    }

    fn prepare(&mut self) -> Result<(), StoreError> {
        let is_new = is_new(&self.db, &self.path)?;
        if !is_new {
            check(&self.db, &self.path)?;
        }
        self.prepare_tables(is_new).map_err(|sqlite| self.failed("write", sqlite))
    }

    fn prepare_tables(&mut self, is_new: bool) -> rusqlite::Result<()> {
        self.db.busy_timeout(PATIENCE)?;
        self.db.set_prepared_statement_cache_capacity(64);
        self.db.pragma_update(None, "journal_mode", "WAL")?;
        // A commit is on the disk when it is told, also after a power cut.
        self.db.pragma_update(None, "synchronous", "FULL")?;
        self.db.pragma_update(None, "foreign_keys", true)?;
        if is_new {
            let all = self.db.transaction()?;
            all.execute_batch(SCHEMA)?;
            all.pragma_update(None, "application_id", APPLICATION)?;
            all.pragma_update(None, "user_version", VERSION)?;
            all.commit()?;
        }
        Ok(())
    }

    /// Writes all that `write` does, or nothing. When it returns, all is on the disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], and then nothing of it is there.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut Writing<'_>) -> Written<T>) -> Result<T, StoreError> {
        let Store { db, known, is_spool, .. } = self;
        if known.flows.len() > FLOWS_KNOWN {
            known.flows.clear();
        }
        let result = db.transaction().and_then(|transaction| {
            let mut writing = Writing { db: &transaction, known, is_spool: *is_spool };
            let result = write(&mut writing)?;
            transaction.commit()?;
            Ok(result)
        });
        result.map_err(|sqlite| {
            // Their numbers may be of rows that are not there.
            self.known = Known::default();
            self.failed("write", sqlite)
        })
    }

    /// The last batch that is here of an agent's run.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], if it cannot be read.
    pub fn last_batch(&self, host: &str, run: &[u8]) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT last_batch FROM run JOIN host USING (host_id) WHERE name = ?1 AND run = ?2";
        let last: rusqlite::Result<Option<i64>> =
            self.db.query_row(sql, params![host, run], |row| row.get(0)).optional();
        last.map(|last| last.map(i64::cast_unsigned)).map_err(|sqlite| self.failed("read", sqlite))
    }

    /// What was put aside and not forgotten, the oldest first: host and bytes.
    ///
    /// # Errors
    ///
    /// As [`Store::last_batch`].
    pub fn pending(&self, mut each: impl FnMut(String, Vec<u8>)) -> Result<(), StoreError> {
        let sql = "SELECT name, body FROM pending JOIN host USING (host_id) ORDER BY pending_id";
        let all = || {
            let mut statement = self.db.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(row.get(0)?, row.get(1)?);
            }
            Ok(())
        };
        let mut all = all;
        all().map_err(|sqlite| self.failed("read", sqlite))
    }

    /// How far the collector had come; `None` at first.
    ///
    /// # Errors
    ///
    /// As [`Store::last_batch`].
    pub fn progress(&self) -> Result<Option<Progress>, StoreError> {
        let sql = "SELECT boot, offset_ns, told_at_ns, told_until_ns FROM progress";
        let progress = self.db.query_row(sql, [], |row| {
            Ok(Progress {
                boot: row.get(0)?,
                offset_ns: row.get(1)?,
                told_at_ns: row.get::<_, i64>(2)?.cast_unsigned(),
                told_until_ns: row.get::<_, i64>(3)?.cast_unsigned(),
            })
        });
        progress.optional().map_err(|sqlite| self.failed("read", sqlite))
    }

    pub(super) fn db(&self) -> &Connection {
        &self.db
    }

    pub(super) fn set_spool(&mut self) {
        self.is_spool = true;
    }

    pub(super) fn failed(&self, doing: &'static str, sqlite: rusqlite::Error) -> StoreError {
        failed(doing, &self.path, sqlite)
    }
}

/// That there is nothing in it: a file without a byte, or one whose tables were not made to the
/// end.
fn is_new(db: &Connection, path: &Path) -> Result<bool, StoreError> {
    let tables = "SELECT count(*) FROM sqlite_schema";
    Ok(marks(db, path)? == (0, 0) && number(db, path, tables)? == 0)
}

/// That it is a store of ours.
pub(super) fn check(db: &Connection, path: &Path) -> Result<(), StoreError> {
    match marks(db, path)? {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, found) => Err(StoreError::Version { path: path.into(), found, known: VERSION }),
        _ => Err(StoreError::Foreign { path: path.into() }),
    }
}

/// Whose file it is, and of which version.
fn marks(db: &Connection, path: &Path) -> Result<(i64, i64), StoreError> {
    Ok((number(db, path, "PRAGMA application_id")?, number(db, path, "PRAGMA user_version")?))
}

fn number(db: &Connection, path: &Path, sql: &str) -> Result<i64, StoreError> {
    let number = db.query_row(sql, [], |row| row.get(0));
    number.map_err(|sqlite| match sqlite.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::Foreign { path: path.into() },
        _ => failed("read", path, sqlite),
    })
}

pub(super) fn failed(doing: &'static str, path: &Path, sqlite: rusqlite::Error) -> StoreError {
    StoreError::Sqlite { doing, path: path.into(), remedy: remedy(&sqlite), sqlite }
}

/// What comes of a write in a transaction; an error undoes all of it.
pub type Written<T> = rusqlite::Result<T>;

/// A transaction that is under way.
#[derive(Debug)]
pub struct Writing<'a> {
    db: &'a Connection,
    known: &'a mut Known,
    is_spool: bool,
}

impl Writing<'_> {
    pub(super) fn db(&self) -> &Connection {
        self.db
    }

    /// Notes a batch of an agent's run. False if it is here already: then its content must not be
    /// written again.
    pub fn batch(&mut self, host: &str, run: &[u8], batch: u64, now_ns: i64) -> Written<bool> {
        let host = self.host(host)?;
        let sql = "INSERT INTO run (host_id, run, begun_ns, last_batch) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (host_id, run) DO UPDATE SET last_batch = ?4 WHERE last_batch < ?4";
        let mut insert = self.db.prepare_cached(sql)?;
        Ok(insert.execute(params![host, run, now_ns, batch.cast_signed()])? > 0)
    }

    /// Writes what a segment took.
    pub fn interval(&mut self, row: &IntervalRow<'_>) -> Written<()> {
        if self.is_spool {
            return self.await_interval(row);
        }
        let sql = "INSERT INTO interval (time_ns, length_ns, host_id, flow_id, segment, direction,
            part_of, resent, count, sum_ns, mean_ns, min_ns, max_ns, p50_ns, p90_ns, p99_ns,
            histogram, hook_from_id, hook_to_id, missing) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,
            ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
        let host = self.host(row.host)?;
        let flow = row.flow.map(|ends| self.flow(ends)).transpose()?;
        let from = row.hook_from.map(|name| self.hook(name)).transpose()?;
        let to = row.hook_to.map(|name| self.hook(name)).transpose()?;
        let figures = Figures::of(row.histogram);
        self.db.prepare_cached(sql)?.execute(params![
            row.time_ns,
            signed(row.length_ns),
            host,
            flow,
            row.segment.name(),
            row.segment.direction().name(),
            row.segment.part_of().map(|part| part.name()),
            row.resent,
            figures.count,
            figures.sum,
            figures.mean,
            figures.min,
            figures.max,
            figures.p50,
            figures.p90,
            figures.p99,
            row.histogram.to_bytes(),
            from,
            to,
            row.missing,
        ])?;
        Ok(())
    }

    /// Writes what a leg took.
    pub fn path(&mut self, row: &PathRow<'_>) -> Written<()> {
        if self.is_spool {
            return self.await_path(row);
        }
        let sql = "INSERT INTO path (time_ns, length_ns, tx_host_id, rx_host_id, flow_id, segment,
            direction, part_of, resent, method, count, sum_ns, mean_ns, min_ns, max_ns, p50_ns,
            p90_ns, p99_ns, histogram, bound_ns, clamped, doubtful) VALUES (?1, ?2, ?3, ?4, ?5,
            ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";
        let tx_host = row.tx_host.map(|name| self.host(name)).transpose()?;
        let rx_host = row.rx_host.map(|name| self.host(name)).transpose()?;
        let flow = row.flow.map(|ends| self.flow(ends)).transpose()?;
        let figures = Figures::of(row.histogram);
        self.db.prepare_cached(sql)?.execute(params![
            row.time_ns,
            signed(row.length_ns),
            tx_host,
            rx_host,
            flow,
            row.leg.name(),
            row.leg.direction().map(|direction| direction.name()),
            row.leg.part_of().map(|part| part.name()),
            row.resent,
            row.method.name(),
            figures.count,
            figures.sum,
            figures.mean,
            figures.min,
            figures.max,
            figures.p50,
            figures.p90,
            figures.p99,
            row.histogram.to_bytes(),
            row.bound_ns.map(signed),
            signed(row.clamped),
            signed(row.doubtful),
        ])?;
        Ok(())
    }

    /// Writes how a clock stood.
    pub fn clock(&mut self, row: &ClockRow<'_>) -> Written<()> {
        if self.is_spool {
            return self.await_clock(row);
        }
        let sql = "INSERT INTO clock (time_ns, host_id, offset_ns, bound_ns, drift_ppb,
            drift_bound_ppb, round_trip_ns, method, stepped)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let host = self.host(row.host)?;
        self.db.prepare_cached(sql)?.execute(params![
            row.time_ns,
            host,
            row.offset_ns,
            signed(row.bound_ns),
            row.drift_ppb,
            row.drift_bound_ppb,
            row.round_trip_ns.map(signed),
            row.method,
            row.stepped,
        ])?;
        Ok(())
    }

    /// Writes what a host has counted since the start of its run; without a host, the collector.
    pub fn counter(&mut self, time_ns: i64, host: Option<&str>, name: &str, value: u64) -> Written<()> {
        if self.is_spool {
            let columns = params![time_ns, host, name, signed(value)];
            return self.wait("counter", time_ns, columns);
        }
        let sql = "INSERT INTO counter (time_ns, host_id, name, value) VALUES (?1, ?2, ?3, ?4)";
        let host = host.map(|name| self.host(name)).transpose()?;
        let mut insert = self.db.prepare_cached(sql)?;
        insert.execute(params![time_ns, host, name, signed(value)])?;
        Ok(())
    }

    /// Puts bytes aside until they are forgotten.
    pub fn put_aside(&mut self, host: &str, arrived_ns: u64, body: &[u8]) -> Written<()> {
        let sql = "INSERT INTO pending (host_id, arrived_ns, body) VALUES (?1, ?2, ?3)";
        let host = self.host(host)?;
        let mut insert = self.db.prepare_cached(sql)?;
        insert.execute(params![host, signed(arrived_ns), body])?;
        Ok(())
    }

    /// Forgets what was put aside before a time.
    pub fn forget(&mut self, before_ns: u64) -> Written<()> {
        let mut delete = self.db.prepare_cached("DELETE FROM pending WHERE arrived_ns < ?1")?;
        delete.execute([signed(before_ns)])?;
        Ok(())
    }

    /// Notes how far the collector has come.
    pub fn progress(&mut self, progress: &Progress) -> Written<()> {
        let sql = "INSERT INTO progress (only, boot, offset_ns, told_at_ns, told_until_ns)
            VALUES (1, ?1, ?2, ?3, ?4) ON CONFLICT (only) DO UPDATE
            SET boot = ?1, offset_ns = ?2, told_at_ns = ?3, told_until_ns = ?4";
        self.db.prepare_cached(sql)?.execute(params![
            progress.boot,
            progress.offset_ns,
            signed(progress.told_at_ns),
            signed(progress.told_until_ns),
        ])?;
        Ok(())
    }

    fn host(&mut self, name: &str) -> Written<i64> {
        if let Some(id) = self.known.hosts.get(name) {
            return Ok(*id);
        }
        let sql = "INSERT INTO host (name) VALUES (?1)
            ON CONFLICT DO UPDATE SET name = name RETURNING host_id";
        let id = self.db.query_row(sql, [name], |row| row.get(0))?;
        self.known.hosts.insert(name.to_owned(), id);
        Ok(id)
    }

    fn hook(&mut self, name: &str) -> Written<i64> {
        if let Some(id) = self.known.hooks.get(name) {
            return Ok(*id);
        }
        let sql = "INSERT INTO hook (name) VALUES (?1)
            ON CONFLICT DO UPDATE SET name = name RETURNING hook_id";
        let id = self.db.query_row(sql, [name], |row| row.get(0))?;
        self.known.hooks.insert(name.to_owned(), id);
        Ok(id)
    }

    fn flow(&mut self, ends: Ends) -> Written<i64> {
        if let Some(id) = self.known.flows.get(&ends) {
            return Ok(*id);
        }
        let sql = "INSERT INTO flow (src, sport, dst, dport) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT DO UPDATE SET src = src RETURNING flow_id";
        let (src, dst) = (ends.src.address.to_string(), ends.dst.address.to_string());
        let id = self
            .db
            .prepare_cached(sql)?
            .query_row(params![src, ends.src.port, dst, ends.dst.port], |row| row.get(0))?;
        self.known.flows.insert(ends, id);
        Ok(id)
    }
}

/// A distribution, as columns.
pub(super) struct Figures {
    pub(super) count: i64,
    pub(super) sum: i64,
    pub(super) mean: Option<i64>,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) p50: Option<i64>,
    pub(super) p90: Option<i64>,
    pub(super) p99: Option<i64>,
}

impl Figures {
    pub(super) fn of(histogram: &Histogram) -> Figures {
        let quantile = |q| histogram.quantile_ns(q).map(signed);
        Figures {
            count: signed(histogram.count()),
            sum: i64::try_from(histogram.sum_ns()).unwrap_or(i64::MAX),
            mean: histogram.mean_ns().map(signed),
            min: histogram.min_ns().map(signed),
            max: histogram.max_ns().map(signed),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
        }
    }
}

/// SQLite has no greater numbers; in nanoseconds these are 292 years.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
