//! A store in an SQLite file with a write-ahead log: others may read while it is written.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_records::NamesObject;
use rusqlite::{
    Connection, OptionalExtension, TransactionBehavior, params, params_from_iter,
    types::{ToSqlOutput, Value},
};

use crate::{
    BackendRow, ClockRow, GrayRow, IntervalRow, LostRow, PathRow, Progress, StoreError,
    columns::{Cell, CounterRow, FlowEnds, NAMES, Row, flow_values, name_values, signed},
    error::remedy,
    spool::{Spooled, enqueue},
    tables::{OLDEST, VERSION, schema, upgrade},
};

/// "dwel": the application ID by which a store is recognized.
const APPLICATION: i64 = 0x6477_656c;

/// How long a write waits for readers that hold the file.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for another writer, and returns whether to try again. SQLite's own handler waits for longer each time: beside a run that
/// writes without pause it would hardly ever look while nobody writes.
fn wait_for_others(tried: i32) -> bool {
    const PAUSE: Duration = Duration::from_millis(1);
    std::thread::sleep(PAUSE);
    PAUSE * tried.unsigned_abs() < PATIENCE
}
/// Flows, names, hosts and hooks whose numbers are cached. When there are more of one kind, its cache is emptied.
const MAX_CACHED: usize = 100_000;

/// No row of a flow, or with the same names, is later by more than this than the `last_ns` that is stored of it.
pub(super) const KNOWN_NS: i64 = 300_000_000_000;

/// The `last_ns` of flows and names of captures, whose age is nothing to that of what is seen live.
pub(super) const OF_CAPTURE_NS: i64 = i64::MAX;

/// Runs of one host that are remembered, the newest.
const MAX_RUNS: i64 = 1_000;
/// The same of all hosts, some 100 bytes each; and those that may go on.
pub(super) const MAX_ALL_RUNS: i64 = 1 << 18;

/// Who may write a store at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// A collector, which acknowledges what is stored. Nobody else writes.
    One,
    /// Runs that record what they measure. A power cut may take the last of it.
    Several,
}

/// A store that is open for writing: by one collector, or by any number of other runs.
#[derive(Debug)]
pub struct Store {
    // Declared before the lock so that it is dropped first: closing any descriptor of a file ends SQLite's locks on it.
    db: Connection,
    _lock: Option<File>,
    path: PathBuf,
    ids: RowIds,
    /// What waits for a server, if rows are queued instead of written into the tables.
    spooled: Option<Spooled>,
}

/// Cached row numbers of names and flows.
#[derive(Debug, Default)]
struct RowIds {
    hosts: HashMap<String, i64>,
    hooks: HashMap<String, i64>,
    flows: HashMap<FlowEnds, Numbered>,
    names: HashMap<String, Numbered>,
    /// How often rows that have such numbers had been deleted when these were read.
    deletions: i64,
}

/// The number of a flow or of names.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    id: i64,
    /// The last time that is stored of it, at least.
    last_ns: i64,
}

impl Numbered {
    /// Returns the number for a row of this time, unless a later time is to be stored first.
    fn at(&self, time_ns: i64) -> Option<i64> {
        (time_ns <= self.last_ns.saturating_add(KNOWN_NS)).then_some(self.id)
    }
}

impl RowIds {
    /// Forgets all numbers if rows that have such numbers were deleted meanwhile.
    fn refresh(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let deletions = db.prepare_cached("SELECT times FROM deletion")?.query_row([], |row| row.get(0))?;
        if deletions != self.deletions {
            *self = RowIds { deletions, ..RowIds::default() };
        }
        Ok(())
    }

    /// Empties caches that have grown too large.
    fn shrink(&mut self) {
        for names in [&mut self.hosts, &mut self.hooks] {
            if names.len() > MAX_CACHED {
                names.clear();
            }
        }
        if self.names.len() > MAX_CACHED {
            self.names.clear();
        }
        if self.flows.len() > MAX_CACHED {
            self.flows.clear();
        }
    }
}

