//! The tables of a store on a ClickHouse server, by its HTTP interface.

use std::{collections::HashSet, fmt, str::FromStr, time::Duration};

use ureq::{Agent, http::Uri};

use super::{StoreError, Waiting};

/// A table, its columns, and their types. They are those of the views of the same names, and
/// of the tables that have no view.
const TABLES: [(&str, &[(&str, &str)]); 4] = [
    (
        "intervals",
        &[
            ("time_ns", "Int64"),
            ("length_ns", "UInt64"),
            ("host", "String"),
            ("src", "Nullable(String)"),
            ("sport", "Nullable(UInt16)"),
            ("dst", "Nullable(String)"),
            ("dport", "Nullable(UInt16)"),
            ("segment", "String"),
            ("direction", "String"),
            ("part_of", "Nullable(String)"),
            ("resent", "UInt8"),
            ("count", "UInt64"),
            ("sum_ns", "UInt64"),
            ("mean_ns", "Nullable(UInt64)"),
            ("min_ns", "Nullable(UInt64)"),
            ("max_ns", "Nullable(UInt64)"),
            ("p50_ns", "Nullable(UInt64)"),
            ("p90_ns", "Nullable(UInt64)"),
            ("p99_ns", "Nullable(UInt64)"),
            ("histogram", "String"),
            ("hook_from", "Nullable(String)"),
            ("hook_to", "Nullable(String)"),
            ("missing", "Nullable(String)"),
        ],
    ),
    (
        "paths",
        &[
            ("time_ns", "Int64"),
            ("length_ns", "UInt64"),
            ("tx_host", "Nullable(String)"),
            ("rx_host", "Nullable(String)"),
            ("src", "Nullable(String)"),
            ("sport", "Nullable(UInt16)"),
            ("dst", "Nullable(String)"),
            ("dport", "Nullable(UInt16)"),
            ("segment", "String"),
            ("direction", "Nullable(String)"),
            ("part_of", "Nullable(String)"),
            ("resent", "UInt8"),
            ("method", "String"),
            ("count", "UInt64"),
            ("sum_ns", "UInt64"),
            ("mean_ns", "Nullable(UInt64)"),
            ("min_ns", "Nullable(UInt64)"),
            ("max_ns", "Nullable(UInt64)"),
            ("p50_ns", "Nullable(UInt64)"),
            ("p90_ns", "Nullable(UInt64)"),
            ("p99_ns", "Nullable(UInt64)"),
            ("histogram", "String"),
            ("bound_ns", "Nullable(UInt64)"),
            ("clamped", "UInt64"),
            ("doubtful", "UInt64"),
        ],
    ),
    (
        "clock",
        &[
            ("time_ns", "Int64"),
            ("host", "String"),
            ("offset_ns", "Int64"),
            ("bound_ns", "UInt64"),
            ("drift_ppb", "Nullable(Float64)"),
            ("drift_bound_ppb", "Nullable(Float64)"),
            ("round_trip_ns", "Nullable(UInt64)"),
            ("method", "String"),
            ("stepped", "UInt8"),
        ],
    ),
    ("counter", &[("time_ns", "Int64"), ("host", "Nullable(String)"), ("name", "String"), ("value", "UInt64")]),
];

/// What tells a row from all others, so that one that comes again can be known.
const ROW: [(&str, &str); 2] = [("spool", "UInt64"), ("row", "UInt64")];

/// For a server that takes connections and does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of what a server says, as much is told.
const TOLD: usize = 300;

/// Where a server is: `clickhouse://HOST:PORT/DATABASE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    authority: String,
    database: String,
}

impl Address {
    /// How such addresses begin.
    pub const SCHEME: &str = "clickhouse://";
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { authority, database } = self;
        write!(f, "{}{authority}/{database}", Address::SCHEME)
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Address, &'static str> {
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err("others on this host can read an address: user and password are taken from the \
                 environment, CLICKHOUSE_USER and CLICKHOUSE_PASSWORD");
        }
        let database = uri.path().trim_start_matches('/');
        let is_name = |name: &str| {
            let mut letters = name.chars();
            letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if uri.scheme_str() != Some("clickhouse")
            || uri.query().is_some()
            || authority.port_u16().is_none()
            || !is_name(database)
        {
            return Err(FORM);
        }
        Ok(Address { authority: authority.to_string(), database: database.to_owned() })
    }
}

