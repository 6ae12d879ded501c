//! The tables of a store on a ClickHouse server, by its HTTP interface.

pub(crate) mod fetch;

use std::{
    collections::HashSet,
    fmt,
    io::{BufRead, BufReader},
    str::FromStr,
    time::Duration,
};

use ureq::{
    Agent, Body, Timeout,
    http::{Response, Uri},
    tls::TlsConfig,
};

use crate::{
    Refusal, StoreError, Waiting,
    columns::{Table, tables},
};

/// Columns that identify a row among those of all stores, so that one that arrives again is recognized.
const ROW: [(&str, &str); 2] = [("spool", "UInt64"), ("row", "UInt64")];

/// Settings by which a server answers an insert only once its rows are in their tables, also in those of other servers: with
/// inserts that it gathers, and with distributed tables, whose setting has an older and a newer name. Of these the server's
/// version knows some, and others would be an error.
const WAIT: [&str; 3] = ["wait_for_async_insert", "insert_distributed_sync", "distributed_foreground_insert"];

/// Limit on a request that inserts nothing, for a server that accepts connections and does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit on finding the server's address and connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Limit on an answer, in bytes: the numbers of the rows of one insert, and more than any error needs.
const MAX_ANSWER_BYTES: u64 = 10 << 20;
/// The header in which a server repeats the code of its exception.
const CODE: &str = "X-ClickHouse-Exception-Code";
/// Characters of a server's error that are shown.
const SHOWN: usize = 300;

/// The address of a database on a server: `clickhouse://HOST:PORT/DATABASE`, or `clickhouses://` over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    is_tls: bool,
    authority: String,
    database: String,
}

/// How addresses begin without TLS, and with it.
const SCHEMES: [&str; 2] = ["clickhouse", "clickhouses"];

impl Address {
    /// Returns whether text is such an address, well-formed or not.
    pub fn is_meant_by(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }

    /// Returns whether the server is to be spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { is_tls, authority, database } = self;
        write!(f, "{}://{authority}/{database}", SCHEMES[usize::from(*is_tls)])
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
        let scheme = SCHEMES.iter().position(|scheme| uri.scheme_str() == Some(scheme)).ok_or(FORM)?;
        if uri.query().is_some() || authority.port_u16().is_none() || !is_name(database) {
            return Err(FORM);
        }
        Ok(Address { is_tls: scheme == 1, authority: authority.to_string(), database: database.to_owned() })
    }
}

const FORM: &str = "write clickhouse://HOST:PORT/DATABASE, with the server's http_port and a database of letters, digits and \
    '_', as in clickhouse://db.example:8123/dwell; or over TLS clickhouses://HOST:PORT/DATABASE, with its https_port";

/// The user that logs in to a server.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user's name; ClickHouse's own user is "default".
    pub user: String,
    /// The password, if the user has one.
    pub password: Option<String>,
}

/// A server that has the tables of a store.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    address: Address,
    login: Login,
    /// Those of [`WAIT`] that it knows.
    wait: Vec<&'static str>,
}

impl Server {
    /// Connects to a server, over TLS if its address says so, and creates the tables that it lacks.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unreachable`], [`StoreError::Slow`] and [`StoreError::Refused`], also if a table has other columns.
    pub fn open(address: Address, login: Login, tls: TlsConfig) -> Result<Server, StoreError> {
        let mut server = Server::for_reading(address, login, tls);
        server.create_tables()?;
        Ok(server)
    }

