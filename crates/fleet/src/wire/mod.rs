//! What agents and collectors say to each other.
//!
//! A message is a frame: its length in four bytes, the greatest first, then [`VERSION`]
//! in one byte, then the message as postcard writes it (postcard.jamesmunns.com/wire-format).
//! What is read is checked here, so that no message holds a number that means nothing.

mod frame;
mod parts;
mod passages;

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, Layer, Segment},
};
use serde::{Deserialize, Serialize};

pub use frame::{FrameError, MAX_FRAME_BYTES, decode, encode, read, write};
pub use passages::Passages;

/// Of the messages here. Another version is refused.
pub const VERSION: u8 = 2;

/// The number that an agent draws for itself when it starts.
pub type Run = [u8; 16];

/// An agent speaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromAgent {
    /// First of all.
    Hello(Hello),
    /// What it measured; answered by [`FromCollector::Stored`].
    Batch(Box<Batch>),
    /// It has nothing to tell, and is there; answered by [`FromCollector::Stored`].
    Alive,
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Unlike that of all other agents of the collector.
    pub name: AgentName,
    /// Unlike that of all other runs.
    pub run: Run,
    /// The boot_id of its kernel: CLOCK_MONOTONIC is another in each boot.
    pub boot: String,
    /// The UDP port at which its clock can be asked, if it can.
    pub sync_port: Option<u16>,
}

/// A collector speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromCollector {
    /// Answers a hello: the last batch of this run that is stored.
    Welcome {
        /// Its number; 0 if there is none.
        through: u64,
    },
    /// Answers a hello: not now, and why.
    Refused(String),
    /// All batches up to this number are stored, or were passed over by the agent.
    Stored {
        /// The number.
        through: u64,
    },
}

/// What an agent tells at once. Numbers of batches begin at 1 and grow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Which of its run.
    pub number: u64,
    /// What it has.
    pub content: Content,
}

/// What is in a batch. All times are the host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Content {
    /// Intervals that are over.
    pub intervals: Vec<Interval>,
    /// Bytes that finished a side.
    pub passages: Passages,
    /// What was counted since the run began, by name.
    pub counters: Vec<(String, u64)>,
}

impl Content {
    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        let Content { intervals, passages, counters } = self;
        intervals.is_empty() && passages.0.is_empty() && counters.is_empty()
    }
}

/// An interval, or a part of its flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it ended.
    #[serde(deserialize_with = "parts::time")]
    pub end_ns: u64,
    /// The same in Unix time, as the host has it.
    #[serde(deserialize_with = "parts::unix_time")]
    pub end_unix_ns: i64,
    /// How long it was.
    #[serde(deserialize_with = "parts::length")]
    pub length_ns: u64,
    /// One byte in so many was stamped.
    pub sample_bytes: u32,
    /// Over all flows; empty where this is but a part with flows.
    pub rows: Vec<Row>,
    /// Each flow by itself.
    pub flows: Vec<Flow>,
    /// What TCP knows of them.
    pub trips: Vec<Trip>,
}

/// What a segment took, over all flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which segment.
    #[serde(with = "parts::segment")]
    pub segment: Segment,
    /// What it took.
    #[serde(with = "parts::histogram")]
    pub histogram: Histogram,
    /// The same of bytes that were sent or came again.
    #[serde(with = "parts::histogram")]
    pub again: Histogram,
    /// The hook where it begins.
    pub hook_from: Option<String>,
    /// The hook where it ends.
    pub hook_to: Option<String>,
    /// The layer that has no hook.
    #[serde(with = "parts::layer")]
    pub missing: Option<Layer>,
}

/// What the segments took for a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Which flow.
    #[serde(with = "parts::ends")]
    pub ends: Ends,
    /// Of the side that bytes went through.
    pub segments: Vec<FlowSegment>,
}

/// What a segment took for a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSegment {
    /// Which segment.
    #[serde(with = "parts::segment")]
    pub segment: Segment,
    /// What it took.
    #[serde(with = "parts::histogram")]
    pub histogram: Histogram,
}

/// The round trips of a flow, as the host's TCP knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trip {
    /// Which flow.
    #[serde(with = "parts::ends")]
    pub ends: Ends,
    /// This host receives it; else, it sends it.
    pub is_received: bool,
    /// The least of late.
    #[serde(deserialize_with = "parts::length")]
    pub least_ns: u64,
    /// The smoothed one.
    #[serde(deserialize_with = "parts::length")]
    pub smoothed_ns: u64,
}

/// A name of 1 to 64 letters, digits, dots, dashes and underscores.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AgentName {
    type Error = crate::Error;

    fn try_from(name: String) -> Result<AgentName, crate::Error> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        match name.len() {
            1..=64 if name.bytes().all(is_good) => Ok(AgentName(name)),
            _ => Err(crate::Error::Name(name.chars().take(80).collect())),
        }
    }
}

impl From<AgentName> for String {
    fn from(name: AgentName) -> String {
        name.0
    }
}

impl std::fmt::Display for AgentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}
