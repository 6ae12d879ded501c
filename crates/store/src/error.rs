//! Errors of a store.

use std::{io, path::PathBuf, time::Duration};

/// Why a store cannot be used, or can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or created.
    #[error("cannot open the store {}: {io}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        io: io::Error,
    },
    /// The file is not a store.
    #[error("{} is not a store of dwell: name another file, or one that does not exist", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The tables are those of another version of dwell.
    #[error(
        "the store {} has tables of version {found}, and this dwell knows versions {oldest} to {known}: \
         use a dwell that knows it, or name another file", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The oldest version that this dwell knows.
        oldest: i64,
        /// The newest one.
        known: i64,
    },
    /// Others write to the store who do not share it.
    #[error("the store {} is written by {by}: end that, or name another file", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// Who writes.
        by: &'static str,
    },
    /// No thread can be started that writes to the store.
    #[error("cannot start a thread that writes to the store {}: {io}", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        io: io::Error,
    },
    /// An operation of SQLite failed.
    #[error("cannot {doing} the store {}: {sqlite}{remedy}", path.display())]
    Sqlite {
        /// The operation: open, read, write.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        sqlite: rusqlite::Error,
        /// What to do about it, or nothing.
        remedy: &'static str,
    },
    /// No ClickHouse server answers.
    #[error("cannot reach {address}: {why}: see that the server runs, and has this {port}")]
    Unreachable {
        /// The server's address.
        address: String,
        /// The setting of the server that has its port.
        port: &'static str,
        /// What failed.
        why: String,
    },
    /// A ClickHouse server did not answer a request in time.
    #[error("{address} did not answer within {limit:?}: the network or the server is slow")]
    Slow {
        /// The server's address.
        address: String,
        /// How long it had.
        limit: Duration,
    },
    /// An answer of a ClickHouse server is not what was asked for, or not whole.
    #[error("the answer of {address} cannot be used: {why}")]
    Answer {
        /// The server's address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// What is copied from a ClickHouse server is too large.
    #[error("the rows of {address} that the page needs take more than {bytes} bytes of disk")]
    Large {
        /// The server's address.
        address: String,
        /// How many bytes it may take.
        bytes: u64,
    },
    /// A ClickHouse server refused a request.
    #[error("{address} says: {said}{remedy}")]
    Refused {
        /// The server's address.
        address: String,
        /// The server's error.
        said: String,
        /// What to do about it, or nothing.
        remedy: &'static str,
        /// What would be refused again.
        refusal: Refusal,
    },
}

/// What of an insert a server has refused, and so what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The server cannot insert anything now: it is overloaded, starting, or its administrator has to do something.
    Now,
    /// The insert is too large: fewer rows may pass.
    Size,
    /// A row has a value that the server does not take.
    Row,
    /// The table has other columns, so that no row fits.
    Table,
}

impl Refusal {
    /// Judges by the code of a server's exception (`ErrorCodes.cpp` of ClickHouse lists them) and by its text. What is
    /// not known to be about the data is [`Refusal::Now`], so that rows wait rather than being put aside.
    pub(crate) fn of(code: Option<u32>, said: &str) -> Refusal {
        match code {
            // NOT_FOUND_COLUMN_IN_BLOCK, NO_SUCH_COLUMN_IN_TABLE, NUMBER_OF_COLUMNS_DOESNT_MATCH, ILLEGAL_COLUMN,
            // UNKNOWN_IDENTIFIER
            Some(10 | 16 | 20 | 44 | 47) => Refusal::Table,
            // Too many partitions for one insert; with other texts, the server is behind with its merges.
            Some(252) if said.contains("partitions") => Refusal::Size,
            // TOO_MANY_ROWS, MEMORY_LIMIT_EXCEEDED, TOO_MANY_BYTES, LIMIT_EXCEEDED
            Some(158 | 241 | 290 | 307) => Refusal::Size,
            // CANNOT_PARSE_ESCAPE_SEQUENCE, _QUOTED_STRING, _INPUT_ASSERTION_FAILED, CANNOT_READ_ALL_DATA,
            // ATTEMPT_TO_READ_AFTER_EOF, CANNOT_PARSE_TEXT, _DATE, _DATETIME, TYPE_MISMATCH, ARGUMENT_OUT_OF_BOUND,
            // CANNOT_CONVERT_TYPE, CANNOT_PARSE_NUMBER, INCORRECT_DATA, DECIMAL_OVERFLOW, VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE,
            // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, VIOLATED_CONSTRAINT
            Some(6 | 25..=27 | 32 | 33 | 38 | 41 | 53 | 69 | 70 | 72 | 117 | 321 | 349 | 407 | 469) => Refusal::Row,
            _ => Refusal::Now,
        }
    }
}

