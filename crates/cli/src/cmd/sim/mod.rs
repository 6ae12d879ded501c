//! `dwell sim`: what balancing policies do, simulated.

use std::path::PathBuf;

use dwell_app::progress::Bar;
use dwell_sim::{
    Scenario,
    report::{self, Part, policies},
    study::{jobs, study},
};

use crate::{
    args::Format,
    exit::{Exit, Failure},
    log::log,
    stop::Stop,
};

/// Simulate balancing policies: what they do to latency, 0-RTT and load
///
/// Simulates clients, a balancer and servers with queues. The policies are the balancer's own code.
/// Needs neither a network nor root; the same seed gives the same figures with the same build.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell sim --scenario examples/sim.toml     your own servers, policies and trace
  dwell sim --scenario examples/sim.toml --runs 3 --plot sim.html
  dwell lab sim paper                        the tables of the TrafficGrinder paper (dwell-lab)

More: docs/guide/sim.md in the source.")]
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
    /// Random seed of the first run; each further run has one more [default: as the scenario says]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Output format: text, or jsonl, one object per policy and number of servers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write a page of HTML with charts as well
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    run_scenario(Scenario::read(&args.scenario)?, &args.output)
}

fn run_scenario(mut scenario: Scenario, output: &OutputArgs) -> Result<Exit, Failure> {
    scenario.runs = output.runs.unwrap_or(scenario.runs);
    scenario.seed = output.seed.unwrap_or(scenario.seed);
    let stop = Stop::listen(None)?;
    let bar = Bar::new(jobs(&scenario).len() as u64, "runs");
    let summaries = study(&scenario, stop.flag(), &|runs| bar.advance(runs), &|note| log(note))?;
    if summaries.is_empty() {
        log("stopped before a run was complete: there is no result");
        return Ok(Exit::Incomplete);
    }
    let part = Part { name: "scenario", title: "As the scenario says".to_owned(), summaries };
    let text = policies(&part.summaries);
    report::write(&text, &[part], output.format == Format::Jsonl, output.plot.as_deref())
        .map_err(|error| Failure::new(Exit::Incomplete, error))?;
    if stop.is_asked() {
        log("stopped: the results are those of the runs so far");
        return Ok(Exit::Incomplete);
    }
    Ok(Exit::Done)
}
