//! `dwell-lab sim`: what papers measured, and how policies compare, simulated with the balancer's own policies.

mod goals;
mod paper;
mod tail;

use clap::Subcommand;
use dwell_app::Exit;

use crate::failure::Failure;

/// Simulations of what papers measured, and of policies in many settings.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Print the tables of the TrafficGrinder paper, and how far its results are met
    Paper(paper::Args),
    /// Compare tail latencies behind `policy = "latency"` with those behind other policies, in many settings
    Tail(tail::Args),
}

/// Runs the verb.
pub fn run(sim: &Sim) -> Result<Exit, Failure> {
    match sim {
        Sim::Paper(args) => paper::run(args),
        Sim::Tail(args) => tail::run(args),
    }
}
