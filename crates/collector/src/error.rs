//! Why a collector cannot go on.

use std::io;

use dwell_metrics::tls::NoAuthorities;
use dwell_records::SinkError;
use dwell_store::StoreError;

/// Why a collector cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output of `--format` takes no more.
    #[error(transparent)]
    Output(#[from] SinkError),
    /// Lines are missing in the file of `--write`, and perhaps rows wait too; all else was done.
    #[error("{0}")]
    Incomplete(String),
    /// The certificate of the store's server cannot be checked.
    #[error("cannot check the certificate of {server}: {source}")]
    Authorities {
        /// The address of the server.
        server: String,
        /// Why.
        source: NoAuthorities,
    },
    /// The address, the identity or a message of an agent.
    #[error(transparent)]
    Fleet(#[from] dwell_fleet::Error),
    /// The server of the store did not take everything before the end.
    #[error("{rows} are not on {server} yet: they wait in the spool; start the collector again with it")]
    Waiting {
        /// How many rows, with their noun.
        rows: String,
        /// The address of the server.
        server: String,
    },
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The kernel does not let the process give up privileges.
    #[error("cannot give up privileges: {0}")]
    Privileges(#[source] io::Error),
    /// The identifier of this boot cannot be read.
    #[error(transparent)]
    Boot(io::Error),
}

impl Error {
    /// True if nothing more can be stored or printed, so that finishing the open intervals makes no sense.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Error::Store(error) => !error.is_usage(),
            Error::Output(error) => !matches!(error, SinkError::Closed { .. }),
            Error::Waiting { .. } => true,
            _ => false,
        }
    }
}
