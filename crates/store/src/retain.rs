//! What a store keeps: rows that are too old are deleted, and the oldest ones while it is too large.

use std::{fmt, time::Duration};

use rusqlite::{Connection, params};

use crate::{Store, StoreError, Written, columns::signed, sqlite::failed};

/// How much a store keeps. The file does not shrink: the room of deleted rows is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Rows that are older than this are deleted; `None` keeps them.
    pub age: Option<Duration>,
    /// The oldest rows are deleted while the tables take more bytes than this; `None` keeps them.
    pub bytes: Option<u64>,
}

impl Retain {
    /// Returns what a person should know once rows are deleted.
    pub fn notice(&self) -> String {
        format!("the oldest rows of the store are deleted, which keeps {self} (--retain)")
    }
}

impl fmt::Display for Retain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = self.age.map(|age| match age.as_secs() {
            seconds if seconds % 86_400 == 0 => format!("{} days", seconds / 86_400),
            _ => format!("{age:?}"),
        });
        let bytes = self.bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9));
        match (age, bytes) {
            (Some(age), Some(bytes)) => write!(f, "the rows of {age}, and at most {bytes}"),
            (Some(age), None) => write!(f, "the rows of {age}"),
            (None, Some(bytes)) => write!(f, "at most {bytes}"),
            (None, None) => write!(f, "all rows"),
        }
    }
}

/// The tables whose rows have a time.
const TIMED: [&str; 7] = ["interval", "path", "clock", "counter", "lost", "latency", "verdict"];
/// The tables to whose rows those refer.
const NUMBERED: [Numbered; 3] = [
    Numbered {
        table: "flow",
        number: "flow_id",
        columns: &[("interval", "flow_id"), ("path", "flow_id"), ("latency", "flow_id")],
    },
    Numbered { table: "names", number: "names_id", columns: &[("latency", "names_id")] },
    Numbered { table: "hook", number: "hook_id", columns: &[("interval", "hook_from_id"), ("interval", "hook_to_id")] },
];

/// A table whose rows others refer to by number: with these columns of these tables.
struct Numbered {
    table: &'static str,
    number: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

/// Rows of a table that are deleted in one transaction at most, so that other writers need not wait for long.
const MOST_AT_ONCE: i64 = 20_000;
/// Deleted rows after which flows, names and hooks that no row refers to are deleted too, at least; and their share of
/// the rows that are left. To find them takes a look at every row.
const TIDY_AFTER: i64 = 1_000;
const TIDY_SHARE: i64 = 8;

impl Store {
    /// Deletes rows that are not to be kept, as seen at this time. What one call leaves, the next ones delete. Returns how
    /// many rows it has deleted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`]; then nothing was deleted.
    pub fn retain(&mut self, retain: &Retain, now_ns: i64) -> Result<u64, StoreError> {
        let (db, _, path) = self.parts();
        let deleted = delete(db, retain, now_ns).map_err(|sqlite| failed("write", path, sqlite))?;
        if deleted > 0 {
            tidy(db).map_err(|sqlite| failed("write", path, sqlite))?;
        }
        Ok(deleted)
    }
}

fn delete(db: &mut Connection, retain: &Retain, now_ns: i64) -> Written<u64> {
    let by_age = retain.age.map(|age| now_ns.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)));
    let by_size = match retain.bytes {
        Some(most) => oldest_beyond(db, most)?,
        None => None,
    };
    let Some(before_ns) = by_age.max(by_size) else {
        return Ok(0);
    };
    let all = db.transaction()?;
    let mut deleted = 0;
    for table in TIMED {
        let sql = format!(
            "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE time_ns < ?1 ORDER BY time_ns LIMIT ?2)"
        );
        deleted += all.prepare_cached(&sql)?.execute([before_ns, MOST_AT_ONCE])?;
    }
    all.prepare_cached("UPDATE deletion SET rows = rows + ?1")?.execute([deleted as i64])?;
    all.commit()?;
    Ok(deleted as u64)
}

/// Returns the time before which rows are to be deleted, so that about as much is left as may be.
fn oldest_beyond(db: &Connection, most_bytes: u64) -> Written<Option<i64>> {
    let number = |sql: &str| db.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let pages = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    let bytes = pages * number("PRAGMA page_size")?;
    let most = signed(most_bytes);
    if bytes <= most {
        return Ok(None);
    }
    let mut span: Option<(i64, i64)> = None;
    for table in TIMED {
        let sql = format!("SELECT (SELECT min(time_ns) FROM {table}), (SELECT max(time_ns) FROM {table})");
        let ends: (Option<i64>, Option<i64>) =
            db.prepare_cached(&sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let (Some(first), Some(last)) = ends {
            span = Some(span.map_or((first, last), |known| (known.0.min(first), known.1.max(last))));
        }
    }
    // A little more than is needed, so that not every interval has something to delete.
    let share = ((bytes - most) as f64 / bytes as f64 + 0.02).min(1.0);
    Ok(span.map(|(first, last)| first + ((last - first) as f64 * share) as i64 + 1))
}

/// Deletes what no row refers to any more, once enough rows have been deleted.
fn tidy(db: &mut Connection) -> Written<()> {
    let number = |db: &Connection, sql: &str| db.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let mut left = 0;
    for table in TIMED {
        let sql = format!("SELECT ifnull((SELECT max(rowid) FROM {table}) - (SELECT min(rowid) FROM {table}), 0)");
        left += number(db, &sql)?;
    }
    if number(db, "SELECT rows FROM deletion")? < (left / TIDY_SHARE).max(TIDY_AFTER) {
        return Ok(());
    }
    // What is deleted was just seen to have no reference; to look each up again would take a look at all rows.
    db.pragma_update(None, "foreign_keys", false)?;
    let tidied = tidy_now(db);
    db.pragma_update(None, "foreign_keys", true)?;
    tidied
}

fn tidy_now(db: &mut Connection) -> Written<()> {
    let all = db.transaction()?;
    for Numbered { table, number, columns } in NUMBERED {
        let used: Vec<_> = columns
            .iter()
            .map(|(table, column)| format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL"))
            .collect();
        all.execute(&format!("DELETE FROM {table} WHERE {number} NOT IN ({})", used.join(" UNION ")), params![])?;
    }
    all.execute("UPDATE deletion SET times = times + 1, rows = 0", params![])?;
    all.commit()
}
