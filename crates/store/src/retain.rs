//! What a store keeps: rows that are too old are deleted, and the oldest ones while it is too large.

use std::{
    fmt, mem,
    time::{Duration, Instant},
};

use dwell_records::counted;
use rusqlite::Connection;

use crate::{
    Store, StoreError, Written,
    columns::signed,
    sqlite::failed,
    writing::{KNOWN_NS, OF_CAPTURE_NS},
};

/// How much a store keeps. The file does not shrink: the room of deleted rows is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Rows of one origin that are older than this are deleted; `None` keeps them.
    pub age: Option<Duration>,
    /// The oldest rows are deleted while the tables, without bytes that wait for their match, take more bytes than this; `None`
    /// keeps them.
    pub bytes: Option<u64>,
}

/// What rows are of, whose ages are nothing to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// What was measured live.
    Live,
    /// A capture, which may be of any age.
    Capture,
}

/// Keeps a store within what is retained, and says so once.
#[derive(Debug)]
pub struct Retention {
    retain: Option<Retain>,
    origin: Origin,
    has_deleted: bool,
    /// What ages of live rows are counted by.
    clock: Option<BelievedClock>,
}

impl Retention {
    /// Creates what keeps all, if `retain` is `None`, or deletes rows of this origin that are too old from a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`], if the store cannot be read.
    pub fn new(store: &Store, retain: Option<Retain>, origin: Origin) -> Result<Retention, StoreError> {
        let has_age = retain.is_some_and(|retain| retain.age.is_some());
        let clock = match has_age && origin == Origin::Live {
            true => Some(BelievedClock::new(store.last_live_ns()?, Instant::now())),
            false => None,
        };
        Ok(Retention { retain, origin, has_deleted: false, clock })
    }

    /// Deletes rows that are not to be kept, as seen at this time, in as many transactions as begin within `limit`, at least
    /// one. Returns what a person should know, when rows are deleted for the first time.
    ///
    /// # Errors
    ///
    /// As [`Store::retain`].
    pub fn apply(&mut self, store: &mut Store, now_ns: i64, limit: Duration) -> Result<Option<String>, StoreError> {
        let Some(retain) = &self.retain else { return Ok(None) };
        let (begun, mut deleted) = (Instant::now(), 0);
        let now_ns = self.clock.as_mut().map_or(now_ns, |clock| clock.believe(now_ns, begun));
        loop {
            let some = store.retain(retain, self.origin, now_ns)?;
            deleted += some;
            if some == 0 || begun.elapsed() >= limit {
                break;
            }
        }
        let is_first = deleted > 0 && !mem::replace(&mut self.has_deleted, true);
        Ok(is_first.then(|| format!("the oldest rows of the store are deleted, which keeps {retain} (--retain)")))
    }
}

/// How far Unix time may be ahead of what was expected to be believed at once: after the last row, a collector may have been away.
const AHEAD_NS: i64 = 24 * 3_600 * 1_000_000_000;
/// How long it has to stay ahead by more to be believed.
const DOUBT: Duration = Duration::from_secs(3_600);

/// Unix time by which ages are counted. A clock that is wrong for a while, as one of a machine that has just started, must not
/// delete a store: all rows are too old at the time to which it has jumped.
#[derive(Debug)]
struct BelievedClock {
    believed_ns: i64,
    at: Instant,
    /// Since when it is ahead by too much.
    ahead: Option<Instant>,
}

impl BelievedClock {
    /// Expects it to be about the time of the last row, if there is one.
    fn new(last_ns: Option<i64>, at: Instant) -> BelievedClock {
        BelievedClock { believed_ns: last_ns.unwrap_or(i64::MAX), at, ahead: None }
    }

    /// Returns the time by which ages are counted when the clock says this.
    fn believe(&mut self, now_ns: i64, at: Instant) -> i64 {
        let elapsed_ns = i64::try_from(at.duration_since(self.at).as_nanos()).unwrap_or(i64::MAX);
        let expected_ns = self.believed_ns.saturating_add(elapsed_ns);
        let is_ahead = now_ns > expected_ns.saturating_add(AHEAD_NS);
        if is_ahead && at.duration_since(*self.ahead.get_or_insert(at)) < DOUBT {
            (self.believed_ns, self.at) = (expected_ns, at);
        } else {
            *self = BelievedClock::new(Some(now_ns), at);
        }
        self.believed_ns
    }
}