impl Store {
    /// Opens a store, or creates one that only its owner can read: it holds names and addresses of hosts.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file cannot be written, is not a store, or has another writer.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        Store::open_for(path, Writers::One)
    }

    /// The same for any number of writers.
    pub(crate) fn open_for(path: &Path, writers: Writers) -> Result<Store, StoreError> {
        let file = |io| StoreError::File { path: path.into(), io };
        let lock = {
            // What SQLite puts beside it gets the same mode.
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(file)?
        };
        let (locked, by) = match writers {
            Writers::One => (lock.try_lock(), "another run of dwell"),
            Writers::Several => (lock.try_lock_shared(), "a collector"),
        };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Taken { path: path.into(), by },
            TryLockError::Error(io) => file(io),
        })?;
        let db = Connection::open(path).map_err(|sqlite| failed("open", path, sqlite))?;
        Store::with(db, path, Some(lock), writers)
    }

    /// Makes a store of a database. Errors name it by the path.
    pub(super) fn with(db: Connection, path: &Path, lock: Option<File>, writers: Writers) -> Result<Store, StoreError> {
        let mut store = Store { db, _lock: lock, path: path.to_owned(), ids: RowIds::default(), spooled: None };
        store.prepare(writers)?;
        Ok(store)
    }

    fn prepare(&mut self, writers: Writers) -> Result<(), StoreError> {
        // Before anything is changed in a file that is no store.
        if !is_new(&self.db, &self.path)? {
            check(&self.db, &self.path)?;
        }
        self.configure(writers).map_err(|sqlite| self.failed("write", sqlite))?;
        self.prepare_tables()
    }

    fn configure(&mut self, writers: Writers) -> rusqlite::Result<()> {
        self.db.busy_handler(Some(wait_for_others))?;
        self.db.set_prepared_statement_cache_capacity(64);
        self.db.set_transaction_behavior(TransactionBehavior::Immediate);
        self.write_ahead()?;
        // A commit must survive a power cut once it is acknowledged.
        let synchronous = if writers == Writers::One { "FULL" } else { "NORMAL" };
        self.db.pragma_update(None, "synchronous", synchronous)
    }

    /// Has writes go to a log of their own. SQLite does not wait where two do so in the same new file.
    fn write_ahead(&self) -> rusqlite::Result<()> {
        let mut tried = 0;
        loop {
            let result = self.db.pragma_update(None, "journal_mode", "WAL");
            let is_busy =
                |error: &rusqlite::Error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
            tried += 1;
            if !result.as_ref().is_err_and(is_busy) || !wait_for_others(tried) {
                return result;
            }
        }
    }

    /// Creates the tables, or brings those of an older version up to date.
    fn prepare_tables(&mut self) -> Result<(), StoreError> {
        let Store { db, path, .. } = self;
        let write = |sqlite| failed("write", path, sqlite);
        // A table that others refer to is replaced.
        db.pragma_update(None, "foreign_keys", false).map_err(write)?;
        let all = db.transaction().map_err(write)?;
        // Another writer may have done it meanwhile.
        let version = if is_new(&all, path)? { None } else { Some(check(&all, path)?) };
        let steps = match version {
            None => vec![schema()],
            Some(VERSION) => Vec::new(),
            Some(older) => upgrade(older),
        };
        let prepare = || {
            for step in &steps {
                all.execute_batch(step)?;
            }
            if !steps.is_empty() {
                all.pragma_update(None, "application_id", APPLICATION)?;
                all.pragma_update(None, "user_version", VERSION)?;
            }
            all.commit()
        };
        prepare().and_then(|()| db.pragma_update(None, "foreign_keys", true)).map_err(write)
    }

    /// Writes everything that `write` does, or nothing. When it returns, the data of a collector is on the disk. That of runs
    /// which share a store is with the kernel: a power cut may take the last of it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`]; then nothing was written.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut Writing<'_>) -> Written<T>) -> Result<T, StoreError> {
        let Store { db, ids, spooled, .. } = self;
        ids.shrink();
        let result = db.transaction().and_then(|transaction| {
            ids.refresh(&transaction)?;
            let queued = spooled.is_some().then(Spooled::default);
            let mut writing = Writing { db: &transaction, ids, queued };
            let result = write(&mut writing)?;
            let queued = writing.queued;
            transaction.commit()?;
            Ok((result, queued))
        });
        let result = result.map(|(result, queued)| {
            if let (Some(spooled), Some(queued)) = (spooled, queued) {
                spooled.merge(&queued);
            }
            result
        });
        result.map_err(|sqlite| {
            // Cached numbers may be of rows that were rolled back.
            self.ids = RowIds::default();
            self.failed("write", sqlite)
        })
    }

    /// Returns the last batch of an agent's run that is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if it cannot be read.
    pub fn last_batch(&self, host: &str, run: &[u8]) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT last_batch FROM run JOIN host USING (host_id) WHERE name = ?1 AND run = ?2";
        let last: rusqlite::Result<Option<i64>> =
            self.db.query_row(sql, params![host, run], |row| row.get(0)).optional();
        last.map(|last| last.map(i64::cast_unsigned)).map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Reads pending bytes with their host, the oldest first.
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

    /// Returns the names of all hooks.
    ///
    /// # Errors
    ///
    /// As [`Store::last_batch`].
    pub fn hooks(&self) -> Result<Vec<String>, StoreError> {
        let read = || -> rusqlite::Result<_> {
            let mut statement = self.db.prepare("SELECT name FROM hook")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Returns the collector's progress; `None` in a new store.
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

    /// Returns the database, and the path for errors.
    pub(super) fn into_db(self) -> (Connection, PathBuf) {
        (self.db, self.path)
    }

    pub(super) fn db(&self) -> &Connection {
        &self.db
    }

    pub(super) fn spooled(&self) -> Option<&Spooled> {
        self.spooled.as_ref()
    }

    pub(super) fn set_spooled(&mut self, spooled: Spooled) {
        self.spooled = Some(spooled);
    }

    /// The database, what waits in it, and the path for errors.
    pub(super) fn parts(&mut self) -> (&mut Connection, Option<&mut Spooled>, &Path) {
        (&mut self.db, self.spooled.as_mut(), &self.path)
    }

    pub(super) fn failed(&self, doing: &'static str, sqlite: rusqlite::Error) -> StoreError {
        failed(doing, &self.path, sqlite)
    }
}

/// Returns true for an empty file, and for one that was cut off before its tables were committed.
fn is_new(db: &Connection, path: &Path) -> Result<bool, StoreError> {
    let tables = "SELECT count(*) FROM sqlite_schema";
    Ok(marks(db, path)? == (0, 0) && number(db, path, tables)? == 0)
}

/// Checks that the file is a store of a version that is known. Returns it.
pub(super) fn check(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    match marks(db, path)? {
        (APPLICATION, version @ OLDEST..=VERSION) => Ok(version),
        (APPLICATION, found) => Err(StoreError::Version { path: path.into(), found, known: VERSION }),
        _ => Err(StoreError::Foreign { path: path.into() }),
    }
}

/// Returns the application ID and the version of a file.
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

/// The result of a write in a transaction. An error rolls all of it back.
pub type Written<T> = rusqlite::Result<T>;

/// What a store knew of batches that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchState {
    /// They are stored already, or known to be lost.
    Known,
    /// They are new.
    New {
        /// The first one that is new.
        first: u64,
        /// The numbers before, of which nothing has arrived.
        gap: Option<(u64, u64)>,
        /// Until when measurements before them are stored, in Unix time.
        since_ns: Option<i64>,
    },
}

