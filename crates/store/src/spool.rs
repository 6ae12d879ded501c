//! The queue of rows for a server, in the file of a store.

use rusqlite::{
    Connection, params,
    types::{Value, ValueRef},
};

use crate::{Store, StoreError, Written, columns::Row};

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
        line BLOB NOT NULL  -- the columns, in the server's format TabSeparated
    ) STRICT;
    INSERT INTO spool SELECT 1, random() WHERE NOT EXISTS (SELECT 1 FROM spool)";

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
        self.set_spool();
        Ok(number.cast_unsigned())
    }

    /// Returns the oldest rows, at most `most`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn waiting(&self, most: usize) -> Result<Vec<Waiting>, StoreError> {
        let rows = || {
            let sql = "SELECT row, name, time_ns, line FROM waiting ORDER BY row LIMIT ?1";
            let mut statement = self.db().prepare_cached(sql)?;
            let rows = statement.query_map([most as i64], |row| {
                Ok(Waiting { row: row.get(0)?, table: row.get(1)?, time_ns: row.get(2)?, line: row.get(3)? })
            })?;
            rows.collect::<Written<Vec<_>>>()
        };
        rows().map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Counts the rows that wait.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn count_waiting(&self) -> Result<u64, StoreError> {
        // Rows are numbered without gaps and leave in order. SQLite answers min() and max() from the index only if each
        // has a query of its own.
        let sql = "SELECT (SELECT max(row) FROM waiting) - (SELECT min(row) FROM waiting) + 1";
        let count = self.db().query_row(sql, [], |row| row.get(0));
        let count: Option<i64> = count.map_err(|sqlite| self.failed("read", sqlite))?;
        Ok(count.unwrap_or(0).cast_unsigned())
    }

    /// Deletes the rows up to `last`, which are on the server.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn sent(&mut self, last: i64) -> Result<(), StoreError> {
        let sql = "DELETE FROM waiting WHERE row <= ?1";
        let deleted = self.db().execute(sql, [last]);
        deleted.map(|_| ()).map_err(|sqlite| self.failed("write", sqlite))
    }
}

/// Queues a row for a server.
pub(super) fn enqueue(db: &Connection, row: Row<'_>) -> Written<()> {
    let sql = "INSERT INTO waiting (name, time_ns, line) VALUES (?1, ?2, ?3)";
    let mut values = Vec::new();
    row.cells.into_iter().for_each(|cell| cell.expand(&mut values));
    db.prepare_cached(sql)?.execute(params![row.table.name, row.time_ns, line(&values)])?;
    Ok(())
}

/// Formats values as a line of ClickHouse's format TabSeparated, without its end.
fn line(values: &[Value]) -> Vec<u8> {
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
