//! `dwell completions`: what a shell proposes after `dwell`.

use std::io::stdout;

use clap::CommandFactory;
use dwell_app::completions::{self, Shell};

use crate::{
    Cli,
    exit::{Exit, Failure},
};

/// Print completions of verbs and options for a shell
///
/// Packages and `make install` install them for all three shells.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(dwell completions bash)    in this shell
  dwell completions fish > ~/.config/fish/completions/dwell.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    completions::write(args.shell, Cli::command(), &mut stdout())
        .map_err(|error| Failure::new(Exit::Incomplete, error))?;
    Ok(Exit::Done)
}
