//! `dwell-lab sim`: what papers measured, simulated with the balancer's own policies.

mod paper;

use std::{
    fs,
    io::{ErrorKind, Write, stdout},
    path::PathBuf,
};

use clap::Subcommand;
use dwell_app::{Exit, progress::Bar, stop::Stop, tell::tell};
use dwell_sim::{
    Progress, Scenario,
    report::{Part, jsonl, page},
    study::{self, Summary},
    trace::Trace,
};

use crate::{failure::Failure, print::Format};

/// Simulations of what papers measured.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Print the tables of the TrafficGrinder paper, and how far its results are met
    Paper(paper::Args),
}

/// Runs the verb.
pub fn run(sim: &Sim) -> Result<Exit, Failure> {
    let Sim::Paper(args) = sim;
    paper::run(args)
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Runs of each policy, each with a seed of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Seed of the first run; each further run has one more
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How to print: text, or jsonl, one object per policy and number of servers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write a page of HTML with charts as well
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl OutputArgs {
    fn apply(&self, scenario: &mut Scenario) {
        scenario.runs = self.runs.unwrap_or(scenario.runs);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
    }

    fn write(&self, text: &str, parts: &[Part], is_stopped: bool) -> Result<Exit, Failure> {
        let output = match self.format {
            Format::Text => text.to_owned(),
            Format::Jsonl => jsonl(parts),
        };
        let written = stdout().lock().write_all(output.as_bytes());
        if let Some(file) = &self.plot {
            fs::write(file, page(text, parts)).map_err(|error| {
                let file = file.display();
                Failure::new(Exit::Incomplete, anyhow::anyhow!("cannot write '{file}': {error}"))
            })?;
        }
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(Exit::Incomplete, error)),
            _ if is_stopped => {
                tell("stopped: the figures are of the runs that were done");
                Ok(Exit::Incomplete)
            }
            _ => Ok(Exit::Done),
        }
    }
}

/// The runs of one command, with progress and Ctrl-C.
struct Session {
    stop: Stop,
    bar: RunsBar,
}

struct RunsBar(Bar);

impl Progress for RunsBar {
    fn completed(&self, runs: u64) {
        self.0.advance(runs);
    }
}

impl Session {
    fn new(runs: usize) -> Result<Session, Failure> {
        Ok(Session { stop: Stop::listen(None)?, bar: RunsBar(Bar::new(runs as u64, "runs")) })
    }

    /// The summaries of what was done before somebody asked to stop.
    fn study(&self, scenario: &Scenario) -> Result<Vec<Summary>, Failure> {
        scenario.check()?;
        let trace = Trace::load(scenario)?;
        let summaries = study::run(scenario, &trace, self.stop.flag(), &self.bar);
        let mut summaries = summaries.map_err(Failure::usage)?;
        summaries.retain(|summary| summary.runs > 0);
        Ok(summaries)
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}
