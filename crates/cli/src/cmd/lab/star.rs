//! What all verbs with a balancer between clients and servers take.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use dwell_lab::balancer::Star;
use tempfile::TempDir;

use super::{
    executable, folders,
    socket::{Check, Format},
};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// The dwell that balances; this one by default
    #[arg(long, value_name = "FILE", hide = true)]
    balancer: Option<PathBuf>,
    /// How to print: text, or jsonl, an object a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

/// A network, and what a balancer there needs.
pub(super) struct Scene {
    pub(super) star: Star,
    pub(super) exe: PathBuf,
    pub(super) folder: TempDir,
}

impl Common {
    /// `keep` is made, if it is not there.
    pub(super) fn scene(&self, keep: Option<&Path>) -> Result<Scene, Failure> {
        Ok(Scene {
            folder: folders("dwell-star-", keep)?,
            exe: self.balancer.clone().map_or_else(executable, Ok)?,
            star: Star::start()?,
        })
    }

    pub(super) fn judge(&self, checks: &[Check]) -> Result<Exit, Failure> {
        self.format.say("")?;
        for check in checks {
            self.format.say(&check.line())?;
        }
        Ok(Check::exit(checks))
    }
}

pub(super) fn save(folder: Option<&Path>, name: &str, text: &str) -> Result<(), Failure> {
    let Some(folder) = folder else {
        return Ok(());
    };
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| Failure::usage(anyhow!("cannot write {}: {error}", file.display())))
}
