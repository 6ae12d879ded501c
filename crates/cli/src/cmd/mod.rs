//! The verbs: a file or folder each.

mod agent;
mod collect;
mod completions;
mod doctor;
mod lab;
mod lb;
mod man;
mod report;
mod response;
mod rtt;
mod run;
mod schema;
mod sim;
mod stack;
mod top;
mod why;

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Failure;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Why(why::Args),
    Top(Box<top::Args>),
    Rtt(Box<rtt::Args>),
    Response(Box<response::Args>),
    Stack(Box<stack::Args>),
    Run(Box<run::Args>),
    Agent(Box<agent::Args>),
    Collect(Box<collect::Args>),
    Report(report::Args),
    Lb(Box<lb::Args>),
    Sim(sim::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
    Lab(lab::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// Runs the verb. Returns the exit status.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let exit = match self {
            Verb::Run(args) => return run::run(&args),
            Verb::Why(args) => why::run(&args),
            Verb::Top(args) => top::run(&args),
            Verb::Rtt(args) => rtt::run(&args),
            Verb::Response(args) => response::run(&args),
            Verb::Stack(args) => stack::run(&args),
            Verb::Agent(args) => agent::run(&args),
            Verb::Collect(args) => collect::run(&args),
            Verb::Report(args) => report::run(&args),
            Verb::Lb(args) => lb::run(&args),
            Verb::Sim(args) => sim::run(&args),
            Verb::Doctor(args) => doctor::run(&args),
            Verb::Schema(args) => schema::run(&args),
            Verb::Lab(args) => lab::run(&args),
            Verb::Completions(args) => completions::run(&args),
            Verb::Man(args) => man::run(&args),
        };
        exit.map(ExitCode::from)
    }
}
