//! `dwell lab`: starts `dwell-lab`, which is a program of its own.

use std::{env, ffi::OsString, os::unix::process::CommandExt, path::PathBuf, process::Command};

use anyhow::anyhow;

use crate::exit::{Exit, Failure};

/// Start the laboratory: testbeds, loads that know the truth, and experiments (dwell-lab)
///
/// Runs the program dwell-lab with these arguments. It is not part of dwell, and is not needed to measure.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// What to pass to dwell-lab; --help shows its verbs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "dwell-lab";

/// Becomes `dwell-lab`; returns only if that is not possible.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let beside = env::current_exe().ok().map(|exe| exe.with_file_name(PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&args.arguments).exec();
    Err(Failure::new(
        Exit::Host,
        anyhow!(
            "cannot start {}: {error}. The laboratory is a program of its own: build it in the source tree with \
             `make lab`, or install it next to dwell",
            program.display()
        ),
    ))
}
