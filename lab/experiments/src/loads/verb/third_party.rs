//! Loads by clients of others.

use std::{path::PathBuf, time::Duration};

use dwell_app::args::positive_duration;

use super::Network;
use crate::{
    Programs,
    failure::Failure,
    loads::third_party::{Program, ThirdPartyOptions},
    values::positive,
};

#[derive(Debug, clap::Args)]
pub struct ThirdParty {
    /// Requests that a connection writes together, as soon as those before are answered
    #[arg(long, value_name = "REQUESTS", default_value_t = 1, value_parser = positive)]
    depth: usize,
    /// Connections of the client
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    connections: usize,
    /// Threads of the client, which share its connections
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    threads: usize,
    /// Length of the object or value that is asked for, up to 1 GB
    #[arg(long, value_name = "BYTES", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    size: u64,
    /// How long about: wrk takes whole seconds, redis-benchmark as many requests as should take it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Random seed, of the network
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for the packets at the vantage point
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    network: Network,
}

impl ThirdParty {
    pub fn options(&self, program: Program) -> Result<ThirdPartyOptions, Failure> {
        Ok(ThirdPartyOptions {
            programs: Programs::find()?,
            program,
            depth: self.depth,
            threads: self.threads,
            connections: self.connections,
            size: self.size,
            duration: self.duration,
            seed: self.seed,
            network: self.network.with_seed(self.seed),
            pcap: self.pcap.clone(),
        })
    }
}
