//! The executables that experiments start.

use std::{env, path::PathBuf};

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
    /// This executable, and the `dwell` beside it or else on the search path. Fails where there is none.
    pub fn find() -> Result<Programs> {
        let lab = env::current_exe().map_err(Error::io("find the executable of dwell-lab"))?;
        Ok(Programs { dwell: Programs::dwell_of(&lab)?, lab })
    }

    /// The `dwell` that belongs to this `dwell-lab`.
    pub fn dwell_of(lab: &std::path::Path) -> Result<PathBuf> {
        let beside = Some(lab.with_file_name("dwell")).filter(|path| path.is_file());
        beside.or_else(|| find_program("dwell")).ok_or_else(|| Error::Host {
            wanted: "run an experiment",
            fact: format!("there is no program dwell beside {} or on the search path", lab.display()),
            remedy: "Build it with `make build`, or install it.",
        })
    }
}
