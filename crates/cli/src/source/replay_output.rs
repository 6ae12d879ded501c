//! The output of a replay, which the input flushes when it has to wait.

use dwell_records::SinkError;

/// A report and its first failure, after which nothing more is written.
pub struct ReplayOutput<R> {
    pub report: R,
    pub failed: Option<SinkError>,
}

impl<R> ReplayOutput<R> {
    /// Creates an output that has not failed.
    pub fn new(report: R) -> ReplayOutput<R> {
        ReplayOutput { report, failed: None }
    }

    /// Writes to the report. Returns false if this or an earlier write has failed.
    pub fn write(&mut self, write: impl FnOnce(&mut R) -> Result<(), SinkError>) -> bool {
        if self.failed.is_none() {
            self.failed = write(&mut self.report).err();
        }
        self.failed.is_none()
    }
}
