//! Reading gray failures.

use dwell_engine::gray::LONGEST_NS;
use rusqlite::params;

use super::{Reader, Span, StoreError, read};

/// A gray failure, from its beginning to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GrayRead {
    /// When it began, in Unix time.
    pub(crate) since_ns: i64,
    /// When it ended, and why; `None` if that is not known.
    pub(crate) end: Option<(i64, String)>,
    pub(crate) subject: String,
    pub(crate) hosts: [Option<String>; 3],
    pub(crate) port: Option<u16>,
    pub(crate) component: String,
    pub(crate) direction: Option<String>,
    pub(crate) figure: Option<String>,
    /// The figures when it began: in nanoseconds, or as shares. Its own, its past, what was expected, and its peers'.
    pub(crate) times: [Option<u64>; 4],
    pub(crate) shares: [Option<f64>; 4],
    pub(crate) peers: u64,
    pub(crate) paths: Option<[u64; 2]>,
    pub(crate) per_week: f64,
}

impl Reader {
    /// Returns the latest gray failures that lasted in a time, of these hosts or of all if none is named, at most `most`, the latest
    /// first; and how many there are. Stores of older versions have none.
    pub(crate) fn gray(&self, span: Span, hosts: &[String], most: usize) -> Result<(Vec<GrayRead>, u64), StoreError> {
        if !self.has_gray() {
            return Ok((Vec::new(), 0));
        }
        // An end whose beginning is not in the store any more is not shown.
        let of = "subject, host, tx_host, rx_host, port";
        let same = of.split(", ").map(|column| format!("e.{column} IS b.{column}")).collect::<Vec<_>>().join(" AND ");
        let named =
            ["host", "tx_host", "rx_host"].map(|column| format!("b.{column} IN (SELECT value FROM json_each(?3))"));
        // One without an end may have ended unseen, and none is longer than the longest.
        let chosen = format!(
            "FROM gray b LEFT JOIN gray e ON e.event = 'end' AND e.since_ns = b.since_ns AND {same}
            WHERE b.event = 'begin' AND b.time_ns <= ?2 AND ifnull(e.time_ns, b.time_ns + {LONGEST_NS}) > ?1
                AND (?3 = '[]' OR {})",
            named.join(" OR ")
        );
        let hosts = serde_json::Value::from(hosts).to_string();
        self.read(|db| {
            let count = format!("SELECT count(*) {chosen}");
            let count: i64 = db.query_row(&count, params![span.0, span.1, hosts], |row| row.get(0))?;
            let sql = format!(
                "SELECT b.time_ns, e.time_ns, e.reason, b.subject, b.host, b.tx_host, b.rx_host, b.port, b.component,
                    b.direction, b.figure, b.value_ns, b.past_ns, b.expected_ns, b.peers_ns, b.value_share, b.past_share,
                    b.expected_share, b.peers_share, b.peers, b.paths, b.paths_compared, b.chance_per_week
                {chosen} ORDER BY b.time_ns DESC, b.rowid DESC LIMIT ?4"
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params![span.0, span.1, hosts, most as i64], |row| {
                let number = |column| read::number(row, column);
                let ended_ns: Option<i64> = row.get(1)?;
                let paths = [number(20)?, number(21)?];
                Ok(GrayRead {
                    since_ns: row.get(0)?,
                    end: ended_ns.zip(row.get(2)?),
                    subject: row.get(3)?,
                    hosts: [row.get(4)?, row.get(5)?, row.get(6)?],
                    port: row.get(7)?,
                    component: row.get(8)?,
                    direction: row.get(9)?,
                    figure: row.get(10)?,
                    times: [number(11)?, number(12)?, number(13)?, number(14)?],
                    shares: [row.get(15)?, row.get(16)?, row.get(17)?, row.get(18)?],
                    peers: number(19)?.unwrap_or_default(),
                    paths: paths[0].map(|_| paths.map(Option::unwrap_or_default)),
                    per_week: row.get(22)?,
                })
            })?;
            Ok((rows.collect::<Result<_, _>>()?, count.cast_unsigned()))
        })
    }
}
