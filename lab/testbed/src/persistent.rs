//! Labs that outlive the process that made them.

use std::path::PathBuf;

use crate::{Lab, Nanos, Report, Result, State, Topology, emulator::read_report, registry::read};

/// Options of a lab that stays.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The name, by which the lab is taken down: characters a-z, 0-9 and -.
    pub name: String,
    /// The network.
    pub topology: Topology,
    /// The executable that has the verb `emulate`: `dwell-lab`.
    pub exe: PathBuf,
}

impl UpOptions {
    /// Options with the network of the demonstration: 20 ms round trip on the client's side and 5 ms on the server's.
    pub fn new(name: impl Into<String>, exe: impl Into<PathBuf>) -> Self {
        let topology = Topology::line(Nanos::from_millis(20), Nanos::from_millis(5));
        Self { name: name.into(), topology, exe: exe.into() }
    }
}

/// Makes a lab that stays. Its link emulator is a process of its own.
pub fn up(options: &UpOptions) -> Result<State> {
    Lab::start_persistent(&options.name, &options.topology, &options.exe)
}

/// Removes a lab by name, whichever process made it. Returns the report of its emulator if there is one.
pub fn down(name: &str) -> Result<Option<Report>> {
    let state = read(name)?;
    if let Some(emulator) = state.emulator {
        emulator.end();
    }
    let report = state.emulator.and_then(|_| read_report(&state.folder()).ok());
    state.remove()?;
    Ok(report)
}
