//! What connections that are no longer followed have shown.

use dwell_engine::{
    layers::Ends,
    why::{Evidence, Role},
};

use super::connections::Followed;

/// The sum over connections.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) evidence: Evidence,
    /// The connection on which most time was spent: that time, its ends, role and inode.
    pub(super) worst: Option<(f64, Ends, Role, u32)>,
    /// Connections that were not followed, in namespaces that are gone.
    pub(super) omitted: u64,
}

impl Tally {
    pub(super) fn add(&mut self, followed: &Followed) {
        let before = self.evidence.times.total();
        self.evidence.add(&followed.connection, followed.is_paired);
        let spent = self.evidence.times.total() - before;
        if self.worst.as_ref().is_none_or(|(most, ..)| spent > *most) {
            self.worst = Some((spent, followed.ends, followed.role, followed.inode));
        }
    }
}
