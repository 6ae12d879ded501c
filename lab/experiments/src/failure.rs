//! Why a verb of `dwell-lab` failed, and which exit status follows from it.

use dwell_app::Exit;
use dwell_records::SinkError;
use dwell_testbed::Error;

dwell_app::failure! {
    SinkError: error => if matches!(error, SinkError::Closed { .. }) { Exit::Done } else { Exit::Incomplete },
    dwell_app::stop::ListenError: _ => Exit::Host,
    dwell_probes::Error: error => if error.is_usage() { Exit::Usage } else { Exit::Host },
    dwell_sim::ScenarioError: _ => Exit::Usage,
    dwell_sim::study::StudyError: _ => Exit::Usage,
    dwell_store::StoreError: _ => Exit::Incomplete,
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