/// Returns what to do about an exception of a ClickHouse server with this code, or about an answer without one.
pub(crate) fn remedy_of(code: Option<u32>, said: &str) -> &'static str {
    match code {
        // UNKNOWN_DATABASE
        Some(81) => "; make it with CREATE DATABASE on that server, or name another one",
        // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED
        Some(192..=194 | 516) => {
            "; the user is CLICKHOUSE_USER of the environment, or else default, and the password is in the file of \
             --clickhouse-password-file or in CLICKHOUSE_PASSWORD"
        }
        // ACCESS_DENIED
        Some(497) => "; the user needs the rights to create tables, insert and select",
        // NO_SUCH_COLUMN_IN_TABLE, UNKNOWN_IDENTIFIER
        Some(16 | 47) => "; its table has other columns, as that of another version of dwell: name another database",
        // ALL_CONNECTION_TRIES_FAILED
        Some(279) => "; see that all servers of its cluster run",
        None if said.contains("clickhouse-client") => "; name the server's http_port",
        _ => "",
    }
}

impl StoreError {
    /// Whether a server does not answer, which may do so later.
    pub fn is_away(&self) -> bool {
        matches!(self, StoreError::Unreachable { .. } | StoreError::Slow { .. })
    }

    /// Returns true if another file or option would help.
    pub fn is_usage(&self) -> bool {
        !matches!(self, StoreError::Sqlite { .. } | StoreError::Thread { .. })
    }
}

/// Returns what to do about an error of SQLite.
pub(super) fn remedy(sqlite: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseCorrupt, DiskFull, ReadOnly, SystemIoFailure};
    match sqlite.sqlite_error_code() {
        Some(DiskFull) => "; what was stored before is kept: free some space, and start again",
        Some(ReadOnly) => "; what was stored before is kept: make file and folder writable",
        Some(SystemIoFailure) => "; what was stored before is kept: see that the disk is well and has space",
        Some(DatabaseBusy) => "; a reader held it for too long",
        Some(DatabaseCorrupt) => {
            "; its file is damaged or cut off: if it is a copy, make it again while nobody writes to it"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, remedy_of};

    #[test]
    fn only_what_is_about_the_data_is_put_aside() {
        let partitions = "Too many partitions for single INSERT block (more than 100)";
        for (code, said, refusal) in [
            (Some(252), partitions, Refusal::Size),
            (Some(252), "Too many parts (300). Merges are processing significantly slower", Refusal::Now),
            (Some(27), "Cannot parse input", Refusal::Row),
            (Some(16), "No such column", Refusal::Table),
            (Some(516), "Authentication failed", Refusal::Now),
            (Some(60), "Table does not exist", Refusal::Now),
            (Some(243), "Cannot reserve 1.00 MiB, not enough space", Refusal::Now),
            (None, "<html>502 Bad Gateway</html>", Refusal::Now),
        ] {
            assert_eq!(Refusal::of(code, said), refusal, "{code:?} {said}");
        }
    }

    #[test]
    fn what_a_newcomer_meets_has_a_remedy() {
        for (code, said, remedy) in [
            (Some(81), "Database dwell does not exist", "CREATE DATABASE"),
            (Some(193), "Wrong password for user default", "--clickhouse-password-file"),
            (Some(516), "default: Authentication failed", "CLICKHOUSE_USER"),
            (Some(497), "default: Not enough privileges", "rights"),
            (Some(47), "Unknown expression identifier `time_ns`", "another version"),
            (Some(279), "All connection tries failed. Log: ", "servers of its cluster"),
            (None, "Port 9000 is for clickhouse-client program.", "http_port"),
            (Some(252), "Too many parts", ""),
        ] {
            let found = remedy_of(code, said);
            assert!(found.contains(remedy) && found.is_empty() == remedy.is_empty(), "{code:?} {said}: {found}");
        }
    }
}
