//! `dwell lab response`: estimates beside the truth.

use std::time::Duration;

use clap::ValueEnum;
use dwell_lab::workload::load::report::{ReportOptions, respond};

use super::{load::Load, say};
use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
};

/// Run a load, and `dwell response` where its requests pass; print how near the estimates came
#[derive(Debug, clap::Args)]
pub struct Response {
    #[command(subcommand)]
    load: Load,
    /// How to estimate: several, as in auto,pirate,gap,syn-ack, to see them side by side. The first
    /// runs live, the others over a capture of the same packets
    #[arg(long, global = true, value_delimiter = ',', default_value = "auto", value_parser = ["auto", "pirate", "gap", "syn-ack"])]
    estimator: Vec<String>,
    /// Length of an epoch
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    epoch: Duration,
    /// Print what round-trip times say of the same connections: of handshakes, of TCP at the client,
    /// of `dwell rtt`, and of tcptrace where it is installed
    #[arg(long, global = true)]
    round_trips: bool,
    /// Print where errors come from: each step from latency to estimate, each heuristic of pirate
    /// off, and what large errors go with
    #[arg(long, global = true)]
    ablations: bool,
    /// How to print: text, or jsonl, an object an estimator and truth
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
}

pub fn run(args: &Response) -> Result<Exit, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("dwell-response-")
        .tempdir()
        .map_err(|error| Failure::new(Exit::Host, error))?;
    for run in args.load.runs()? {
        let report = respond(&ReportOptions {
            load: run.options,
            estimators: args.estimator.clone(),
            epoch: args.epoch,
            round_trips: args.round_trips,
            ablations: args.ablations,
            folder: folder.path().to_owned(),
        })?;
        match args.format {
            Format::Text => {
                say(&format!("{}{report}", run.heading))?;
            }
            Format::Jsonl => {
                for line in report.lines()? {
                    say(&line)?;
                }
            }
        }
    }
    Ok(Exit::Done)
}