impl fmt::Display for Retain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = self.age.map(|age| match age.as_secs() {
            seconds if seconds % 86_400 == 0 => counted(seconds / 86_400, "day", "days"),
            _ => format!("{age:?}"),
        });
        let bytes = self.bytes.map(|bytes| match bytes {
            1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
            1_000_000.. => format!("{:.1} MB", bytes as f64 / 1e6),
            _ => format!("{bytes} bytes"),
        });
        match (age, bytes) {
            (Some(age), Some(bytes)) => write!(f, "the rows of {age}, and at most {bytes}"),
            (Some(age), None) => write!(f, "the rows of {age}"),
            (None, Some(bytes)) => write!(f, "at most {bytes}"),
            (None, None) => write!(f, "all rows"),
        }
    }
}

/// The tables whose rows have a time.
const TIMED: [&str; 9] = ["interval", "path", "clock", "counter", "lost", "latency", "verdict", "backend", "gray"];
/// Those of them that have rows of captures too: rows without a host.
const OF_CAPTURES: [&str; 2] = ["latency", "verdict"];
/// Those whose rows refer to flows and names by number.
const REFERRING: [&str; 3] = ["interval", "path", "latency"];
/// The tables of flows and names, and their numbers. Hosts and hooks are few, and stay.
const NUMBERED: [(&str, &str); 2] = [("flow", "flow_id"), ("names", "names_id")];

/// Rows of a table that are deleted in one transaction at most, so that other writers need not wait for long.
const MOST_AT_ONCE: i64 = 20_000;

impl Store {
    /// Deletes rows that are not to be kept, as seen at this time: an age counts for rows of this origin, and a size for all.
    /// What one call leaves, the next ones delete. Returns how many rows it has deleted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`]; then nothing was deleted.
    pub fn retain(&mut self, retain: &Retain, origin: Origin, now_ns: i64) -> Result<u64, StoreError> {
        let (db, _, path) = self.parts();
        let deleted = delete(db, retain, origin, now_ns).map_err(|sqlite| failed("write", path, sqlite))?;
        if deleted > 0 {
            tidy(db).map_err(|sqlite| failed("write", path, sqlite))?;
        }
        Ok(deleted)
    }

    /// Returns the time of the last row of what was measured live; `None` if there is none.
    fn last_live_ns(&self) -> Result<Option<i64>, StoreError> {
        let lasts = TIMED.map(|table| {
            let live = if OF_CAPTURES.contains(&table) { "WHERE host_id IS NOT NULL" } else { "" };
            format!("SELECT (SELECT time_ns FROM {table} {live} ORDER BY time_ns DESC LIMIT 1) AS last")
        });
        let sql = format!("SELECT max(last) FROM ({})", lasts.join(" UNION ALL "));
        let last = self.db().query_row(&sql, [], |row| row.get(0));
        last.map_err(|sqlite| self.failed("read", sqlite))
    }
}

/// Rows of a table that are to be deleted: those before a time, and of which origin.
struct Old {
    table: &'static str,
    before_ns: i64,
    origin: &'static str,
}

impl Old {
    /// Selects at most `?2` of them, the oldest first, by an index.
    fn select(&self) -> String {
        let Old { table, origin, .. } = self;
        format!("SELECT rowid FROM {table} WHERE time_ns < ?1 {origin} ORDER BY time_ns LIMIT ?2")
    }
}

