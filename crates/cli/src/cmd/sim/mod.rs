//! `dwell sim`: what balancing policies do, simulated.

use std::{
    fs,
    io::{Write, stdout},
    path::PathBuf,
};

use clap::ValueEnum;
use dwell_app::progress;
use dwell_sim::{
    Progress, Scenario,
    report::{Part, jsonl, page, policies},
    study::{self, Summary},
    trace::Trace,
};

use crate::{
    exit::{Exit, Failure},
    stop::Stop,
    tell::tell,
};

/// Simulate balancing policies: what they do to latency, 0-RTT and load
///
/// Clients, a balancer and servers with queues, on a clock of their own. The policies are the
/// balancer's very code. Needs no network and no root; the same seed gives the same figures on any
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell sim --scenario examples/sim.toml     your own servers, policies and trace
  dwell sim --scenario examples/sim.toml --runs 3 --plot sim.html
  dwell lab sim paper                        the tables of the TrafficGrinder paper (dwell-lab)

More: docs/guide/sim.md of the source.")]
#[group(skip)]
pub struct Args {
    /// A TOML file, as in examples/sim.toml
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Runs of each policy, each with a seed of its own [default: as the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Of the first run; the next has one more [default: as the scenario says]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How to print: text, or jsonl, an object a policy and number of servers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Draw it, too: a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    run_scenario(Scenario::read(&args.scenario)?, &args.output)
}

fn run_scenario(mut scenario: Scenario, output: &OutputArgs) -> Result<Exit, Failure> {
    output.apply(&mut scenario);
    let session = Session::new(study::jobs(&scenario).len())?;
    let summaries = session.study(&scenario)?;
    let part = Part { name: "scenario", title: "As the scenario says".to_owned(), summaries };
    let text = policies(&part.summaries);
    output.write(&text, &[part], session.is_stopped())
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
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Incomplete, error)),
            _ if is_stopped => {
                tell("stopped: what is printed is of the runs that were done");
                Ok(Exit::Incomplete)
            }
            _ => Ok(Exit::Done),
        }
    }
}

/// Runs that one command makes, and how far they are.
struct Session {
    stop: Stop,
    bar: Bar,
}

struct Bar(progress::Bar);

impl Progress for Bar {
    fn completed(&self, runs: u64) {
        self.0.advance(runs);
    }
}

impl Session {
    /// Of so many runs.
    fn new(runs: usize) -> Result<Session, Failure> {
        Ok(Session { stop: Stop::listen(None)?, bar: Bar(progress::Bar::new(runs as u64, "runs")) })
    }

    /// All that is done of a scenario before somebody asks to stop.
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