/// A run that may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Its identifier.
    pub run: Vec<u8>,
    /// Its last batch.
    pub last: u64,
    /// Until when its measurements are stored, in Unix time.
    pub last_ns: i64,
}

/// An open transaction.
#[derive(Debug)]
pub struct Writing<'a> {
    db: &'a Connection,
    ids: &'a mut RowIds,
    /// What the transaction has queued for a server, if there is one.
    queued: Option<Spooled>,
}

impl Writing<'_> {
    /// Records that batches of an agent's run are stored or lost, up to `through`; `from` is the first of them. What is
    /// known already must not be written again.
    pub fn batch(&mut self, host: &str, run: &[u8], (from, through): (u64, u64), now_ns: i64) -> Written<BatchState> {
        let host = self.host(host)?;
        let sql = "SELECT last_batch, last_ns FROM run WHERE host_id = ?1 AND run = ?2";
        let known = self
            .db
            .prepare_cached(sql)?
            .query_row(params![host, run], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?)));
        let known = known.optional()?;
        let last = known.map_or(0, |(last, _)| last);
        if known.is_some() && through <= last {
            return Ok(BatchState::Known);
        }
        let sql = "INSERT INTO run (host_id, run, begun_ns, last_batch, last_ns) VALUES (?1, ?2, ?3, ?4, ?3)
            ON CONFLICT (host_id, run) DO UPDATE SET last_batch = ?4, last_ns = ?3";
        self.db.prepare_cached(sql)?.execute(params![host, run, now_ns, through.cast_signed()])?;
        if known.is_none() {
            // A run that is forgotten is new if it comes again; agents have one at a time.
            let sql = "DELETE FROM run WHERE host_id = ?1 AND run_id <= (SELECT run_id FROM run WHERE host_id = ?1
                ORDER BY run_id DESC LIMIT 1 OFFSET ?2)";
            self.db.prepare_cached(sql)?.execute(params![host, MAX_RUNS])?;
            // Their numbers rise.
            let sql = "DELETE FROM run WHERE run_id <= (SELECT max(run_id) FROM run) - ?1 AND ended_ns IS NOT NULL";
            self.db.prepare_cached(sql)?.execute([MAX_ALL_RUNS])?;
        }
        let expected = last + 1;
        let gap = (from > expected).then(|| (expected, from - 1));
        Ok(BatchState::New { first: from.max(expected), gap, since_ns: known.map(|(_, at_ns)| at_ns) })
    }

    /// Records until when a run's measurements are stored. Without it, that is when its last batch arrived.
    pub fn measured_until(&mut self, host: &str, run: &[u8], until_ns: i64) -> Written<()> {
        let host = self.host(host)?;
        let sql = "UPDATE run SET last_ns = ?3 WHERE host_id = ?1 AND run = ?2";
        self.db.prepare_cached(sql)?.execute(params![host, run, until_ns])?;
        Ok(())
    }

    /// Records that a run has ended. Nothing more of it is missed.
    pub fn end_run(&mut self, host: &str, run: &[u8], now_ns: i64) -> Written<()> {
        let host = self.host(host)?;
        let sql = "UPDATE run SET ended_ns = ?3 WHERE host_id = ?1 AND run = ?2";
        self.db.prepare_cached(sql)?.execute(params![host, run, now_ns])?;
        Ok(())
    }

    /// Returns the runs of a host, other than this one, of which it is not known that they have ended.
    pub fn unfinished(&mut self, host: &str, run: &[u8]) -> Written<Vec<Unfinished>> {
        // Of a host that is not there yet nothing is, and asking does not add it.
        let sql = "SELECT run, last_batch, last_ns FROM run JOIN host USING (host_id)
            WHERE name = ?1 AND run <> ?2 AND ended_ns IS NULL ORDER BY run_id";
        let mut statement = self.db.prepare_cached(sql)?;
        let runs = statement.query_map(params![host, run], |row| {
            Ok(Unfinished { run: row.get(0)?, last: row.get::<_, i64>(1)?.cast_unsigned(), last_ns: row.get(2)? })
        })?;
        runs.collect()
    }

    /// Writes that batches are lost.
    pub fn lost(&mut self, row: &LostRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes an interval of a segment.
    pub fn interval(&mut self, row: &IntervalRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes an interval of a path segment.
    pub fn path(&mut self, row: &PathRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes the state of a clock.
    pub fn clock(&mut self, row: &ClockRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes what a backend of a balancer did in an interval.
    pub fn backend(&mut self, row: &BackendRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes a gray failure that begins or ends.
    pub fn gray(&mut self, row: &GrayRow<'_>) -> Written<()> {
        self.insert(row.into())
    }

    /// Writes a counter since the start of a host's run; without a host, one of the collector.
    pub fn counter(&mut self, time_ns: i64, host: Option<&str>, name: &str, value: u64) -> Written<()> {
        self.insert((&CounterRow { time_ns, host, name, value }).into())
    }

    /// Writes a row of any table.
    pub(crate) fn insert(&mut self, row: Row<'_>) -> Written<()> {
        if self.queued.is_some() {
            let host = row.owner.as_deref().map(|name| self.host(name)).transpose()?;
            let queued = self.queued.as_mut().expect("as was just seen");
            return enqueue(self.db, queued, host, row);
        }
        let mut stored = Vec::with_capacity(row.cells.len());
        let mut has_host = false;
        for cell in row.cells {
            let id = match cell {
                Cell::Plain(value) => {
                    stored.push(ToSqlOutput::Owned(value));
                    continue;
                }
                Cell::Word(word) => {
                    stored.push(ToSqlOutput::Borrowed(word.into()));
                    continue;
                }
                Cell::Host(name) => {
                    has_host = name.is_some();
                    name.map(|name| self.host(&name)).transpose()?
                }
                Cell::Hook(name) => name.map(|name| self.hook(&name)).transpose()?,
                Cell::Flow(ends) => ends.map(|ends| self.flow(*ends, row.time_ns)).transpose()?,
                Cell::AnyFlow(ends) => {
                    let last_ns = if has_host { row.time_ns } else { OF_CAPTURE_NS };
                    ends.map(|ends| self.flow(*ends, last_ns)).transpose()?
                }
                Cell::Names(names) => {
                    let last_ns = if has_host { row.time_ns } else { OF_CAPTURE_NS };
                    names.map(|names| self.names(&names, last_ns)).transpose()?
                }
            };
            stored.push(ToSqlOutput::Owned(id.map_or(Value::Null, Value::Integer)));
        }
        let mut insert = self.db.prepare_cached(&row.table.insert)?;
        insert.execute(params_from_iter(stored))?;
        Ok(())
    }

    /// Stores bytes that wait for their match, until [`Writing::forget`].
    pub fn put_aside(&mut self, host: &str, arrived_ns: u64, body: &[u8]) -> Written<()> {
        let sql = "INSERT INTO pending (host_id, arrived_ns, body) VALUES (?1, ?2, ?3)";
        let host = self.host(host)?;
        let mut insert = self.db.prepare_cached(sql)?;
        insert.execute(params![host, signed(arrived_ns), body])?;
        Ok(())
    }

    /// Deletes pending bytes that arrived before a time.
    pub fn forget(&mut self, before_ns: u64) -> Written<()> {
        let mut delete = self.db.prepare_cached("DELETE FROM pending WHERE arrived_ns < ?1")?;
        delete.execute([signed(before_ns)])?;
        Ok(())
    }

    /// Records the collector's progress.
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
        if let Some(id) = self.ids.hosts.get(name) {
            return Ok(*id);
        }
        let sql = "INSERT INTO host (name) VALUES (?1)
            ON CONFLICT DO UPDATE SET name = name RETURNING host_id";
        let id = self.db.query_row(sql, [name], |row| row.get(0))?;
        self.ids.hosts.insert(name.to_owned(), id);
        Ok(id)
    }

    fn hook(&mut self, name: &str) -> Written<i64> {
        if let Some(id) = self.ids.hooks.get(name) {
            return Ok(*id);
        }
        let sql = "INSERT INTO hook (name) VALUES (?1)
            ON CONFLICT DO UPDATE SET name = name RETURNING hook_id";
        let id = self.db.query_row(sql, [name], |row| row.get(0))?;
        self.ids.hooks.insert(name.to_owned(), id);
        Ok(id)
    }

    fn flow(&mut self, ends: FlowEnds, time_ns: i64) -> Written<i64> {
        if let Some(id) = self.ids.flows.get(&ends).and_then(|known| known.at(time_ns)) {
            return Ok(id);
        }
        let sql = "INSERT INTO flow (src, sport, dst, dport, proto, id, last_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT DO UPDATE SET last_ns = max(last_ns, excluded.last_ns) RETURNING flow_id";
        let values = flow_values(Some(&ends)).into_iter().map(|(_, value)| value).chain([time_ns.into()]);
        let id = self.db.prepare_cached(sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
        self.ids.flows.insert(ends, Numbered { id, last_ns: time_ns });
        Ok(id)
    }

    fn names(&mut self, names: &NamesObject, time_ns: i64) -> Written<i64> {
        let values = name_values(Some(names));
        let key = format!("{values:?}");
        if let Some(id) = self.ids.names.get(&key).and_then(|known| known.at(time_ns)) {
            return Ok(id);
        }
        let columns = NAMES.map(|(name, _)| name).join(", ");
        let marks = ["?"; NAMES.len()].join(", ");
        let sql = format!(
            "INSERT INTO names ({columns}, last_ns) VALUES ({marks}, ?)
            ON CONFLICT DO UPDATE SET last_ns = max(last_ns, excluded.last_ns) RETURNING names_id"
        );
        let values = values.into_iter().chain([time_ns.into()]);
        let id = self.db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
        self.ids.names.insert(key, Numbered { id, last_ns: time_ns });
        Ok(id)
    }
}
