//! What is in the store, by SQL and nothing else.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Result, signals::Signals};
use rusqlite::{Connection, OpenFlags, types::ValueRef};

use super::{
    agents::{self, Sent},
    clickhouse::ClickHouse,
};

/// Time between two looks for new rows: how exact the times are.
const POLL: Duration = Duration::from_millis(200);
/// How long a look waits for the collector.
const PATIENCE: Duration = Duration::from_secs(30);
/// Tables to which what agents send adds rows.
const TABLES: [&str; 4] = ["interval", "path", "clock", "counter"];

/// Looks for new rows in a store until it is stopped.
pub(super) struct Oracle {
    stop: Sender<()>,
    thread: JoinHandle<Result<Times>>,
}

/// The name of a host and the length of an interval, which tells the intervals of a host apart.
type Interval = (String, u64);

/// Looks that found new rows of an interval, and the number of rows after each.
#[derive(Debug, Default)]
pub(super) struct Times(HashMap<Interval, Vec<(Instant, u64)>>);

/// What a store has of what agents have sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
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

/// A loss that a store has: the host, and from when to when, in Unix time, as far as it is known.
pub(super) type Loss = (String, Option<i64>, Option<i64>);

/// Where the rows are.
#[derive(Clone)]
pub(super) enum Rows {
    /// In the stores of all collectors.
    Files(Vec<PathBuf>),
    /// On a server; what waits for it is in a file.
    Server(Arc<ClickHouse>, PathBuf),
}

