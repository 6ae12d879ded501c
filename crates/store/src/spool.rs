//! A store whose rows go on to a server, and wait in its file until they are there.

use rusqlite::{
    ToSql, params,
    types::{ToSqlOutput, Value, ValueRef},
};

use super::{
    ClockRow, IntervalRow, PathRow, Store, StoreError,
    sqlite::{Figures, Writing, Written, signed},
};

/// Beside the tables of a store.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS spool (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        number INTEGER NOT NULL -- tells it from others that write to the server
    ) STRICT;
    CREATE TABLE IF NOT EXISTS waiting (
        row INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice
        name TEXT NOT NULL, -- of the table on the server
        time_ns INTEGER NOT NULL,
        line BLOB NOT NULL  -- the columns, in the server's format TabSeparated
    ) STRICT;
    INSERT INTO spool SELECT 1, random() WHERE NOT EXISTS (SELECT 1 FROM spool)";

/// A row on its way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its number, in the order in which they were written.
    pub row: i64,
    /// The table that it goes to.
    pub table: String,
    /// Its time.
    pub time_ns: i64,
    /// Its columns.
    pub line: Vec<u8>,
}

impl Store {
    /// From now on, what is written waits to be sent to a server. Gives the number that tells
    /// this store's rows there from others'.
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

    /// The rows that have waited longest.
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

    /// How many rows wait.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`].
    pub fn count_waiting(&self) -> Result<u64, StoreError> {
        // They are numbered without gaps, and leave in their order. One of both in a query, so
        // that none reads the table.
        let sql = "SELECT (SELECT max(row) FROM waiting) - (SELECT min(row) FROM waiting) + 1";
        let count = self.db().query_row(sql, [], |row| row.get(0));
        let count: Option<i64> = count.map_err(|sqlite| self.failed("read", sqlite))?;
        Ok(count.unwrap_or(0).cast_unsigned())
    }

    /// Forgets rows up to this one: they are on the server.
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

impl Writing<'_> {
    pub(super) fn await_interval(&mut self, row: &IntervalRow<'_>) -> Written<()> {
        let figures = Figures::of(row.histogram);
        let (src, dst) =
            (row.flow.map(|ends| ends.src.address.to_string()), row.flow.map(|ends| ends.dst.address.to_string()));
        self.wait(
            "intervals",
            row.time_ns,
            params![
                row.time_ns,
                signed(row.length_ns),
                row.host,
                src,
                row.flow.map(|ends| ends.src.port),
                dst,
                row.flow.map(|ends| ends.dst.port),
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
                row.hook_from,
                row.hook_to,
                row.missing,
            ],
        )
    }

    pub(super) fn await_path(&mut self, row: &PathRow<'_>) -> Written<()> {
        let figures = Figures::of(row.histogram);
        let (src, dst) =
            (row.flow.map(|ends| ends.src.address.to_string()), row.flow.map(|ends| ends.dst.address.to_string()));
        self.wait(
            "paths",
            row.time_ns,
            params![
                row.time_ns,
                signed(row.length_ns),
                row.tx_host,
                row.rx_host,
                src,
                row.flow.map(|ends| ends.src.port),
                dst,
                row.flow.map(|ends| ends.dst.port),
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
            ],
        )
    }

    pub(super) fn await_clock(&mut self, row: &ClockRow<'_>) -> Written<()> {
        self.wait(
            "clock",
            row.time_ns,
            params![
                row.time_ns,
                row.host,
                row.offset_ns,
                signed(row.bound_ns),
                row.drift_ppb,
                row.drift_bound_ppb,
                row.round_trip_ns.map(signed),
                row.method,
                row.stepped,
            ],
        )
    }

    pub(super) fn wait(&mut self, table: &str, time_ns: i64, columns: &[&dyn ToSql]) -> Written<()> {
        let sql = "INSERT INTO waiting (name, time_ns, line) VALUES (?1, ?2, ?3)";
        let mut insert = self.db().prepare_cached(sql)?;
        insert.execute(params![table, time_ns, line(columns)?])?;
        Ok(())
    }
}

/// In ClickHouse's format TabSeparated, without the end of the line.
fn line(columns: &[&dyn ToSql]) -> Written<Vec<u8>> {
    let mut line = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            line.push(b'\t');
        }
        match column.to_sql()? {
            ToSqlOutput::Borrowed(value) => put(&mut line, value),
            ToSqlOutput::Owned(value) => put(&mut line, ValueRef::from(&value)),
            _ => put(&mut line, ValueRef::from(&Value::Null)),
        }
    }
    Ok(line)
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
