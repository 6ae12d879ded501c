//! Who connects when, and with how many packets.

mod capture;
mod csv;
mod synthetic;

use std::path::PathBuf;

use crate::{Scenario, TraceConfig};

pub use csv::read_csv;
pub use synthetic::Synthetic;

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// When its client sends the first packet.
    pub start_ns: u64,
    /// By number, from 0 on.
    pub client: u32,
    /// That its client sends.
    pub packets: u32,
    /// 0 where nobody knows.
    pub bytes: u64,
    /// Mean time between its packets.
    pub gap_ns: f64,
}

/// Connections, in the order in which they start.
#[derive(Debug, Clone)]
pub enum Trace {
    /// Drawn as they are needed.
    Synthetic(Box<Synthetic>),
    /// Of a file: the same in each run.
    Flows(Vec<Flow>),
}

/// Connections start within so many seconds: who mixes clocks waits for ever else.
const LONGEST_S: f64 = 1e7;

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("cannot read the trace '{}': {io}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        io: std::io::Error,
    },
    /// A line is wrong.
    #[error("'{}', line {line}, column {column}: {what}", path.display())]
    Line {
        /// Which.
        path: PathBuf,
        /// From 1 on.
        line: u64,
        /// From 1 on, in characters.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// There is nothing in it.
    #[error("'{}' has no connection{what}", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
        /// That would count.
        what: String,
    },
    /// Its times are not all of one clock.
    #[error(
        "'{}' has connections that start {seconds:.0} seconds apart; they may be {LONGEST_S}: cut it where the clock was set",
        path.display()
    )]
    Long {
        /// Which.
        path: PathBuf,
        /// Between the first and the last.
        seconds: f64,
    },
    /// The capture is damaged.
    #[error(transparent)]
    Capture(#[from] dwell_capture::Error),
}

impl Trace {
    /// The trace of a scenario.
    ///
    /// # Errors
    ///
    /// It is of a file that cannot be read or makes no sense.
    pub fn of(scenario: &Scenario) -> Result<Trace, TraceError> {
        Ok(match &scenario.trace {
            TraceConfig::Synthetic { .. } => {
                let synthetic = Synthetic::new(&scenario.trace, scenario.short);
                Trace::Synthetic(Box::new(synthetic.expect("it is of that kind")))
            }
            TraceConfig::Csv { path, connection_gap_ms } => Trace::Flows(csv::read(path, connection_gap_ms * 1e6)?),
            TraceConfig::Capture { path, port } => Trace::Flows(capture::read(path, *port)?),
        })
    }

    /// Connections of a run; they start so many times sooner after each other.
    pub fn flows(&self, seed: u64, times_faster: f64) -> Box<dyn Iterator<Item = Flow> + '_> {
        let faster = move |flow: Flow| Flow { start_ns: (flow.start_ns as f64 / times_faster) as u64, ..flow };
        match self {
            Trace::Synthetic(synthetic) => Box::new(synthetic.flows(seed).map(faster)),
            Trace::Flows(flows) => Box::new(flows.iter().copied().map(faster)),
        }
    }
}
