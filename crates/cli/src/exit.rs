//! Why a verb failed, and which exit status follows from it.

pub use dwell_app::Exit;
use dwell_balancer::{
    api::{ClientError, ListenError},
    config::ConfigError,
    control::ControlError,
};
use dwell_records::SinkError;
use dwell_sim::study::StudyError;

use crate::baseline::BaselineError;

dwell_app::failure! {
    BaselineError: error => if error.is_usage() { Exit::Usage } else { Exit::Incomplete },
    ClientError: error => if matches!(error, ClientError::Io { .. }) { Exit::Host } else { Exit::Usage },
    ConfigError: _ => Exit::Usage,
    ListenError: error => if error.is_usage() { Exit::Usage } else { Exit::Host },
    ControlError: error => if error.is_usage() { Exit::Usage } else { Exit::Host },
    SinkError: error => if matches!(error, SinkError::Closed { .. }) { Exit::Done } else { Exit::Incomplete },
    dwell_app::stop::ListenError: _ => Exit::Host,
    dwell_capture::Error: error => if error.is_incomplete_data() { Exit::Incomplete } else { Exit::Usage },
    dwell_fleet::Error: error => if matches!(error, dwell_fleet::Error::Thread(_)) { Exit::Host } else { Exit::Usage },
    dwell_probes::Error: error => if error.is_usage() { Exit::Usage } else { Exit::Host },
    dwell_sim::ScenarioError: _ => Exit::Usage,
    dwell_store::StoreError: error => if error.is_usage() { Exit::Usage } else { Exit::Incomplete },
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Failure {
        match error {
            StudyError::Trace(dwell_sim::trace::TraceError::Capture(error)) => error.into(),
            error => Failure::usage(error),
        }
    }
}

impl From<dwell_collector::Error> for Failure {
    fn from(error: dwell_collector::Error) -> Failure {
        match error {
            dwell_collector::Error::Store(error) => error.into(),
            dwell_collector::Error::Output(error) => error.into(),
            dwell_collector::Error::Fleet(error) => error.into(),
            incomplete @ dwell_collector::Error::Incomplete(_) => Failure::new(Exit::Incomplete, incomplete),
            waiting @ dwell_collector::Error::Waiting { .. } => Failure::new(Exit::Incomplete, waiting),
            error => Failure::new(Exit::Host, error),
        }
    }
}
