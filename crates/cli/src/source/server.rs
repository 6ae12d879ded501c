//! Stores on a ClickHouse server, of which a verb reads a copy.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use dwell_store::{Address, Patience, Reader, Server, Span, StoreError, Wanted};

use crate::{
    args::{bytes, positive_duration},
    exit::{Exit, Failure},
    moment::Moment,
    secret::clickhouse_login,
    stored::for_server,
};

/// How a file of SQLite begins.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Returns the address of a server, if this is one.
pub fn server(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| Address::is_meant_by(text))
}

/// Whether it is a server, or a file that `dwell collect` or `--store` may have written. A pipe is not looked into.
pub fn is_store(path: &Path) -> bool {
    if server(path).is_some() {
        return true;
    }
    let mut head = Vec::new();
    let is_read = path.is_file() && File::open(path).is_ok_and(|file| file.take(16).read_to_end(&mut head).is_ok());
    is_read && head == MAGIC
}

/// How a server is asked, and how much it may take.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct ServerArgs {
    /// File with the password of the ClickHouse user, which other users of this host cannot read
    #[arg(long, value_name = "FILE")]
    clickhouse_password_file: Option<PathBuf>,

    /// How long the ClickHouse server may take for all queries [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    clickhouse_timeout: Option<Duration>,

    /// How much disk the local copy of a ClickHouse server's rows may take [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    clickhouse_copy_limit: Option<u64>,
}

/// What `--clickhouse-timeout` and `--clickhouse-copy-limit` are where they are not given.
const TIMEOUT: Duration = Duration::from_secs(600);
const COPY_LIMIT: u64 = 4_000_000_000;

/// A server that is asked within the limits of a run.
pub struct AskedServer {
    server: Server,
    patience: Patience,
    most_bytes: u64,
    /// All of the time that is stored.
    span: Span,
}

impl ServerArgs {
    /// Refuses options that say nothing of a file.
    ///
    /// # Errors
    ///
    /// If one of them is given.
    pub fn refuse(&self) -> Result<(), Failure> {
        let given = [
            (self.clickhouse_password_file.is_some(), "--clickhouse-password-file"),
            (self.clickhouse_timeout.is_some(), "--clickhouse-timeout"),
            (self.clickhouse_copy_limit.is_some(), "--clickhouse-copy-limit"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(for_server(option)),
            None => Ok(()),
        }
    }

    /// Asks a server for the time that it has; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If it cannot be reached, or refuses.
    pub fn ask(&self, address: &str) -> Result<Option<AskedServer>, Failure> {
        let address: Address = address.parse().map_err(|error| Failure::usage(anyhow!("{error}")))?;
        let login = clickhouse_login(self.clickhouse_password_file.as_deref())?;
        let authorities = address.is_tls().then(dwell_metrics::tls::of_the_host).transpose();
        let tls = authorities
            .map_err(|error| Failure::new(Exit::Host, anyhow!("cannot check the certificate of {address}: {error}")))?;
        let server = Server::new(address, login, tls.unwrap_or_default());
        let patience = Patience::new(self.clickhouse_timeout.unwrap_or(TIMEOUT));
        let most_bytes = self.clickhouse_copy_limit.unwrap_or(COPY_LIMIT);
        let span = server.span(patience).map_err(unfetched)?;
        Ok(span.map(|span| AskedServer { server, patience, most_bytes, span }))
    }
}

impl AskedServer {
    /// The end of the last interval, in Unix time.
    pub fn end_ns(&self) -> i64 {
        self.span.1
    }

    /// Copies what is wanted of a time into a temporary file. Returns the copy, and how many flows it lacks.
    ///
    /// # Errors
    ///
    /// If the server does not answer in time, or the copy is too large.
    pub fn copy(
        &self,
        wanted: &Wanted<'_>,
        since: Option<Moment>,
        until: Option<Moment>,
    ) -> Result<(Reader, usize), Failure> {
        let at = |moment: Option<Moment>, default| moment.map_or(default, |moment| moment.unix_ns(self.span.1));
        let span = (at(since, self.span.0).max(self.span.0), at(until, self.span.1).min(self.span.1));
        self.server.fetch(wanted, span, self.patience, self.most_bytes).map_err(unfetched)
    }
}

/// Returns the failure of a run that cannot copy what it wants.
fn unfetched(error: StoreError) -> Failure {
    match error {
        StoreError::Slow { .. } => {
            Failure::usage(anyhow!("{error}; ask for less with --since, or wait longer with --clickhouse-timeout"))
        }
        StoreError::Large { .. } => {
            Failure::usage(anyhow!("{error}: ask for less with --since, or allow more with --clickhouse-copy-limit"))
        }
        _ => error.into(),
    }
}
