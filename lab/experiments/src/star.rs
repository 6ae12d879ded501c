//! What all verbs with a balancer between clients and servers take.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use dwell_app::Exit;
use tempfile::TempDir;

use crate::{
    Programs,
    goal::Goal,
    print::{Format, folders},
};
use crate::{failure::Failure, lb::Star};

#[derive(Debug, clap::Args)]
pub struct Common {
    /// The dwell that balances; by default the one beside dwell-lab
    #[arg(long, value_name = "FILE", hide = true)]
    balancer: Option<PathBuf>,
    /// How to print: text, or jsonl, an object a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// A network, and what a balancer there needs.
pub struct Scene {
    pub star: Star,
    pub programs: Programs,
    pub folder: TempDir,
}

impl Common {
    /// `keep` is made, if it is not there.
    pub fn scene(&self, keep: Option<&Path>) -> Result<Scene, Failure> {
        Ok(Scene {
            folder: folders("dwell-star-", keep)?,
            programs: match &self.balancer {
                Some(dwell) => Programs { dwell: dwell.clone(), ..Programs::find()? },
                None => Programs::find()?,
            },
            star: Star::start()?,
        })
    }

    pub fn judge(&self, checks: &[Goal]) -> Result<Exit, Failure> {
        self.format.say("")?;
        for check in checks {
            self.format.say(&check.line())?;
        }
        Ok(Goal::exit(checks))
    }
}

pub fn save(folder: Option<&Path>, name: &str, text: &str) -> Result<(), Failure> {
    let Some(folder) = folder else {
        return Ok(());
    };
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| Failure::usage(anyhow!("cannot write {}: {error}", file.display())))
}
