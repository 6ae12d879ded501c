//! The queue of rows for a server, in the file of a store, and the rows that the server does not take.

use std::collections::HashMap;

use rusqlite::{
    Connection, params,
    types::{Value, ValueRef},
};

use crate::{Store, StoreError, Written, columns::Row, sqlite::failed};

/// Tables of the queue, in addition to those of every store.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS spool (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        number INTEGER NOT NULL -- distinguishes this store from others that write to the server
    ) STRICT;
    CREATE TABLE IF NOT EXISTS waiting (
        row INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice
        name TEXT NOT NULL, -- of the table on the server
        time_ns INTEGER NOT NULL,
        host_id INTEGER REFERENCES host, -- whose agent caused the row; NULL: the collector
        line BLOB NOT NULL  -- the columns, in the server's format TabSeparated
    ) STRICT;
    CREATE TABLE IF NOT EXISTS refused (
        row INTEGER PRIMARY KEY, -- the number that it had in waiting
        name TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        host_id INTEGER REFERENCES host,
        line BLOB NOT NULL,
        reason TEXT NOT NULL -- what the server said
    ) STRICT;
    INSERT INTO spool SELECT 1, random() WHERE NOT EXISTS (SELECT 1 FROM spool)";

/// What a waiting row takes in the file in addition to its line, in bytes; roughly.
const ROW_BYTES: u64 = 64;
/// Refused rows that are kept. When there are more, the oldest are deleted.
const MAX_REFUSED: u64 = 100_000;
/// Bytes of refused rows that are kept.
const MAX_REFUSED_BYTES: u64 = 64_000_000;

/// A row on its way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its number; numbers rise in the order of writing.
    pub row: i64,
    /// The name of its table on the server.
    pub table: String,
    /// Its time.
    pub time_ns: i64,
    /// Its columns in ClickHouse's format TabSeparated, without the end of the line.
    pub line: Vec<u8>,
}

/// A row that a server does not take, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// The number of the row.
    pub row: i64,
    /// What the server said.
    pub reason: String,
}

/// How much waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpoolSize {
    /// Rows that wait.
    pub rows: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// What waits, and whose it is.
#[derive(Debug, Default)]
pub(crate) struct Spooled {
    all: SpoolSize,
    /// Bytes by the number of the host whose agent caused them.
    by_host: HashMap<i64, u64>,
    refused: SpoolSize,
}

impl Spooled {
    fn read(db: &Connection) -> Written<Spooled> {
        let mut spooled = Spooled::default();
        let sql = "SELECT host_id, count(*), sum(length(line)) FROM waiting GROUP BY host_id";
        let mut statement = db.prepare(sql)?;
        let mut hosts = statement.query([])?;
        while let Some(host) = hosts.next()? {
            spooled.add(host.get(0)?, host.get::<_, i64>(1)?.cast_unsigned(), host.get::<_, i64>(2)?.cast_unsigned());
        }
        spooled.refused = db.query_row("SELECT count(*), ifnull(sum(length(line)), 0) FROM refused", [], size)?;
        Ok(spooled)
    }

    fn add(&mut self, host: Option<i64>, rows: u64, line_bytes: u64) {
        let bytes = line_bytes + rows * ROW_BYTES;
        self.all.rows += rows;
        self.all.bytes += bytes;
        if let Some(host) = host {
            *self.by_host.entry(host).or_default() += bytes;
        }
    }

    fn remove(&mut self, host: Option<i64>, rows: u64, line_bytes: u64) {
        let bytes = line_bytes + rows * ROW_BYTES;
        self.all.rows = self.all.rows.saturating_sub(rows);
        self.all.bytes = self.all.bytes.saturating_sub(bytes);
        if let Some(of_host) = host.and_then(|host| self.by_host.get_mut(&host)) {
            *of_host = of_host.saturating_sub(bytes);
        }
        self.by_host.retain(|_, bytes| *bytes > 0);
    }

