//! Why a verb failed, and which exit status follows from it.

pub use dwell_app::Exit;

/// Why a run ended early, and with which status.
#[derive(Debug)]
pub struct Failure {
    /// The status to exit with.
    pub exit: Exit,
    /// What to say; nothing where nobody needs to hear of it.
    pub error: Option<anyhow::Error>,
}

impl Failure {
    /// A failure with something to say.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit, error: Some(error.into()) }
    }

    /// Wrong usage or input.
    pub fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<dwell_probes::Error> for Failure {
    fn from(error: dwell_probes::Error) -> Failure {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Host };
        Failure::new(exit, error)
    }
}

impl From<dwell_probes::stack::BaselineError> for Failure {
    fn from(error: dwell_probes::stack::BaselineError) -> Failure {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Incomplete };
        Failure::new(exit, error)
    }
}

impl From<dwell_capture::Error> for Failure {
    fn from(error: dwell_capture::Error) -> Failure {
        let exit = if error.is_incomplete_data() { Exit::Incomplete } else { Exit::Usage };
        Failure::new(exit, error)
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

impl From<dwell_fleet::Error> for Failure {
    fn from(error: dwell_fleet::Error) -> Failure {
        let exit = match error {
            dwell_fleet::Error::Thread(_) => Exit::Host,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    }
}

impl From<dwell_sim::ScenarioError> for Failure {
    fn from(error: dwell_sim::ScenarioError) -> Failure {
        Failure::usage(error)
    }
}

impl From<dwell_sim::study::StudyError> for Failure {
    fn from(error: dwell_sim::study::StudyError) -> Failure {
        match error {
            dwell_sim::study::StudyError::Trace(dwell_sim::trace::TraceError::Capture(error)) => error.into(),
            error => Failure::usage(error),
        }
    }
}

impl From<dwell_store::StoreError> for Failure {
    fn from(error: dwell_store::StoreError) -> Failure {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Incomplete };
        Failure::new(exit, error)
    }
}

impl From<dwell_app::stop::ListenError> for Failure {
    fn from(error: dwell_app::stop::ListenError) -> Failure {
        Failure::new(Exit::Host, error)
    }
}

impl From<dwell_collector::Error> for Failure {
    fn from(error: dwell_collector::Error) -> Failure {
        match error {
            dwell_collector::Error::Store(error) => error.into(),
            dwell_collector::Error::Output(error) => error.into(),
            dwell_collector::Error::Fleet(error) => error.into(),
            waiting @ dwell_collector::Error::Waiting { .. } => Failure::new(Exit::Incomplete, waiting),
            error => Failure::new(Exit::Host, error),
        }
    }
}
