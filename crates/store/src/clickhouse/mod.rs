//! The tables of a store on a ClickHouse server, by its HTTP interface.

mod fetch;
mod temporary;

use std::{
    collections::HashSet,
    fmt,
    io::{BufRead, BufReader, Read},
    str::FromStr,
    time::{Duration, Instant},
};

use dwell_engine::labels::excerpt;
use ureq::{
    Agent, Body, Timeout,
    http::{Response, Uri},
    tls::TlsConfig,
};

pub use fetch::Wanted;

use crate::{
    Refusal, StoreError, Waiting,
    columns::{Table, tables},
    error::remedy_of,
};

/// Columns that identify a row among those of all stores, so that one that arrives again is recognized.
const ROW: [(&str, &str); 2] = [("spool", "UInt64"), ("row", "UInt64")];

/// How tables are stored. A row that is sent again has the same key, so that the server merges the two.
const LAYOUT: &str = "PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row)";

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
/// The same of a line of an answer that is read as it comes, and of what comes after a line that is none.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// What ends a query whose rows are read: a user's profile may say otherwise.
const TAB_SEPARATED: &str = "FORMAT TabSeparated";
/// The header in which a server repeats the code of its exception.
const CODE: &str = "X-ClickHouse-Exception-Code";
/// Characters of a server's error that are shown.
const SHOWN: usize = 300;
/// Characters of what is not a row that are shown.
const SHOWN_OF_ROW: usize = 60;

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

/// How long several queries together may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    whole: Duration,
    since: Instant,
}

impl Patience {
    /// From now on, for so long.
    pub fn new(whole: Duration) -> Patience {
        Patience { whole, since: Instant::now() }
    }

