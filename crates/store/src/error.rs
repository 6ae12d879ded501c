//! Errors of a store.

use std::{io, path::PathBuf};

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
        "the store {} has tables of version {found}, and this dwell knows version {known} only: \
         name another file", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this dwell knows.
        known: i64,
    },
    /// Another collector writes to the store.
    #[error("the store {} is written by another collector: end that, or name another file", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
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
    #[error("cannot reach {address}: {why}: see that the server runs, and has this http_port")]
    Unreachable {
        /// The server's address.
        address: String,
        /// What failed.
        why: String,
    },
    /// A ClickHouse server refused a request.
    #[error("{address} says: {said}")]
    Refused {
        /// The server's address.
        address: String,
        /// The server's error.
        said: String,
    },
}

impl StoreError {
    /// Returns true if another file or option would help.
    pub fn is_usage(&self) -> bool {
        !matches!(self, StoreError::Sqlite { .. })
    }
}

/// Returns what to do about an error of SQLite.
pub(super) fn remedy(sqlite: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseCorrupt, DiskFull, ReadOnly, SystemIoFailure};
    match sqlite.sqlite_error_code() {
        Some(DiskFull) => "; what was acknowledged is kept: free some space, and start again",
        Some(ReadOnly) => "; what was acknowledged is kept: make file and folder writable",
        Some(SystemIoFailure) => "; what was acknowledged is kept: see that the disk is well and has space",
        Some(DatabaseBusy) => "; a reader held it for too long",
        Some(DatabaseCorrupt) => "; its file is damaged",
        _ => "",
    }
}
