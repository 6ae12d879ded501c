//! Files that the verbs of a fleet give up before strangers can speak to them.

use dwell_fleet::Confinement;

use crate::{exit::Failure, tell::tell};

/// Leaves no files to this thread, and to those that it starts from now on, but those of the system and `kept`.
pub fn confine(kept: &Confinement) -> Result<(), Failure> {
    if !dwell_fleet::confine(kept)? {
        tell(format_args!("this kernel has no Landlock: the process keeps access to all files of its user"));
    }
    Ok(())
}
