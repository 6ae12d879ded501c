//! The executables that experiments start.

use std::{
    env,
    path::{Path, PathBuf},
};

use dwell_testbed::{Error, Result, error::find_program};

/// Both binaries. Experiments drive `dwell` as any user does, and start `dwell-lab` for link emulators and for the
/// ends of their loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The product.
    pub dwell: PathBuf,
    /// The laboratory itself.
    pub lab: PathBuf,
}

impl Programs {
    /// This executable, and the `dwell` beside it or else on the search path. A `dwell` that is nowhere is looked for when
    /// it is started; [`Programs::require_dwell`] says so earlier.
    pub fn find() -> Result<Programs> {
        let lab = env::current_exe().map_err(Error::io("find the executable of dwell-lab"))?;
        Ok(Programs { dwell: Programs::dwell_of(&lab), lab })
    }

    /// The `dwell` that belongs to this `dwell-lab`.
    pub fn dwell_of(lab: &Path) -> PathBuf {
        let beside = lab.with_file_name("dwell");
        if beside.is_file() { beside } else { find_program("dwell").unwrap_or(beside) }
    }

    /// Fails if there is no `dwell` to experiment with.
    pub fn require_dwell(&self) -> Result<()> {
        if self.dwell.is_file() {
            return Ok(());
        }
        Err(Error::Host {
            wanted: "run an experiment",
            fact: format!("there is no program dwell next to {} or on the search path", self.lab.display()),
            remedy: "Build it with `make build`, or install it.",
        })
    }
}