    /// Adds what a transaction has queued.
    pub(crate) fn merge(&mut self, queued: &Spooled) {
        self.all.rows += queued.all.rows;
        self.all.bytes += queued.all.bytes;
        for (host, bytes) in &queued.by_host {
            *self.by_host.entry(*host).or_default() += bytes;
        }
    }
}

impl Store {
    /// Makes this store a queue: rows that are written from now on wait to be sent to a server. Returns the number that
    /// distinguishes this store's rows there from others'.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn spool(&mut self) -> Result<u64, StoreError> {
        let number = self.db().execute_batch(SCHEMA).and_then(|()| {
            let sql = "SELECT number FROM spool";
            self.db().query_row(sql, [], |row| row.get::<_, i64>(0))
        });
        let number = number.map_err(|sqlite| self.failed("write", sqlite))?;
        let spooled = Spooled::read(self.db()).map_err(|sqlite| self.failed("read", sqlite))?;
        self.set_spooled(spooled);
        Ok(number.cast_unsigned())
    }

    /// Returns the oldest rows: at most `max_rows`, and no more than fit into `max_bytes`, but at least one if any
    /// waits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn waiting(&self, max_rows: usize, max_bytes: usize) -> Result<Vec<Waiting>, StoreError> {
        let read = || {
            let sql = "SELECT row, name, time_ns, line FROM waiting ORDER BY row LIMIT ?1";
            let mut statement = self.db().prepare_cached(sql)?;
            let mut found = statement.query([max_rows as i64])?;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while let Some(row) = found.next()? {
                // Before it is copied: one row alone may be long.
                bytes += row.get_ref(3)?.as_bytes().map_or(0, <[u8]>::len);
                if bytes > max_bytes && !rows.is_empty() {
                    break;
                }
                rows.push(Waiting { row: row.get(0)?, table: row.get(1)?, time_ns: row.get(2)?, line: row.get(3)? });
            }
            Ok(rows)
        };
        read().map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Returns how much waits.
    pub fn spool_size(&self) -> SpoolSize {
        self.spooled().map_or(SpoolSize::default(), |spooled| spooled.all)
    }

    /// Returns how many hosts have rows that wait.
    pub fn spool_hosts(&self) -> u64 {
        self.spooled().map_or(0, |spooled| spooled.by_host.len() as u64)
    }

    /// Returns how many of the rows that the server did not take are kept.
    pub fn refused_size(&self) -> SpoolSize {
        self.spooled().map_or(SpoolSize::default(), |spooled| spooled.refused)
    }

    /// Returns the hosts whose agents have caused more than this many of the bytes that wait.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn hosts_beyond(&self, bytes: u64) -> Result<Vec<String>, StoreError> {
        let by_host = self.spooled().map(|spooled| &spooled.by_host);
        let beyond = by_host.into_iter().flatten().filter(|(_, of_host)| **of_host > bytes);
        let name =
            |host: &i64| self.db().query_row("SELECT name FROM host WHERE host_id = ?1", [host], |row| row.get(0));
        let names: Written<Vec<String>> = beyond.map(|(host, _)| name(host)).collect();
        names.map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Deletes the rows up to `last`: they are on the server, but for those in `refused`, which are put aside with their
    /// reason. Returns how many older refused rows had to go to make room for these.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn sent(&mut self, last: i64, refused: &[RefusedRow]) -> Result<u64, StoreError> {
        let (db, spooled, path) = self.parts();
        let Some(spooled) = spooled else {
            return Ok(0);
        };
        let removed = remove(db, last, refused).map_err(|sqlite| failed("write", path, sqlite))?;
        for (host, rows, bytes) in removed.waiting {
            spooled.remove(host, rows.cast_unsigned(), bytes.cast_unsigned());
        }
        let Some((left, deleted)) = removed.pruned else {
            return Ok(0);
        };
        spooled.refused = left;
        Ok(deleted)
    }
}

