//! What can go wrong with a store.

use std::{io, path::PathBuf};

/// Why a store cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error("cannot open the store {}: {io}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
    /// It is a file of something else.
    #[error("{} is not a store of dwell: name another file, or one that does not exist", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Its tables are those of another dwell.
    #[error(
        "the store {} has tables of version {found}, and this dwell knows version {known} only: \
         name another file", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Another collector writes it.
    #[error("the store {} is written by another collector: end that, or name another file", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// SQLite could not do something.
    #[error("cannot {doing} the store {}: {sqlite}{remedy}", path.display())]
    Sqlite {
        /// What: read, write.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        sqlite: rusqlite::Error,
        /// What to do, if that is known.
        remedy: &'static str,
    },
    /// No ClickHouse server answers.
    #[error("cannot reach {address}: {why}: see that the server runs, and has this http_port")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What failed.
        why: String,
    },
    /// A ClickHouse server does not do what it is asked for.
    #[error("{address} says: {said}")]
    Refused {
        /// Where it is.
        address: String,
        /// What it said.
        said: String,
    },
}

impl StoreError {
    /// True where another file, or another option, would do.
    pub fn is_usage(&self) -> bool {
        !matches!(self, StoreError::Sqlite { .. })
    }
}

/// What to do about what SQLite says.
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