fn delete(db: &mut Connection, retain: &Retain, origin: Origin, now_ns: i64) -> Written<u64> {
    let by_size = match retain.bytes {
        Some(most) => oldest_beyond(db, most)?,
        None => None,
    };
    let by_age = retain.age.map(|age| now_ns.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)));
    let by_size = TIMED.into_iter().filter_map(|table| Some(Old { table, before_ns: by_size?, origin: "" }));
    let by_age = TIMED.into_iter().filter_map(|table| {
        let origin = match (OF_CAPTURES.contains(&table), origin) {
            (true, Origin::Live) => "AND host_id IS NOT NULL",
            (true, Origin::Capture) => "AND host_id IS NULL",
            (false, Origin::Live) => "",
            (false, Origin::Capture) => return None,
        };
        Some(Old { table, before_ns: by_age?, origin })
    });
    let mut old = Vec::new();
    for one in by_size.chain(by_age) {
        // To write keeps others waiting.
        if db.prepare_cached(&one.select())?.exists([one.before_ns, 1])? {
            old.push(one);
        }
    }
    if old.is_empty() {
        return Ok(0);
    }
    let all = db.transaction()?;
    let mut deleted = 0;
    for one in old {
        let sql = format!("DELETE FROM {} WHERE rowid IN ({})", one.table, one.select());
        deleted += all.prepare_cached(&sql)?.execute([one.before_ns, MOST_AT_ONCE])?;
    }
    all.commit()?;
    Ok(deleted as u64)
}

/// Returns the time before which rows are to be deleted, so that about as much is left as may be, if rows are equally long.
fn oldest_beyond(db: &Connection, most_bytes: u64) -> Written<Option<i64>> {
    let pages = number(db, "PRAGMA page_count")? - number(db, "PRAGMA freelist_count")?;
    let (all, most) = (pages * number(db, "PRAGMA page_size")?, signed(most_bytes));
    if all <= most {
        return Ok(None);
    }
    // Bytes that wait for their match are deleted when their time is over, however many they are.
    let bytes = all - number(db, "SELECT ifnull(sum(length(body)), 0) FROM pending")?;
    if bytes <= most {
        return Ok(None);
    }
    // A little more than is needed, so that not every interval has something to delete.
    let share = ((bytes - most) as f64 / bytes as f64 + 0.02).min(1.0);
    // Their numbers rise, and the oldest are deleted first. To count them would be to look at all.
    let rows = |table| {
        let ends = ["max", "min"].map(|end| format!("(SELECT {end}(rowid) FROM {table})"));
        number(db, &format!("SELECT ifnull({} + 1, 0)", ends.join(" - ")))
    };
    let rows = TIMED.into_iter().map(|table| Ok((table, rows(table)?))).collect::<Written<Vec<_>>>()?;
    let all = rows.iter().map(|(_, rows)| rows).sum::<i64>();
    let mut before_ns = None;
    for (table, rows) in rows {
        // Of a table with few rows some may be old; whatever is older than those of the others is deleted with them.
        if rows > 0 && rows >= all / 10 {
            let some = ((rows as f64 * share) as i64 + 1).min(MOST_AT_ONCE);
            let oldest = format!("SELECT time_ns FROM {table} ORDER BY time_ns LIMIT {some}");
            let last_ns = number(db, &format!("SELECT max(time_ns) FROM ({oldest})"))?;
            before_ns = Some(before_ns.map_or(last_ns + 1, |before_ns: i64| before_ns.min(last_ns + 1)));
        }
    }
    Ok(before_ns)
}

/// Deletes flows and names to which no row refers any more: those whose last row is older than the oldest that is left. Their
/// last times are known to within [`KNOWN_NS`], and nothing is done before there is as much to delete.
fn tidy(db: &mut Connection) -> Written<()> {
    release(db)?;
    let is_long_gone = |before_ns: i64, (table, _)| {
        let first_ns = number(db, &format!("SELECT ifnull(min(last_ns), {}) FROM {table}", i64::MAX))?;
        Ok::<_, rusqlite::Error>(first_ns < before_ns.saturating_sub(KNOWN_NS))
    };
    let before_ns = gone_before(db)?;
    for numbered in NUMBERED {
        if is_long_gone(before_ns, numbered)? {
            // Nothing refers to them: to look each up would be to look at all rows.
            db.pragma_update(None, "foreign_keys", false)?;
            let tidied = tidy_now(db);
            db.pragma_update(None, "foreign_keys", true)?;
            return tidied;
        }
    }
    Ok(())
}