    /// What is left of it for the next request, which may fail at once.
    fn left(&self) -> Duration {
        self.whole.saturating_sub(self.since.elapsed()).max(Duration::from_millis(1))
    }
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
    /// Names a server, which is spoken to over TLS if its address says so. Nothing is asked yet.
    pub fn new(address: Address, login: Login, tls: TlsConfig) -> Server {
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

    /// Creates the tables that the server lacks. Rows can be inserted only after that.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unreachable`], [`StoreError::Slow`] and [`StoreError::Refused`], also if a table has other columns.
    pub fn prepare(&mut self) -> Result<(), StoreError> {
        let server = self;
        let wait = WAIT.map(|name| format!("'{name}'")).join(", ");
        let sql = format!("SELECT name FROM system.settings WHERE name IN ({wait}) {TAB_SEPARATED}");
        let known = server.query(&sql, &[], PATIENCE)?;
        server.wait = WAIT.into_iter().filter(|name| known.lines().any(|known| known == *name)).collect();
        for table in tables() {
            let columns = columns(table);
            let create =
                format!("CREATE TABLE IF NOT EXISTS {} ({columns}) ENGINE = ReplacingMergeTree() {LAYOUT}", table.name);
            server.query(&create, &[], PATIENCE)?;
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
    /// As [`Server::prepare`]; some of the rows may be on the server even then.
    pub fn insert(&self, spool: u64, rows: &[&Waiting], again: bool, limit: Duration) -> Result<(), StoreError> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let Some(table) = tables().into_iter().find(|table| table.name == first.table) else {
            let said = format!("this dwell has no table '{}'", first.table);
            let address = self.address.to_string();
            return Err(StoreError::Refused { address, said, remedy: "", refusal: Refusal::Table });
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
        let insert = format!("INSERT INTO {} ({}) {TAB_SEPARATED}", table.name, names(table));
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
                AND time_ns >= {} AND time_ns <= {} {TAB_SEPARATED}",
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
        let patience = Patience::new(limit);
        let (response, code) = self.send(Some(query), body, patience)?;
        self.whole(response, code, patience)
    }

    /// Reads an answer to its end. One that began well may have an exception later, after which newer servers break it off.
    fn whole(&self, response: Response<Body>, code: Option<u32>, patience: Patience) -> Result<String, StoreError> {
        let began_well = response.status().is_success() && code.is_none();
        let mut answer = Vec::new();
        let read = response.into_body().into_with_config().limit(MAX_ANSWER_BYTES).reader().read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        if exception(&answer).is_some() || (!began_well && read.is_ok()) {
            return Err(self.refused(code, &answer));
        }
        read.map_err(|error| self.failed(&error.into(), patience))?;
        match answer.is_empty() || answer.ends_with('\n') {
            true => Ok(answer.into_owned()),
            false => Err(self.unusable(&answer)),
        }
    }

    /// Calls `each` with the lines of an answer, of any number, as they come, until it returns that one is none that was asked for.
    pub(super) fn lines(
        &self,
        query: &str,
        patience: Patience,
        mut each: impl FnMut(&[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        // A query in the body may be longer than one in the address.
        let query = format!("{query} {TAB_SEPARATED}");
        let (mut response, code) = self.send(None, query.as_bytes(), patience)?;
        if !response.status().is_success() || code.is_some() {
            return self.whole(response, code, patience).map(drop);
        }
        let mut lines = BufReader::new(response.body_mut().with_config().limit(u64::MAX).reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let why = match lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) => return Ok(()),
                Ok(_) => None,
                Err(error) => Some(ureq::Error::from(error)),
            };
            let whole = line.strip_suffix(b"\n").filter(|_| why.is_none());
            if !whole.map_or(Ok(false), &mut each)? {
                return Err(self.broken_off(line, &mut lines, why.as_ref(), patience));
            }
        }
    }

    /// Returns what ends an answer with this line, which is not one that was asked for: an error of the server, which breaks off
    /// its answer then, maybe in the middle of a row; or `why`.
    fn broken_off(
        &self,
        mut line: Vec<u8>,
        rest: &mut impl Read,
        why: Option<&ureq::Error>,
        patience: Patience,
    ) -> StoreError {
        if why.is_none() {
            // What cannot be read of it says nothing.
            _ = rest.take(MAX_LINE_BYTES).read_to_end(&mut line);
        }
        let text = String::from_utf8_lossy(&line);
        if exception(&text).is_some() {
            return self.refused(None, &text);
        }
        match why {
            Some(why @ ureq::Error::Timeout(_)) => self.failed(why, patience),
            Some(why) => StoreError::Answer { address: self.address.to_string(), why: format!("it breaks off: {why}") },
            None => self.unusable(&text),
        }
    }

    fn unusable(&self, text: &str) -> StoreError {
        let shown: String = text.chars().take(SHOWN_OF_ROW).collect();
        StoreError::Answer { address: self.address.to_string(), why: format!("{shown:?} is not a row of it") }
    }

    /// Sends a query, or data that it inserts. Returns the answer, and the code of an exception that comes before it.
    fn send(
        &self,
        query: Option<&str>,
        body: &[u8],
        patience: Patience,
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
            .timeout_global(Some(patience.left()))
            .build();
        if let Some(password) = &self.login.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let response = request.send(body).map_err(|why| self.failed(&why, patience))?;
        let code = response.headers().get(CODE).and_then(|code| code.to_str().ok()?.parse().ok());
        Ok((response, code))
    }

    fn failed(&self, why: &ureq::Error, patience: Patience) -> StoreError {
        match why {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => self.unreachable(why),
            ureq::Error::Timeout(_) => StoreError::Slow { address: self.address.to_string(), limit: patience.whole },
            why => self.unreachable(why),
        }
    }

    fn unreachable(&self, why: &ureq::Error) -> StoreError {
        let port = if self.address.is_tls { "https_port" } else { "http_port" };
        StoreError::Unreachable { address: self.address.to_string(), port, why: why.to_string() }
    }

    fn refused(&self, code: Option<u32>, answer: &str) -> StoreError {
        let (found, line) = exception(answer).unzip();
        let line = line.unwrap_or_else(|| answer.lines().next().unwrap_or("nothing"));
        let code = code.or(found);
        StoreError::Refused {
            address: self.address.to_string(),
            said: excerpt(line, SHOWN).trim_end().trim_end_matches(" Log:").to_owned(),
            remedy: remedy_of(code, line),
            refusal: Refusal::of(code, line),
        }
    }
}

/// Returns the columns of a table as a server has them, with their types.
fn columns(table: &Table) -> String {
    let columns: Vec<_> = table.server_columns().chain(ROW).map(|(name, kind)| format!("{name} {kind}")).collect();
    columns.join(", ")
}

/// Returns the names of these columns, separated by commas.
fn names(table: &Table) -> String {
    let names: Vec<_> = table.server_columns().chain(ROW).map(|(name, _)| name).collect();
    names.join(", ")
}

/// Returns the code and the text of an exception in an answer: `Code: 27. DB::Exception: ...`, with a comma in older versions. It
/// may follow rows, the last of which need not be whole, and in newer versions a line `__exception__`, or two more.
fn exception(answer: &str) -> Option<(u32, &str)> {
    answer.match_indices("Code: ").find_map(|(at, mark)| {
        let line = answer[at..].lines().next()?;
        let code = line[mark.len()..].split(['.', ',']).next()?.parse().ok()?;
        line.contains("Exception").then_some((code, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a file of DDL with what it is to have after the comment at its beginning. `UPDATE_DDL=1` writes it anew.
    fn compare(file: &str, wanted: &str) {
        let text = installed(file);
        let header = text.lines().take_while(|line| line.starts_with("--")).map(|line| format!("{line}\n"));
        let wanted = header.collect::<String>() + wanted;
        if std::env::var_os("UPDATE_DDL").is_some() {
            std::fs::write(format!("{FOLDER}/{file}"), &wanted).unwrap();
        }
        assert_eq!(text, wanted, "{file}");
    }

    fn installed(file: &str) -> String {
        std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap()
    }

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/clickhouse");

    #[test]
    fn tables_of_a_cluster_have_the_columns_of_a_store() {
        let mut wanted = "\nCREATE DATABASE IF NOT EXISTS dwell ON CLUSTER dwell;\n".to_owned();
        for table in tables() {
            let (name, columns) = (table.name, columns(table));
            wanted += &format!(
                "\nCREATE TABLE IF NOT EXISTS dwell.{name}_local ON CLUSTER dwell ({columns})\n\
                 ENGINE = {}\n{LAYOUT};\n{}",
                replicated("ReplacingMergeTree", name),
                distributed(name, ", cityHash64(spool, row)")
            );
        }
        compare("cluster.sql", &wanted);
    }

    fn replicated(engine: &str, table: &str) -> String {
        format!("Replicated{engine}('/clickhouse/tables/{{shard}}/dwell/{table}', '{{replica}}')")
    }

    fn distributed(table: &str, by: &str) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS dwell.{table} ON CLUSTER dwell AS dwell.{table}_local\n\
             ENGINE = Distributed(dwell, dwell, {table}_local{by});\n"
        )
    }

    #[test]
    fn sums_and_times_to_keep_of_a_cluster_are_those_of_one_server() {
        let begins = |line: &str| line.starts_with("CREATE") || line.starts_with("ALTER");
        for file in ["downsample.sql", "retain.sql"] {
            let (text, mut wanted, mut table) = (installed(file), "\n".to_owned(), "");
            for line in text.lines().skip_while(|line| !begins(line)) {
                let at_end = |word: &str| line.strip_prefix(word).and_then(|rest| rest.split_once(' '));
                wanted += &if let Some((name, rest)) = at_end("CREATE TABLE IF NOT EXISTS ") {
                    table = name;
                    format!("CREATE TABLE IF NOT EXISTS dwell.{name}_local ON CLUSTER dwell {rest}\n")
                } else if line.contains(" = AggregatingMergeTree()") {
                    let engine = replicated("AggregatingMergeTree", table);
                    format!("{}\n{}", line.replace("AggregatingMergeTree()", &engine), distributed(table, ""))
                } else if let Some((view, rest)) = at_end("CREATE MATERIALIZED VIEW IF NOT EXISTS ") {
                    let rest = rest.replace("TO ", "TO dwell.").replace(" AS", "_local AS");
                    format!("CREATE MATERIALIZED VIEW IF NOT EXISTS dwell.{view} ON CLUSTER dwell {rest}\n")
                } else if let Some((view, rest)) = at_end("CREATE VIEW IF NOT EXISTS ") {
                    format!("CREATE VIEW IF NOT EXISTS dwell.{view} ON CLUSTER dwell {rest}\n")
                } else if let Some((name, rest)) = at_end("ALTER TABLE ") {
                    format!("ALTER TABLE dwell.{name}_local ON CLUSTER dwell {rest}\n")
                } else if let Some(name) = line.strip_prefix("FROM ") {
                    format!("FROM dwell.{name}{}\n", if name.ends_with("_sums") { "" } else { "_local" })
                } else {
                    format!("{line}\n")
                };
            }
            compare(&format!("cluster-{file}"), &wanted);
        }
    }
}