    /// The same for one that is only asked: nothing is created, and nothing is asked yet.
    pub fn for_reading(address: Address, login: Login, tls: TlsConfig) -> Server {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls)
            // The server may have restarted in the meantime.
            .max_idle_connections(0)
            .timeout_connect(Some(CONNECT))
            .build();
        Server { agent: config.new_agent(), address, login, wait: Vec::new() }
    }

    fn create_tables(&mut self) -> Result<(), StoreError> {
        let server = self;
        let wait = WAIT.map(|name| format!("'{name}'")).join(", ");
        let known = server.query(&format!("SELECT name FROM system.settings WHERE name IN ({wait})"), &[], PATIENCE)?;
        server.wait = WAIT.into_iter().filter(|name| known.lines().any(|known| known == *name)).collect();
        for table in tables() {
            let columns = table.server_columns().chain(ROW).map(|(name, kind)| format!("{name} {kind}"));
            let columns: Vec<_> = columns.collect();
            // A row that is sent again has the same key, so that the server merges the two.
            server.query(
                &format!(
                    "CREATE TABLE IF NOT EXISTS {} ({}) ENGINE = ReplacingMergeTree()
                    PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000)))
                    ORDER BY (time_ns, spool, row)",
                    table.name,
                    columns.join(", ")
                ),
                &[],
                PATIENCE,
            )?;
            // A table of another version of dwell is found now rather than at each insert.
            server.query(&format!("SELECT {} FROM {} LIMIT 0", names(table), table.name), &[], PATIENCE)?;
        }
        Ok(())
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Inserts rows of one table of a queue, which the server may take `limit` for. With `again`, rows that the server has
    /// already are skipped.
    ///
    /// # Errors
    ///
    /// As [`Server::open`]; some of the rows may be on the server even then.
    pub fn insert(&self, spool: u64, rows: &[&Waiting], again: bool, limit: Duration) -> Result<(), StoreError> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let Some(table) = tables().into_iter().find(|table| table.name == first.table) else {
            let said = format!("this dwell has no table '{}'", first.table);
            return Err(StoreError::Refused { address: self.address.to_string(), said, refusal: Refusal::Table });
        };
        let there = if again { self.present(table.name, spool, rows, limit)? } else { HashSet::new() };
        let mut lines = Vec::new();
        for row in rows.iter().filter(|row| !there.contains(&row.row)) {
            lines.extend_from_slice(&row.line);
            lines.extend_from_slice(format!("\t{spool}\t{}\n", row.row).as_bytes());
        }
        if lines.is_empty() {
            return Ok(());
        }
        let insert = format!("INSERT INTO {} ({}) FORMAT TabSeparated", table.name, names(table));
        self.query(&insert, &lines, limit).map(|_| ())
    }

    /// Finds the rows that the server has: an insert that was cut off may have left some.
    fn present(&self, table: &str, spool: u64, rows: &[&Waiting], limit: Duration) -> Result<HashSet<i64>, StoreError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(HashSet::new());
        };
        // The table is sorted by time.
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
        let answer = self.query(&sql, &[], limit)?;
        let numbers: Result<_, _> = answer.lines().map(str::parse).collect();
        numbers.map_err(|_| self.refused(None, &answer))
    }

    fn query(&self, query: &str, body: &[u8], limit: Duration) -> Result<String, StoreError> {
        let (mut response, code) = self.send(Some(query), body, limit)?;
        let answer = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).lossy_utf8(true).read_to_string();
        let answer = answer.map_err(|why| self.failed(&why, limit))?;
        if response.status().is_success() && code.is_none() { Ok(answer) } else { Err(self.refused(code, &answer)) }
    }

    /// Calls `each` with the lines of an answer, of any number, as they come.
    pub(super) fn lines(
        &self,
        query: &str,
        limit: Duration,
        mut each: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // A query in the body may be longer than one in the address.
        let (mut response, code) = self.send(None, query.as_bytes(), limit)?;
        if !response.status().is_success() || code.is_some() {
            let answer = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).lossy_utf8(true).read_to_string();
            return Err(self.refused(code, &answer.map_err(|why| self.failed(&why, limit))?));
        }
        let mut lines = BufReader::new(response.body_mut().with_config().limit(u64::MAX).reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line).map_err(ureq::Error::from);
            if read.map_err(|why| self.failed(&why, limit))? == 0 {
                return Ok(());
            }
            each(line.strip_suffix(b"\n").unwrap_or(&line))?;
        }
    }

    /// Sends a query, or data that it inserts. Returns the answer, and the code of an exception that comes before it.
    fn send(
        &self,
        query: Option<&str>,
        body: &[u8],
        limit: Duration,
    ) -> Result<(Response<Body>, Option<u32>), StoreError> {
        let Address { is_tls, authority, database } = &self.address;
        let scheme = if *is_tls { "https" } else { "http" };
        let mut request = self
            .agent
            .post(format!("{scheme}://{authority}/"))
            .query("database", database)
            .query_pairs(query.map(|query| ("query", query)))
            .query_pairs(self.wait.iter().map(|name| (*name, "1")))
            .header("X-ClickHouse-User", &self.login.user)
            .config()
            .timeout_global(Some(limit))
            .build();
        if let Some(password) = &self.login.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let response = request.send(body).map_err(|why| self.failed(&why, limit))?;
        let code = response.headers().get(CODE).and_then(|code| code.to_str().ok()?.parse().ok());
        Ok((response, code))
    }

    fn failed(&self, why: &ureq::Error, limit: Duration) -> StoreError {
        match why {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => self.unreachable(why),
            ureq::Error::Timeout(_) => StoreError::Slow { address: self.address.to_string(), limit_s: limit.as_secs() },
            why => self.unreachable(why),
        }
    }

    fn unreachable(&self, why: &ureq::Error) -> StoreError {
        StoreError::Unreachable { address: self.address.to_string(), why: why.to_string() }
    }

    fn refused(&self, code: Option<u32>, answer: &str) -> StoreError {
        let line = answer.lines().next().unwrap_or("nothing");
        StoreError::Refused {
            address: self.address.to_string(),
            said: line.chars().take(SHOWN).collect(),
            refusal: Refusal::of(code.or_else(|| code_of(line)), line),
        }
    }
}

/// Returns the columns of a table on a server, separated by commas.
fn names(table: &Table) -> String {
    let names: Vec<_> = table.server_columns().chain(ROW).map(|(name, _)| name).collect();
    names.join(", ")
}

/// Returns the code of an exception from its text: `Code: 27. DB::Exception: ...`, with a comma in older versions.
fn code_of(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("Code: ")?;
    rest.split(['.', ',']).next()?.parse().ok()
}
