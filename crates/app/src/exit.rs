//! Exit statuses, the same for all verbs of both binaries.

use std::process::ExitCode;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// All was done; also when the reader of a pipe had seen enough.
    Done = 0,
    /// The asked-for condition is false.
    False = 1,
    /// Wrong usage, configuration or input.
    Usage = 2,
    /// This host cannot do it.
    Host = 3,
    /// It ran, but data is incomplete.
    Incomplete = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
