//! A store in an SQLite file with a write-ahead log: others may read while it is written.

use std::{
    fs::{File, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::{
    Progress, StoreError, Writing, Written,
    error::remedy,
    spool::Spooled,
    tables::{OLDEST, VERSION, schema, upgrade},
    writing::RowIds,
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
        (APPLICATION, found) => Err(StoreError::Version { path: path.into(), found, oldest: OLDEST, known: VERSION }),
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
