//! `dwell`: how long it takes, where the time goes, and what to do about it.

#![deny(clippy::print_stderr, clippy::print_stdout, reason = "they panic where the output is closed or full")]

mod baseline;
mod cgroups;
mod clock_mode;
mod cmd;
mod confined;
mod exit;
mod fail_if;
mod identity;
mod moment;
mod names;
#[cfg(test)]
mod pages;
mod ranking;
mod screen;
mod secret;
mod segments;
mod served;
mod set;
mod sinks;
mod source;
#[cfg(test)]
mod vocabulary;

use std::process::ExitCode;

use clap::Parser;
use dwell_app::{args, log, stop};
use sinks::{queue, statuses, stored, written};

#[derive(Debug, Parser)]
#[command(
    name = "dwell",
    version,
    about = "How long does it take, where does the time go, and what to do about it: latency of any Linux service, unmodified",
    after_help = "\
Exit status: 0 done; 1 the asked-for condition is false; 2 wrong usage or input;
3 this host cannot do it (see `dwell doctor`); 4 it ran, but data is incomplete."
)]
struct Cli {
    #[command(subcommand)]
    verb: cmd::Verb,
}

fn main() -> ExitCode {
    Cli::parse().verb.run().unwrap_or_else(ExitCode::from)
}
