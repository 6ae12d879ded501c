//! Options, network and files of the experiments with a balancer between clients and servers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use dwell_app::Exit;
use tempfile::TempDir;

use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    lb::Star,
    print::{Format, folders},
    quic,
};

#[derive(Debug, clap::Args)]
pub struct Common {
    /// The dwell program that balances; by default the one next to dwell-lab
    #[arg(long, value_name = "FILE", hide = true)]
    balancer: Option<PathBuf>,
    /// Output format: text, or jsonl with one object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// A network, and the programs and the folder that a balancer in it needs.
pub struct Scene {
    pub star: Star,
    pub programs: Programs,
    pub folder: TempDir,
}

impl<'a> From<&'a Scene> for quic::Scene<'a> {
    fn from(scene: &'a Scene) -> Self {
        quic::Scene { star: &scene.star, dwell: &scene.programs.dwell, folder: scene.folder.path() }
    }
}

impl Common {
    /// Makes the network and the folders; `keep` is created if it does not exist.
    pub fn scene(&self, keep: Option<&Path>) -> Result<Scene, Failure> {
        Ok(Scene { folder: folders("dwell-star-", keep)?, programs: self.programs()?, star: Star::start()? })
    }

    /// The programs of a run.
    pub fn programs(&self) -> Result<Programs, Failure> {
        let found = Programs::find()?;
        Ok(match &self.balancer {
            Some(dwell) => Programs { dwell: dwell.clone(), ..found },
            None => found,
        })
    }

    /// Prints whether each goal is met, and returns the exit status that follows.
    pub fn judge(&self, goals: &[Goal]) -> Result<Exit, Failure> {
        self.format.say("")?;
        for goal in goals {
            self.format.say(&goal.line())?;
        }
        Ok(Goal::exit(goals))
    }
}

/// Writes a file into the folder of `--keep-in`, if there is one.
pub fn save(folder: Option<&Path>, name: &str, text: &str) -> Result<(), Failure> {
    let Some(folder) = folder else {
        return Ok(());
    };
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| Failure::usage(anyhow!("cannot write {}: {error}", file.display())))
}
