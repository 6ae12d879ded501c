//! `dwell man`: the manual pages of all verbs.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use dwell_app::man;

use crate::{
    Cli,
    exit::{Exit, Failure},
};

/// Write manual pages of dwell and its verbs
///
/// Packages and `make install` install them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  dwell man pages && man pages/dwell-rtt.1")]
pub struct Args {
    /// The folder for the pages; it is created if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    // dwell-lab writes the page of its name itself.
    let command = Cli::command().mut_subcommand("lab", |lab| lab.hide(true));
    man::write_pages(command, &args.folder)
        .with_context(|| format!("cannot write manual pages to {}", args.folder.display()))
        .map_err(Failure::usage)?;
    Ok(Exit::Done)
}
