//! Output that the input flushes when it has to wait.

use dwell_records::SinkError;

/// What is told of a capture, and the first failure: nothing is written after it.
pub struct Told<R> {
    pub report: R,
    pub failed: Option<SinkError>,
}

impl<R> Told<R> {
    /// Nothing told yet.
    pub fn new(report: R) -> Told<R> {
        Told { report, failed: None }
    }

    /// Tells something; false if nobody takes it any more.
    pub fn tell(&mut self, tell: impl FnOnce(&mut R) -> Result<(), SinkError>) -> bool {
        if let Err(error) = tell(&mut self.report) {
            self.failed.get_or_insert(error);
        }
        self.failed.is_none()
    }
}