fn tidy_now(db: &mut Connection) -> Written<()> {
    let all = db.transaction()?;
    let before_ns = gone_before(&all)?;
    for (table, number) in NUMBERED {
        let sql = format!(
            "DELETE FROM {table} WHERE {number} IN
                (SELECT {number} FROM {table} WHERE last_ns < ?1 ORDER BY last_ns LIMIT ?2)"
        );
        all.prepare_cached(&sql)?.execute([before_ns, MOST_AT_ONCE])?;
    }
    all.execute("UPDATE deletion SET times = times + 1", [])?;
    all.commit()
}

/// Lets flows and names of captures be deleted as others are, once no row of a capture is left.
fn release(db: &mut Connection) -> Written<()> {
    let kept = NUMBERED.map(|(table, _)| format!("EXISTS (SELECT 1 FROM {table} WHERE last_ns = {OF_CAPTURE_NS})"));
    let kept = kept.join(" OR ");
    let is_due = format!("SELECT ({kept}) AND NOT EXISTS (SELECT 1 FROM latency WHERE host_id IS NULL)");
    if number(db, &is_due)? == 0 {
        return Ok(());
    }
    let all = db.transaction()?;
    if number(&all, &is_due)? != 0 {
        let lasts = REFERRING.map(|table| format!("SELECT (SELECT max(time_ns) FROM {table}) AS last"));
        let last_ns = number(&all, &format!("SELECT ifnull(max(last), 0) FROM ({})", lasts.join(" UNION ALL ")))?;
        for (table, number) in NUMBERED {
            let sql = format!(
                "UPDATE {table} SET last_ns = ?1 WHERE {number} IN
                    (SELECT {number} FROM {table} WHERE last_ns = {OF_CAPTURE_NS} LIMIT ?2)"
            );
            all.prepare_cached(&sql)?.execute([last_ns, MOST_AT_ONCE])?;
        }
        all.execute("UPDATE deletion SET times = times + 1", [])?;
    }
    all.commit()
}

/// Returns the time of which flows and names are gone that were last known before it. Rows of captures do not count: what
/// they refer to is not known to have gone.
fn gone_before(db: &Connection) -> Written<i64> {
    let firsts = REFERRING.map(|table| {
        let live = if OF_CAPTURES.contains(&table) { "WHERE host_id IS NOT NULL" } else { "" };
        format!("SELECT (SELECT min(time_ns) FROM {table} {live}) AS first")
    });
    let sql = format!("SELECT ifnull(min(first), {}) FROM ({})", i64::MAX, firsts.join(" UNION ALL "));
    Ok(number(db, &sql)?.saturating_sub(KNOWN_NS))
}

fn number(db: &Connection, sql: &str) -> Written<i64> {
    db.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600 * 1_000_000_000;

    #[test]
    fn a_clock_that_jumps_ahead_is_believed_once_it_has_stayed_there() {
        let begun = Instant::now();
        let at = |minutes: u64| begun + Duration::from_secs(60 * minutes);
        let year_ns = 365 * 24 * HOUR_NS;
        for last_ns in [Some(100 * year_ns - 23 * HOUR_NS), None] {
            let mut clock = BelievedClock::new(last_ns, begun);
            assert_eq!(clock.believe(100 * year_ns, at(0)), 100 * year_ns);
            assert_eq!(clock.believe(101 * year_ns, at(60)), 100 * year_ns + HOUR_NS);
            assert_eq!(clock.believe(100 * year_ns + 2 * HOUR_NS, at(119)), 100 * year_ns + 2 * HOUR_NS);
            assert_eq!(clock.believe(101 * year_ns, at(120)), 100 * year_ns + 2 * HOUR_NS + HOUR_NS / 60);
            assert_eq!(clock.believe(101 * year_ns, at(179)), 100 * year_ns + 3 * HOUR_NS);
            assert_eq!(clock.believe(101 * year_ns, at(180)), 101 * year_ns);
            // Less is deleted at an earlier time.
            assert_eq!(clock.believe(1, at(181)), 1);
        }
        // It was wrong when the run began.
        let mut clock = BelievedClock::new(Some(year_ns), begun);
        assert_eq!(clock.believe(2 * year_ns, at(5)), year_ns + HOUR_NS / 12);
    }
}
