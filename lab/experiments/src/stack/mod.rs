//! Experiments with `dwell stack`: a sender and a receiver with an agent each, a collector on links of its own, and an
//! application that times its own bytes.

mod fleet;
mod goals;
mod machine;
mod net;
mod paths;
mod scenario;
mod traffic;
pub(crate) mod verb;

use std::{path::PathBuf, time::Duration};

use crate::Programs;
use dwell_testbed::{Report, Result};

pub use fleet::Fleet;
pub use net::Net;
pub use scenario::Scenario;
pub use traffic::{ApplicationLatency, Flow};

/// The port of the first flow; further flows have the next ports.
pub const PORT: u16 = 5201;

/// How to run a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scenario.
    pub scenario: Scenario,
    /// How long the application sends.
    pub time: Duration,
    /// Distance between stamped bytes.
    pub sample_bytes: u32,
    /// The executables to start.
    pub programs: Programs,
    /// The folder for the collector's key and for the programs' output.
    pub folder: PathBuf,
    /// The collector's store.
    pub store: PathBuf,
    /// The folder of an unpacked kernel package; a sender in a virtual machine needs it.
    pub kernel: Option<PathBuf>,
}

/// The results of a run, apart from the store.
#[derive(Debug)]
pub struct Outcome {
    /// Each flow, and its latency by the application's clock.
    pub flows: Vec<(Flow, ApplicationLatency)>,
    /// The link emulator's report.
    pub emulator: Option<Report>,
    /// Standard error of the agents and the collector.
    pub messages: Vec<String>,
    /// The output of `dwell stack --devices` at a sender in a container.
    pub devices: Option<String>,
}

/// Runs a scenario. Its store is complete when this returns.
///
/// # Errors
///
/// If the network cannot be made, a program cannot be run or fails, or the application cannot send.
pub fn run(options: &Options) -> Result<Outcome> {
    let net = Net::start(options.scenario, &options.programs.lab)?;
    let fleet = Fleet::start(&net, options)?;
    let flows = options.scenario.flows();
    let latencies = match fleet.machine() {
        None => traffic::run(&net, &flows, options.time),
        Some(machine) => traffic::run_in_machine(&net, machine).map(|latency| vec![latency]),
    };
    let (messages, devices) = fleet.stop()?;
    let emulator = net.stop()?;
    Ok(Outcome { flows: flows.into_iter().zip(latencies?).collect(), emulator, messages, devices })
}
