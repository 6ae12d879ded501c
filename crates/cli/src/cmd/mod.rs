//! The verbs: a file or folder each.

mod agent;
mod collect;
mod doctor;
mod lab;
mod report;
mod response;
mod rtt;
mod stack;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Rtt(Box<rtt::Args>),
    Response(Box<response::Args>),
    Stack(Box<stack::Args>),
    Agent(Box<agent::Args>),
    Collect(Box<collect::Args>),
    Report(report::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> Result<Exit, Failure> {
        match self {
            Verb::Rtt(args) => rtt::run(&args),
            Verb::Response(args) => response::run(&args),
            Verb::Stack(args) => stack::run(&args),
            Verb::Agent(args) => agent::run(&args),
            Verb::Collect(args) => collect::run(&args),
            Verb::Report(args) => report::run(&args),
            Verb::Doctor(args) => doctor::run(&args),
            Verb::Lab(args) => lab::run(&args),
        }
    }
}
