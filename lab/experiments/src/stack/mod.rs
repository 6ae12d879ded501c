//! Scenarios for `dwell stack`: a sender and a receiver with an agent each, a collector on links of its own, and an
//! application that keeps the time of each byte.

mod fleet;
mod machine;
mod net;
mod scenario;
mod traffic;
pub(crate) mod verb;

use std::{path::PathBuf, time::Duration};

use crate::Programs;
use dwell_testbed::{Report, Result};

pub use fleet::Fleet;
pub use net::Net;
pub use scenario::Scenario;
pub use traffic::{Clocked, Flow};

/// The port of the first flow; others have the next ones.
pub const PORT: u16 = 5201;

/// How to run a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which one.
    pub scenario: Scenario,
    /// For how long the application sends.
    pub time: Duration,
    /// One byte in so many is stamped.
    pub sample_bytes: u32,
    /// The `dwell` that is run.
    pub programs: Programs,
    /// Where the collector's store and key are put.
    pub folder: PathBuf,
    /// The store's name in it.
    pub store: PathBuf,
    /// Of a sender in a virtual machine: where the package of its kernel is unpacked.
    pub kernel: Option<PathBuf>,
}

/// What came of it, beside what is in the store.
#[derive(Debug)]
pub struct Outcome {
    /// What each flow's application says.
    pub flows: Vec<(Flow, Clocked)>,
    /// What the link emulator did.
    pub emulator: Option<Report>,
    /// What the agents and the collector said on standard error.
    pub said: Vec<String>,
    /// Of a sender in a container: `dwell stack --devices` there.
    pub devices: Option<String>,
}

/// Runs a scenario. Its store is complete when this returns.
///
/// # Errors
///
/// If the network cannot be made, a program cannot be run or ends badly, or the application cannot send.
pub fn run(options: &Options) -> Result<Outcome> {
    let net = Net::start(options.scenario, &options.programs.lab)?;
    let fleet = Fleet::start(&net, options)?;
    let flows = options.scenario.flows();
    let clocked = match fleet.machine() {
        None => traffic::run(&net, &flows, options.time),
        Some(machine) => traffic::run_in_machine(&net, machine).map(|clocked| vec![clocked]),
    };
    let (said, devices) = fleet.end()?;
    let emulator = net.stop()?;
    Ok(Outcome { flows: flows.into_iter().zip(clocked?).collect(), emulator, said, devices })
}
