//! What connections that are no longer followed have shown.

use dwell_engine::why::{Evidence, Key};

use super::connections::Followed;

/// The sum over connections.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) evidence: Evidence,
    /// Connections that were not followed, in namespaces that are gone.
    pub(super) omitted: u64,
}

impl Tally {
    pub(super) fn add(&mut self, followed: &Followed) {
        let key = Key { pid: followed.pid, ..Key::of(&followed.ends, followed.role) };
        self.evidence.add(&followed.connection, key, followed.counted);
    }
}
