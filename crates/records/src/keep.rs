//! What keeps records, apart from what is printed.

use std::borrow::Cow;

use crate::{Record, Source};

/// Keeps records of a run, as a store does. A failure to keep them ends nothing else.
pub trait Keep: Send {
    /// Keeps what it can of a record.
    fn keep(&mut self, record: &Record<'_>, source: &Source);

    /// Adds counters of what could not be kept, but for what is 0.
    fn count(&self, counters: &mut Vec<(Cow<'static, str>, u64)>);

    /// Keeps what is left, and waits until that is done. Returns what is missing, for a person, if anything is.
    fn finish(&mut self, source: &Source) -> Option<String>;
}
