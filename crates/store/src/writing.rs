//! One transaction of a store.

use std::collections::HashMap;

use dwell_records::NamesObject;
use rusqlite::{
    Connection, OptionalExtension, params, params_from_iter,
    types::{ToSqlOutput, Value},
};

use crate::{
    BackendRow, ClockRow, GrayRow, IntervalRow, Loss, LostRow, PathRow, Progress,
    columns::{Cell, CounterRow, FlowEnds, NAMES, Row, flow_values, name_values, signed},
    spool::{Spooled, enqueue},
};

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

/// The result of a write in a transaction. An error rolls all of it back.
pub type Written<T> = rusqlite::Result<T>;

/// Cached row numbers of names and flows.
#[derive(Debug, Default)]
pub(super) struct RowIds {
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
    pub(super) fn refresh(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let deletions = db.prepare_cached("SELECT times FROM deletion")?.query_row([], |row| row.get(0))?;
        if deletions != self.deletions {
            *self = RowIds { deletions, ..RowIds::default() };
        }
        Ok(())
    }

    /// Empties caches that have grown too large.
    pub(super) fn shrink(&mut self) {
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
    /// Since when and until when its measurements are stored, in Unix time, as far as it is known.
    pub measured_ns: (i64, i64),
}

/// An open transaction.
#[derive(Debug)]
pub struct Writing<'a> {
    pub(super) db: &'a Connection,
    pub(super) ids: &'a mut RowIds,
    /// What the transaction has queued for a server, if there is one.
    pub(super) queued: Option<Spooled>,
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

    /// Records a time of which a run's measurements are stored. Without it, that is when its batches arrived.
    pub fn measured(&mut self, host: &str, run: &[u8], (since_ns, until_ns): (i64, i64)) -> Written<()> {
        let host = self.host(host)?;
        let sql = "UPDATE run SET begun_ns = min(begun_ns, ?3), last_ns = ?4 WHERE host_id = ?1 AND run = ?2";
        self.db.prepare_cached(sql)?.execute(params![host, run, since_ns, until_ns])?;
        Ok(())
    }

    /// Records that the run after those that were found to be killed at a time measured from another time on: nothing is lost after
    /// that. A row that was sent to a server stays as it was.
    pub fn shorten_killed(&mut self, host: &str, found_ns: i64, until_ns: i64) -> Written<()> {
        let host = self.host(host)?;
        let sql = "UPDATE lost SET to_ns = max(from_ns, ?3)
            WHERE host_id = ?1 AND time_ns = ?2 AND why = ?4 AND to_ns > ?3";
        self.db.prepare_cached(sql)?.execute(params![host, found_ns, until_ns, Loss::Killed.name()])?;
        Ok(())
    }

    /// Records that a run has ended. Nothing more of it is missed.
    pub fn end_run(&mut self, host: &str, run: &[u8], now_ns: i64) -> Written<()> {
        let host = self.host(host)?;
        let sql = "UPDATE run SET ended_ns = ?3 WHERE host_id = ?1 AND run = ?2";
        self.db.prepare_cached(sql)?.execute(params![host, run, now_ns])?;
        Ok(())
    }

    /// Records that a run goes on that was taken for killed, as it was frozen or cut off: the row that says so is deleted. Returns
    /// whether it was. A row that was sent to a server stays there.
    pub fn resume_run(&mut self, host: &str, run: &[u8]) -> Written<bool> {
        const OF_RUN: &str = "host_id = (SELECT host_id FROM host WHERE name = ?1) AND";
        let sql = format!("UPDATE run SET ended_ns = NULL WHERE {OF_RUN} run = ?2 AND ended_ns IS NOT NULL");
        let resumed = self.db.prepare_cached(&sql)?.execute(params![host, run])? > 0;
        let sql = format!("DELETE FROM lost WHERE {OF_RUN} run = lower(hex(?2)) AND why = ?3");
        self.db.prepare_cached(&sql)?.execute(params![host, run, Loss::Killed.name()])?;
        Ok(resumed)
    }

    /// Returns the runs of a host, other than this one, of which it is not known that they have ended.
    pub fn unfinished(&mut self, host: &str, run: &[u8]) -> Written<Vec<Unfinished>> {
        // Of a host that is not there yet nothing is, and asking does not add it.
        let sql = "SELECT run, last_batch, begun_ns, last_ns FROM run JOIN host USING (host_id)
            WHERE name = ?1 AND run <> ?2 AND ended_ns IS NULL ORDER BY run_id";
        let mut statement = self.db.prepare_cached(sql)?;
        let runs = statement.query_map(params![host, run], |row| {
            let measured_ns = (row.get(2)?, row.get(3)?);
            Ok(Unfinished { run: row.get(0)?, last: row.get::<_, i64>(1)?.cast_unsigned(), measured_ns })
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
        number(self.db, &mut self.ids.hosts, "host", name)
    }

    fn hook(&mut self, name: &str) -> Written<i64> {
        number(self.db, &mut self.ids.hooks, "hook", name)
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

/// Returns the number of a name in its table, which gets one if it has none yet.
fn number(db: &Connection, known: &mut HashMap<String, i64>, table: &str, name: &str) -> Written<i64> {
    if let Some(id) = known.get(name) {
        return Ok(*id);
    }
    let sql = format!(
        "INSERT INTO {table} (name) VALUES (?1)
            ON CONFLICT DO UPDATE SET name = name RETURNING {table}_id"
    );
    let id = db.query_row(&sql, [name], |row| row.get(0))?;
    known.insert(name.to_owned(), id);
    Ok(id)
}
