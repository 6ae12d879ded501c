//! `dwell-lab sim`: what papers measured, simulated with the balancer's own policies.

mod goals;
mod paper;

use clap::Subcommand;
use dwell_app::Exit;

use crate::failure::Failure;

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
