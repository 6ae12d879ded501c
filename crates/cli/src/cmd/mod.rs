//! The verbs: a file or folder each.

mod lab;
mod rtt;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Rtt(Box<rtt::Args>),
    Lab(lab::Args),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> Result<Exit, Failure> {
        match self {
            Verb::Rtt(args) => rtt::run(&args),
            Verb::Lab(args) => lab::run(&args),
        }
    }
}
