//! `dwell man`: the manual pages of all verbs.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use dwell_app::man;

use crate::{
    Cli,
    exit::{Exit, Failure},
};

/// Write manual pages of dwell and its verbs, as `make install` does
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder for the pages
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    man::write_pages(Cli::command(), &args.folder)
        .with_context(|| format!("cannot write manual pages to {}", args.folder.display()))
        .map_err(Failure::usage)?;
    Ok(Exit::Done)
}
