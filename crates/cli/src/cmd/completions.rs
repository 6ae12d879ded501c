//! `dwell completions`: what a shell proposes after `dwell`.

use clap::CommandFactory;
use dwell_app::completions::{self, Shell};
use dwell_records::print;

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
    print(completions::script(args.shell, Cli::command()))?;
    Ok(Exit::Done)
}