const FORM: &str = "write clickhouse://HOST:PORT/DATABASE, with the server's http_port and a \
    database of letters, digits and '_', as in clickhouse://db.example:8123/dwell";

/// Who we are to a server.
#[derive(Debug, Clone)]
pub struct Login {
    /// The server's own is "default".
    pub user: String,
    /// `None`: without one.
    pub password: Option<String>,
}

/// A server that has our tables.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    address: Address,
    login: Login,
}

impl Server {
    /// Makes the tables that are not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unreachable`] and [`StoreError::Refused`].
    pub fn open(address: Address, login: Login) -> Result<Server, StoreError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            // The server may have been started again since.
            .max_idle_connections(0)
            .timeout_global(Some(PATIENCE))
            .build();
        let server = Server { agent: config.new_agent(), address, login };
        for (name, columns) in TABLES {
            let columns: Vec<_> = columns.iter().chain(&ROW).map(|(name, kind)| format!("{name} {kind}")).collect();
            // What is sent again has the same key, and so is merged with what is there.
            server.ask(
                &format!(
                    "CREATE TABLE IF NOT EXISTS {name} ({}) ENGINE = ReplacingMergeTree()
                    PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000)))
                    ORDER BY (time_ns, spool, row)",
                    columns.join(", ")
                ),
                &[],
            )?;
        }
        Ok(server)
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Inserts rows of a spool, in their order, a table at a time. With `again`, those that
    /// are there already are left out.
    ///
    /// # Errors
    ///
    /// As [`Server::open`]; then some of the rows may be there.
    pub fn insert(&self, spool: u64, rows: &[Waiting], again: bool) -> Result<(), StoreError> {
        for (name, columns) in TABLES {
            let mut rows: Vec<_> = rows.iter().filter(|row| row.table == name).collect();
            if again && !rows.is_empty() {
                let there = self.present(name, spool, &rows)?;
                rows.retain(|row| !there.contains(&row.row));
            }
            if rows.is_empty() {
                continue;
            }
            let columns: Vec<_> = columns.iter().chain(&ROW).map(|(name, _)| *name).collect();
            let mut lines = Vec::new();
            for row in rows {
                lines.extend_from_slice(&row.line);
                lines.extend_from_slice(format!("\t{spool}\t{}\n", row.row).as_bytes());
            }
            let insert = format!("INSERT INTO {name} ({}) FORMAT TabSeparated", columns.join(", "));
            self.ask(&insert, &lines)?;
        }
        Ok(())
    }

    /// Those of the rows that are there: an insert that was cut off may have left some.
    fn present(&self, table: &str, spool: u64, rows: &[&Waiting]) -> Result<HashSet<i64>, StoreError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(HashSet::new());
        };
        // Times are what the table is sorted by.
        let times = rows.iter().map(|row| row.time_ns);
        let (least, most) = (times.clone().min(), times.max());
        let sql = format!(
            "SELECT row FROM {table} WHERE spool = {spool} AND row >= {} AND row <= {}
                AND time_ns >= {} AND time_ns <= {}",
            first.row,
            last.row,
            least.unwrap_or(i64::MIN),
            most.unwrap_or(i64::MAX),
        );
        let said = self.ask(&sql, &[])?;
        let numbers: Result<_, _> = said.lines().map(str::parse).collect();
        numbers.map_err(|_| self.refused(&said))
    }

    fn ask(&self, query: &str, body: &[u8]) -> Result<String, StoreError> {
        let Address { authority, database } = &self.address;
        let mut request = self
            .agent
            .post(format!("http://{authority}/"))
            .query("database", database)
            .query("query", query)
            .header("X-ClickHouse-User", &self.login.user);
        if let Some(password) = &self.login.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let unreachable =
            |why: ureq::Error| StoreError::Unreachable { address: self.address.to_string(), why: why.to_string() };
        let mut response = request.send(body).map_err(unreachable)?;
        let said = response.body_mut().read_to_string().map_err(unreachable)?;
        if response.status().is_success() { Ok(said) } else { Err(self.refused(&said)) }
    }

    fn refused(&self, said: &str) -> StoreError {
        let line = said.lines().next().unwrap_or("nothing");
        StoreError::Refused { address: self.address.to_string(), said: line.chars().take(TOLD).collect() }
    }
}