impl Oracle {
    /// Starts to look, at rows that are new from now on.
    pub(super) fn start(rows: &Rows) -> Result<Oracle> {
        let (stop, stopped) = mpsc::channel();
        let rows = rows.clone();
        let look = move || {
            let (mut times, mut last) = (Times::default(), HashMap::new());
            loop {
                let is_last = stopped.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout);
                match &rows {
                    Rows::Files(stores) => {
                        for store in stores {
                            times.look(store, last.entry(store.clone()).or_default())?;
                        }
                    }
                    Rows::Server(server, _) => times.ask(server)?,
                }
                if is_last {
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
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Times {
    /// Looks at the rows of a file that are new.
    fn look(&mut self, store: &Path, last: &mut i64) -> Result<()> {
        let mut look = || {
            let db = open(store)?;
            let sql = "SELECT rowid, host_id, interval_ns FROM interval WHERE rowid > ?1 ORDER BY rowid";
            let mut statement = db.prepare(sql)?;
            let mut rows = statement.query([*last])?;
            let mut new: HashMap<(i64, u64), u64> = HashMap::new();
            while let Some(row) = rows.next()? {
                *last = row.get(0)?;
                *new.entry((row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned())).or_default() += 1;
            }
            let now = Instant::now();
            let names = hosts(&db)?;
            let named = new.into_iter().map(|((host, length_ns), rows)| ((names[&host].clone(), length_ns), rows));
            Ok((now, named.collect::<Vec<_>>()))
        };
        let (now, new) = look().map_err(unreadable)?;
        for (interval, rows) in new {
            let before = self.so_far(&interval);
            self.note(interval, now, before + rows);
        }
        Ok(())
    }

    /// Asks a server for the numbers of all rows.
    fn ask(&mut self, server: &ClickHouse) -> Result<()> {
        let answer = server.rows("SELECT host, interval_ns, count() FROM intervals GROUP BY host, interval_ns")?;
        let now = Instant::now();
        for row in &answer {
            let ([length_ns, rows], host) = (numbers(row)?, row[0].clone());
            self.note((host, length_ns), now, rows);
        }
        Ok(())
    }

    fn so_far(&self, interval: &Interval) -> u64 {
        self.0.get(interval).and_then(|seen| seen.last()).map_or(0, |(_, rows)| *rows)
    }

    fn note(&mut self, interval: Interval, now: Instant, rows: u64) {
        if self.so_far(&interval) != rows {
            self.0.entry(interval).or_default().push((now, rows));
        }
    }

    /// Returns when the last of so many rows of an interval, known by its length, was first seen.
    pub(super) fn complete(&self, host: &str, length_ns: u64, rows: u64) -> Option<Instant> {
        let seen = self.0.get(&(host.to_owned(), length_ns))?;
        seen.iter().find(|(_, so_far)| *so_far >= rows).map(|(at, _)| *at)
    }
}

impl Rows {
    /// Returns the numbers of rows and batches that agents have caused so far, in a file deleted rows included.
    pub(super) fn so_far(&self) -> Result<(u64, u64)> {
        let batches = "SELECT ifnull(sum(last_batch), 0) FROM run";
        match self {
            Rows::Files(stores) => {
                let count = |store: &PathBuf| {
                    let db = open(store)?;
                    let last = |table: &&str| number(&db, &format!("SELECT ifnull(max(rowid), 0) FROM {table}"));
                    Ok((TABLES.iter().map(last).sum::<rusqlite::Result<u64>>()?, number(&db, batches)?))
                };
                let counts = stores.iter().map(count).collect::<rusqlite::Result<Vec<_>>>().map_err(unreadable)?;
                Ok(counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)))
            }
            Rows::Server(server, spool) => {
                let tables = ["intervals", "paths", "clock", "counter"];
                let rows = tables.iter().map(|table| server.number(&format!("SELECT count() FROM {table}")));
                let batches = open(spool).and_then(|db| number(&db, batches)).map_err(unreadable)?;
                Ok((rows.sum::<Result<u64>>()?, batches))
            }
        }
    }

    /// Waits until a server has so many rows of intervals, at most for a time. A file has what is acknowledged.
    pub(super) fn wait_for(&self, rows: u64, limit: Duration, signals: &Signals) -> Result<()> {
        let (begun, Rows::Server(server, _)) = (Instant::now(), self) else {
            return Ok(());
        };
        while server.number("SELECT count() FROM intervals")? < rows && begun.elapsed() < limit {
            signals.pause(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Calls `each` with each host and interval that is there: its length, the number of different rows, and that of all.
    pub(super) fn each_interval(&self, mut each: impl FnMut(&str, [u64; 3])) -> Result<()> {
        match self {
            Rows::Files(stores) => each_interval(stores, each).map_err(unreadable),
            Rows::Server(server, _) => {
                let sql = "SELECT host, interval_ns, count(), sum(n) FROM (
                        SELECT host, interval_ns, count() AS n FROM intervals
                        GROUP BY host, interval_ns, src, sport, dst, dport, segment, direction, retransmitted)
                    GROUP BY host, interval_ns";
                server.rows(sql)?.iter().try_for_each(|row| {
                    each(&row[0], numbers(row)?);
                    Ok(())
                })
            }
        }
    }

    /// Returns the losses that the store has: the host, and from when to when, in Unix time, as far as it is known.
    pub(super) fn losses(&self) -> Result<Vec<Loss>> {
        match self {
            Rows::Files(stores) => {
                let read = |store: &PathBuf| {
                    let db = open(store)?;
                    let mut all = db.prepare("SELECT name, from_ns, to_ns FROM lost JOIN host USING (host_id)")?;
                    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
                };
                let losses = stores.iter().map(read).collect::<rusqlite::Result<Vec<Vec<_>>>>();
                losses.map(|losses| losses.concat()).map_err(unreadable)
            }
            Rows::Server(server, _) => {
                let rows = server.rows("SELECT host, from_ns, to_ns FROM lost")?;
                Ok(rows.into_iter().map(|row| (row[0].clone(), row[1].parse().ok(), row[2].parse().ok())).collect())
            }
        }
    }

    /// Counts what is there of what agents have sent.
    pub(super) fn count(&self, sent: &Sent) -> Result<Seen> {
        let mut seen = Seen { missing: sent.rows(), ..Seen::default() };
        let [lost, clocks, paths] = [
            "SELECT count(*) FROM lost",
            "SELECT count(DISTINCT host) FROM clock",
            "SELECT count(*) FROM paths WHERE method = 'matched' AND src IS NOT NULL",
        ];
        self.each_interval(|host, numbers| seen.add(sent, host, numbers))?;
        match self {
            Rows::Files(stores) => {
                let mut compared = Vec::new();
                let mut count = || {
                    for store in stores {
                        let db = open(store)?;
                        seen.lost += number(&db, lost)?;
                        seen.paths += number(&db, paths)?;
                        compared.push(number(&db, &clocks.replace("host)", "host_id)"))?);
                    }
                    // All collectors compare all clocks.
                    seen.clocks = compared.iter().copied().min().unwrap_or(0);
                    Ok(())
                };
                count().map_err(unreadable)?;
            }
            Rows::Server(server, _) => {
                [seen.lost, seen.clocks, seen.paths] =
                    [server.number(lost)?, server.number(clocks)?, server.number(paths)?];
            }
        }
        Ok(seen)
    }
}

impl Seen {
    /// Adds what is there of an interval: its length, the number of different rows, and that of all.
    fn add(&mut self, sent: &Sent, host: &str, [length_ns, different, all]: [u64; 3]) {
        let agent = agents::number(host).filter(|agent| *agent < sent.reported.len());
        let interval = length_ns.checked_sub(sent.interval_ns);
        match agent.zip(interval) {
            Some((agent, interval)) if interval < sent.reported[agent].len() as u64 => {
                let wanted = sent.rows[agent];
                self.missing -= different.min(wanted);
                self.foreign += different.saturating_sub(wanted);
                self.doubled += all - different;
            }
            _ => self.foreign += all,
        }
    }
}

/// Calls `each` with each host and interval: its length, the number of different rows in all stores, and that of all.
fn each_interval(stores: &[PathBuf], mut each: impl FnMut(&str, [u64; 3])) -> rusqlite::Result<()> {
    let Some((first, others)) = stores.split_first() else {
        return Ok(());
    };
    let db = open(first)?;
    // One store needs no names, which its numbers stand for.
    let (host, columns, mut from) = match others {
        [] => ("host_id", "flow_id, segment, direction, retransmitted", "interval".to_owned()),
        _ => (
            "host",
            "src, sport, dst, dport, segment, direction, retransmitted",
            "SELECT * FROM main.intervals".to_owned(),
        ),
    };
    for (number, store) in others.iter().enumerate() {
        db.execute(&format!("ATTACH ?1 AS other_{number}"), [store.to_string_lossy()])?;
        from += &format!(" UNION ALL SELECT * FROM other_{number}.intervals");
    }
    if !others.is_empty() {
        from = format!("({from})");
    }
    let sql = format!(
        "SELECT {host}, interval_ns, count(*), sum(n) FROM (
            SELECT {host}, interval_ns, count(*) AS n FROM {from} GROUP BY {host}, interval_ns, {columns})
        GROUP BY {host}, interval_ns"
    );
    let names = hosts(&db)?;
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = match row.get_ref(0)? {
            ValueRef::Integer(id) => names[&id].clone(),
            _ => row.get(0)?,
        };
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        each(&name, [number(1)?, number(2)?, number(3)?]);
    }
    Ok(())
}

/// The last numbers of an answer.
fn numbers<const N: usize>(row: &[String]) -> Result<[u64; N]> {
    let numbers = row.iter().skip(1).map(|value| value.parse().ok()).collect::<Option<Vec<u64>>>();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| Error::invalid("answer of ClickHouse", row.join(" ")))
}

fn number(db: &Connection, sql: &str) -> rusqlite::Result<u64> {
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

fn hosts(db: &Connection) -> rusqlite::Result<HashMap<i64, String>> {
    let mut statement = db.prepare("SELECT host_id, name FROM host")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn open(store: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(PATIENCE)?;
    Ok(db)
}

fn unreadable(error: rusqlite::Error) -> Error {
    Error::invalid("store", error)
}
