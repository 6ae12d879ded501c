//! What is in the store, by SQL and nothing else.

use std::{
    collections::HashMap,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Result};
use rusqlite::{Connection, OpenFlags};

use super::agents::{self, Sent};

/// Time between two looks for new rows: how exact the times are.
const POLL: Duration = Duration::from_millis(200);
/// How long a look waits for the collector.
const PATIENCE: Duration = Duration::from_secs(30);
/// Tables to which what agents send adds rows.
const TABLES: [&str; 4] = ["interval", "path", "clock", "counter"];

/// Looks for new rows in a store until it is stopped.
pub(super) struct Oracle {
    stop: Sender<()>,
    thread: JoinHandle<rusqlite::Result<Times>>,
}

/// When rows were first seen.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Looks that found rows of an interval of a host, and the number of rows after each.
    seen: HashMap<(i64, u64), Vec<(Instant, u64)>>,
    hosts: HashMap<String, i64>,
}

/// What a store has of what agents have sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// Different rows.
    pub(super) rows: u64,
    /// Rows that are there once more than they should.
    pub(super) doubled: u64,
    /// Rows that are not there.
    pub(super) missing: u64,
    /// Rows that nobody has sent.
    pub(super) foreign: u64,
    /// Rows of losses.
    pub(super) lost: u64,
    /// Hosts whose clock was compared.
    pub(super) clocks: u64,
    /// Rows of paths between two hosts.
    pub(super) paths: u64,
}

impl Oracle {
    /// Starts to look, at rows that are new from now on.
    pub(super) fn start(store: &Path) -> Result<Oracle> {
        let db = open(store)?;
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let (mut times, mut last) = (Times::default(), 0);
            loop {
                let is_last = stopped.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout);
                times.look(&db, &mut last)?;
                if is_last {
                    times.hosts = hosts(&db)?;
                    return Ok(times);
                }
            }
        };
        let thread = thread::Builder::new().name("oracle".into()).spawn(look);
        Ok(Oracle { stop, thread: thread.map_err(Error::io("start a thread"))? })
    }

    /// Looks for the last time.
    pub(super) fn stop(self) -> Result<Times> {
        let _ = self.stop.send(());
        let times = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        times.map_err(unreadable)
    }
}

impl Times {
    fn look(&mut self, db: &Connection, last: &mut i64) -> rusqlite::Result<()> {
        let sql = "SELECT rowid, host_id, interval_ns FROM interval WHERE rowid > ?1 ORDER BY rowid";
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([*last])?;
        let mut new: HashMap<(i64, u64), u64> = HashMap::new();
        while let Some(row) = rows.next()? {
            *last = row.get(0)?;
            *new.entry((row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned())).or_default() += 1;
        }
        let now = Instant::now();
        for (interval, rows) in new {
            let seen = self.seen.entry(interval).or_default();
            let before = seen.last().map_or(0, |(_, rows)| *rows);
            seen.push((now, before + rows));
        }
        Ok(())
    }

    /// Returns when the last of so many rows of an interval, known by its length, was first seen.
    pub(super) fn complete(&self, host: &str, length_ns: u64, rows: u64) -> Option<Instant> {
        let seen = self.seen.get(&(*self.hosts.get(host)?, length_ns))?;
        seen.iter().find(|(_, so_far)| *so_far >= rows).map(|(at, _)| *at)
    }
}

/// Counts what a store has of what agents have sent.
pub(super) fn count(store: &Path, sent: &Sent) -> Result<Seen> {
    let count = || {
        let db = open_plain(store)?;
        let names: HashMap<i64, String> = hosts(&db)?.into_iter().map(|(name, host)| (host, name)).collect();
        let wanted: HashMap<String, (u64, u64)> = (0..sent.reported.len())
            .map(|agent| (agents::name(agent), (sent.reported[agent].len() as u64, sent.rows[agent])))
            .collect();
        let mut seen = Seen { missing: sent.rows(), ..Seen::default() };
        let sql = "SELECT host_id, interval_ns, count(*), sum(n) FROM (
                SELECT host_id, interval_ns, count(*) AS n FROM interval
                GROUP BY host_id, interval_ns, flow_id, segment, direction, retransmitted)
            GROUP BY host_id, interval_ns";
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let (length_ns, different, all) = (number(1)?, number(2)?, number(3)?);
            let of_agent = names.get(&row.get(0)?).and_then(|name| wanted.get(name));
            let interval = length_ns.checked_sub(sent.interval_ns);
            match (of_agent, interval) {
                (Some((intervals, rows)), Some(interval)) if interval < *intervals => {
                    seen.rows += different.min(*rows);
                    seen.missing -= different.min(*rows);
                    seen.foreign += different.saturating_sub(*rows);
                    seen.doubled += all - different;
                }
                _ => seen.foreign += all,
            }
        }
        let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned);
        seen.lost = number("SELECT count(*) FROM lost")?;
        seen.clocks = number("SELECT count(DISTINCT host_id) FROM clock")?;
        seen.paths = number("SELECT count(*) FROM path WHERE method = 'matched' AND flow_id IS NOT NULL")?;
        Ok(seen)
    };
    count().map_err(unreadable)
}

/// Returns the numbers of rows and batches that agents have caused so far, deleted rows included.
pub(super) fn so_far(store: &Path) -> Result<(u64, u64)> {
    let db = open(store)?;
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned);
    let last = |table: &&str| number(&format!("SELECT ifnull(max(rowid), 0) FROM {table}"));
    let rows = TABLES.iter().map(last).sum::<rusqlite::Result<u64>>();
    let batches = number("SELECT ifnull(sum(last_batch), 0) FROM run");
    Ok((rows.map_err(unreadable)?, batches.map_err(unreadable)?))
}

fn hosts(db: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    let mut statement = db.prepare("SELECT name, host_id FROM host")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn open(store: &Path) -> Result<Connection> {
    open_plain(store).map_err(unreadable)
}

fn open_plain(store: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(PATIENCE)?;
    Ok(db)
}

fn unreadable(error: rusqlite::Error) -> Error {
    Error::invalid("store", error)
}
