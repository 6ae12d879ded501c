//! Why a verb of `dwell-lab` failed, and which exit status follows from it.

use dwell_app::{Exit, stop::ListenError};
use dwell_testbed::Error;

/// Why a run ended early, and with which status.
#[derive(Debug)]
pub struct Failure {
    /// The status to exit with.
    pub exit: Exit,
    /// The message; `None` where the user knows the cause, as after Ctrl-C.
    pub error: Option<anyhow::Error>,
}

impl Failure {
    /// A failure with a message.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit, error: Some(error.into()) }
    }

    /// A failure because of wrong usage or input.
    pub fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error {
            Error::Interrupted => return Failure { exit: Exit::Incomplete, error: None },
            Error::Exists { .. } | Error::Unknown { .. } | Error::Invalid { .. } => Exit::Usage,
            _ => Exit::Host,
        };
        Failure::new(exit, error)
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Failure {
        Failure::new(Exit::Host, error)
    }
}

impl From<dwell_sim::ScenarioError> for Failure {
    fn from(error: dwell_sim::ScenarioError) -> Failure {
        Failure::usage(error)
    }
}

impl From<dwell_sim::study::StudyError> for Failure {
    fn from(error: dwell_sim::study::StudyError) -> Failure {
        Failure::usage(error)
    }
}

impl From<dwell_store::StoreError> for Failure {
    fn from(error: dwell_store::StoreError) -> Failure {
        Failure::new(Exit::Incomplete, error)
    }
}

impl From<dwell_probes::Error> for Failure {
    fn from(error: dwell_probes::Error) -> Failure {
        Failure::new(if error.is_usage() { Exit::Usage } else { Exit::Host }, error)
    }
}

impl From<dwell_records::SinkError> for Failure {
    fn from(error: dwell_records::SinkError) -> Failure {
        match error {
            dwell_records::SinkError::Closed { .. } => Failure { exit: Exit::Done, error: None },
            failed => Failure::new(Exit::Incomplete, failed),
        }
    }
}
