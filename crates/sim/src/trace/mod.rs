//! Traces: the connections of a simulation.

mod capture;
mod csv;
mod synthetic;

use std::path::PathBuf;

use dwell_records::counted;

use crate::{Scenario, TraceConfig};

pub use csv::read_csv;
pub use synthetic::Synthetic;

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// When the client sends the first packet.
    pub start_ns: u64,
    /// Number of the client, from 0 on.
    pub client: u32,
    /// Number of packets that the client sends.
    pub packets: u32,
    /// Number of bytes that the client sends; 0 if unknown.
    pub bytes: u64,
    /// Mean time between packets.
    pub gap_ns: f64,
}

impl Flow {
    /// Service time that each packet takes for its bytes.
    pub(crate) fn extra_ns(&self, byte_ns: f64) -> f64 {
        self.bytes as f64 * byte_ns / f64::from(self.packets.max(1))
    }
}

/// Connections, in the order in which they start.
#[derive(Debug, Clone)]
pub enum Trace {
    /// Random connections, drawn as they are needed.
    Synthetic(Box<Synthetic>),
    /// Connections from a file, the same in each run.
    Flows(Flows),
}

/// Connections from a file.
#[derive(Debug, Clone)]
pub struct Flows {
    /// The connections, in the order in which they start.
    pub flows: Vec<Flow>,
    /// What a user has to know about the file, one sentence each: packets that were cut or left out.
    pub notes: Vec<String>,
}

impl From<Vec<Flow>> for Flows {
    fn from(flows: Vec<Flow>) -> Flows {
        Flows { flows, notes: Vec::new() }
    }
}

/// Maximum time between the first and the last start. A file that mixes clocks would simulate for ever.
const MAX_DURATION_S: f64 = 1e7;

/// Maximum time that a packet takes more for its bytes.
const MAX_EXTRA_S: f64 = 60.0;

/// Why a file cannot be used as a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line is not valid.
    #[error("'{}', line {line}, column {column}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1 on.
        line: u64,
        /// Column in characters, from 1 on.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// The file has no matching connection.
    #[error("'{}' has no connection{filter}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The condition on connections, in words; empty if there is none.
        filter: String,
    },
    /// The times of connections are too far apart to be those of one clock.
    #[error(
        "'{}' has connections that start {seconds:.0} seconds apart; they may be {MAX_DURATION_S}: cut it where the clock was set",
        path.display()
    )]
    Long {
        /// The file.
        path: PathBuf,
        /// Time between the first and the last start.
        seconds: f64,
    },
    /// A packet takes longer than any.
    #[error(
        "'{}' has a connection of {bytes} bytes in {packets}, so that a packet takes {seconds:.0} s more; it may be {MAX_EXTRA_S} s: set a \
         lesser server.byte_ns",
        path.display()
    )]
    Slow {
        /// The file.
        path: PathBuf,
        /// Number of bytes of the connection.
        bytes: u64,
        /// Its number of packets, in words.
        packets: String,
        /// Additional service time of each of its packets.
        seconds: f64,
    },
    /// The capture is damaged.
    #[error(transparent)]
    Capture(#[from] dwell_capture::Error),
}

impl Trace {
    /// Prepares the trace of a scenario, and reads its file if it has one.
    ///
    /// # Errors
    ///
    /// [`TraceError`], if the file cannot be read or is not valid.
    pub fn load(scenario: &Scenario) -> Result<Trace, TraceError> {
        let (path, flows) = match &scenario.trace {
            TraceConfig::Synthetic { .. } => {
                let synthetic = Synthetic::new(&scenario.trace, scenario.short);
                return Ok(Trace::Synthetic(Box::new(synthetic.expect("the configuration is synthetic"))));
            }
            TraceConfig::Csv { path, connection_gap } => {
                (path, Flows::from(csv::read(path, connection_gap.as_nanos() as f64)?))
            }
            TraceConfig::Capture { path, port } => (path, capture::read(path, *port)?),
        };
        let extra_s = |flow: &Flow| flow.extra_ns(scenario.server.byte_ns) / 1e9;
        match flows.flows.iter().find(|flow| extra_s(flow) > MAX_EXTRA_S) {
            Some(slow) => Err(TraceError::Slow {
                path: path.clone(),
                bytes: slow.bytes,
                packets: counted(slow.packets.into(), "packet", "packets"),
                seconds: extra_s(slow),
            }),
            None => Ok(Trace::Flows(flows)),
        }
    }

    /// Returns what a user has to know about the trace's file, one sentence each.
    pub fn notes(&self) -> &[String] {
        match self {
            Trace::Synthetic(_) => &[],
            Trace::Flows(flows) => &flows.notes,
        }
    }

    /// Returns the connections of a run in the order of their starts, with all packets `speedup` times closer together.
    pub fn flows(&self, seed: u64, speedup: f64) -> Box<dyn Iterator<Item = Flow> + '_> {
        let faster = move |flow: Flow| Flow {
            start_ns: (flow.start_ns as f64 / speedup) as u64,
            gap_ns: flow.gap_ns / speedup,
            ..flow
        };
        match self {
            Trace::Synthetic(synthetic) => Box::new(synthetic.flows(seed).map(faster)),
            Trace::Flows(flows) => Box::new(flows.flows.iter().copied().map(faster)),
        }
    }
}