/// What was taken out of a queue.
struct Removed {
    /// Rows and bytes by host.
    waiting: Vec<(Option<i64>, i64, i64)>,
    /// If rows were put aside: those that are kept, and how many were deleted.
    pruned: Option<(SpoolSize, u64)>,
}

fn remove(db: &mut Connection, last: i64, refused: &[RefusedRow]) -> Written<Removed> {
    let transaction = db.transaction()?;
    let sql = "SELECT host_id, count(*), sum(length(line)) FROM waiting WHERE row <= ?1 GROUP BY host_id";
    let mut waiting = Vec::new();
    transaction.prepare_cached(sql)?.query([last]).and_then(|mut hosts| {
        while let Some(host) = hosts.next()? {
            waiting.push((host.get(0)?, host.get(1)?, host.get(2)?));
        }
        Ok(())
    })?;
    let sql = "INSERT OR REPLACE INTO refused (row, name, time_ns, host_id, line, reason)
        SELECT row, name, time_ns, host_id, line, ?2 FROM waiting WHERE row = ?1";
    for RefusedRow { row, reason } in refused {
        transaction.prepare_cached(sql)?.execute(params![row, reason])?;
    }
    transaction.prepare_cached("DELETE FROM waiting WHERE row <= ?1")?.execute([last])?;
    let pruned = if refused.is_empty() { None } else { Some(prune(&transaction)?) };
    transaction.commit()?;
    Ok(Removed { waiting, pruned })
}

/// Deletes the oldest refused rows beyond the limits. Returns what is left, and how many were deleted.
fn prune(db: &Connection) -> Written<(SpoolSize, u64)> {
    let mut deleted = 0;
    loop {
        let left: SpoolSize = db.query_row("SELECT count(*), ifnull(sum(length(line)), 0) FROM refused", [], size)?;
        if left.rows <= MAX_REFUSED && left.bytes <= MAX_REFUSED_BYTES {
            return Ok((left, deleted));
        }
        // A tenth at a time: what is deleted is the oldest, and the limits are no exact science.
        let some = (left.rows / 10).max(1).cast_signed();
        let sql = "DELETE FROM refused WHERE row IN (SELECT row FROM refused ORDER BY row LIMIT ?1)";
        deleted += db.execute(sql, [some])? as u64;
    }
}

fn size(row: &rusqlite::Row<'_>) -> Written<SpoolSize> {
    Ok(SpoolSize { rows: row.get::<_, i64>(0)?.cast_unsigned(), bytes: row.get::<_, i64>(1)?.cast_unsigned() })
}

/// Queues a row for a server. `host` is the number of the host whose agent caused it.
pub(super) fn enqueue(db: &Connection, queued: &mut Spooled, host: Option<i64>, row: Row<'_>) -> Written<()> {
    let sql = "INSERT INTO waiting (name, time_ns, host_id, line) VALUES (?1, ?2, ?3, ?4)";
    let mut values = Vec::new();
    row.cells.into_iter().for_each(|cell| cell.expand(&mut values));
    let line = line(&values);
    db.prepare_cached(sql)?.execute(params![row.table.name, row.time_ns, host, line])?;
    queued.add(host, 1, line.len() as u64);
    Ok(())
}

/// Formats values as a line of ClickHouse's format TabSeparated, without its end.
pub(crate) fn line(values: &[Value]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            line.push(b'\t');
        }
        put(&mut line, value.into());
    }
    line
}

fn put(line: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => line.extend_from_slice(b"\\N"),
        ValueRef::Integer(number) => line.extend_from_slice(number.to_string().as_bytes()),
        ValueRef::Real(number) => line.extend_from_slice(number.to_string().as_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            for byte in bytes {
                match byte {
                    b'\t' => line.extend_from_slice(b"\\t"),
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    b'\\' => line.extend_from_slice(b"\\\\"),
                    0 => line.extend_from_slice(b"\\0"),
                    other => line.push(*other),
                }
            }
        }
    }
}
