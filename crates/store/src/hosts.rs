//! The hosts of a store: how many there are, and those of which nothing is left.

use rusqlite::params;

use crate::{Store, StoreError, Written, sqlite::failed, writing::KNOWN_NS};

/// Hosts that are forgotten at once at most.
const MOST_AT_ONCE: i64 = 4_096;
/// Tables with few rows, in which a host is looked for. Of the others it is known that their rows are no later than the host's
/// last batch, or by little.
const SMALL: [&str; 7] = ["clock", "counter", "lost", "latency", "verdict", "backend", "pending"];
/// The same in the file of a spool.
const OF_SPOOL: [&str; 2] = ["waiting", "refused"];
const LARGE: [&str; 2] = ["interval", "path"];

impl Store {
    /// Returns the number of hosts.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`] if it cannot be read.
    pub fn hosts(&self) -> Result<u64, StoreError> {
        let count = self.db().query_row("SELECT count(*) FROM host", [], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Returns whether the store has a host of this name.
    ///
    /// # Errors
    ///
    /// As [`Store::hosts`].
    pub fn has_host(&self, name: &str) -> Result<bool, StoreError> {
        let found = self.db().prepare_cached("SELECT 1 FROM host WHERE name = ?1");
        found.and_then(|mut host| host.exists([name])).map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Forgets hosts with their runs, those that were last heard of long ago first: of which no row is left, whose last batch
    /// arrived before a time, and which `may_go`. Returns how many.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sqlite`]; then none is forgotten.
    pub fn forget_hosts(&mut self, before_ns: i64, may_go: impl Fn(&str) -> bool) -> Result<u64, StoreError> {
        let has_spool = self.spooled().is_some();
        let (db, _, path) = self.parts();
        let mut forget = || -> Written<u64> {
            let old = {
                let spool = if has_spool { &OF_SPOOL[..] } else { &[] };
                let used = SMALL.iter().chain(spool);
                let used = used.map(|table| format!("SELECT host_id FROM {table} WHERE host_id IS NOT NULL"));
                let firsts = LARGE.map(|table| format!("SELECT (SELECT min(time_ns) FROM {table}) AS first"));
                let sql = format!(
                    "SELECT host_id, name FROM host
                        LEFT JOIN (SELECT host_id, max(last_ns) AS last_ns FROM run GROUP BY host_id) USING (host_id)
                    WHERE ifnull(last_ns, 0) < min(?1, (SELECT ifnull(min(first), ?1) FROM ({})) - ?2)
                        AND host_id NOT IN ({})
                    ORDER BY last_ns LIMIT ?3",
                    firsts.join(" UNION ALL "),
                    used.collect::<Vec<_>>().join(" UNION ")
                );
                let mut old = db.prepare(&sql)?;
                let named = old.query_map(params![before_ns, KNOWN_NS, MOST_AT_ONCE], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
                })?;
                named.collect::<Written<Vec<_>>>()?
            };
            if !old.iter().any(|(_, name)| may_go(name)) {
                return Ok(0);
            }
            // Nothing refers to them: to look each up would be to look at all rows.
            db.pragma_update(None, "foreign_keys", false)?;
            let forgotten = (|| {
                let all = db.transaction()?;
                let mut forgotten = 0;
                for (host, _) in old.iter().filter(|(_, name)| may_go(name)) {
                    all.prepare_cached("DELETE FROM run WHERE host_id = ?1")?.execute([host])?;
                    forgotten += all.prepare_cached("DELETE FROM host WHERE host_id = ?1")?.execute([host])?;
                }
                all.execute("UPDATE deletion SET times = times + 1", [])?;
                all.commit().map(|()| forgotten as u64)
            })();
            db.pragma_update(None, "foreign_keys", true)?;
            forgotten
        };
        forget().map_err(|sqlite| failed("write", path, sqlite))
    }
}
