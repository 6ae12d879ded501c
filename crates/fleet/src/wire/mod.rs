//! Messages between agents and collectors.
//!
//! A message is sent as a frame: the length of its content in four bytes, most significant first, then the content,
//! which is a [`Version`] in one byte and the message in the encoding of postcard (postcard.jamesmunns.com/wire-format).
//! Values are checked as they are decoded, so that no decoded message holds a number outside its valid range.
//!
//! Collectors also keep messages of this encoding in their store until both hosts of a byte have reported it, and agents in
//! their buffer. What an older dwell has left there is read too.

mod fields;
mod frame;
mod traces;
mod v3;
mod version;

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Ends, Isns, Segment, SegmentFigures, SegmentHooks},
};
use serde::{Deserialize, Serialize};

pub use fields::{MAX_COUNTERS, MAX_HOOKS_BYTES, MAX_NAME_BYTES};
pub use frame::{FrameError, MAX_FRAME_BYTES, Message, decode, encode, read, read_within, version_of, write};
pub(crate) use frame::{batch_number, for_version};
pub use traces::ByteTraces;
use version::Spoken;
pub use version::Version;

/// Intervals in a batch at most. Agents send one.
pub const MAX_INTERVALS: usize = 4;

/// Flows in an interval of a batch at most; those of further flows come in further batches.
pub const MAX_FLOWS: usize = 128;
/// Round-trip times of these flows at most: of both directions.
pub const MAX_RTTS: usize = 2 * MAX_FLOWS;

/// A random number that identifies one run of an agent.
pub type RunId = [u8; 16];

/// A message from an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AgentMessage {
    /// The first message of a connection.
    Hello(Hello),
    /// Measurements; answered by [`CollectorMessage::Stored`].
    Batch(Box<Batch>),
    /// Shows that an agent without measurements is alive; answered by [`CollectorMessage::Stored`].
    KeepAlive,
    /// The last message of a connection that the agent closes; answered by [`CollectorMessage::Stored`] once the collector
    /// has forgotten the connection, so that the agent may come again as another run.
    Leave,
    /// The only message of a connection that was authenticated by a token: asks for the agent's key.
    Enroll,
}

/// An agent's introduction of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its name, which no other agent of the collector may have.
    pub name: AgentName,
    /// Its run, which is different after each start.
    pub run: RunId,
    /// The boot_id of its kernel: CLOCK_MONOTONIC starts anew with each boot.
    pub boot: String,
    /// The UDP port that answers clock requests, if the agent has one.
    pub sync_port: Option<u16>,
    /// Whether the run has ended: what it left behind is sent by a later run, which introduces itself afterwards.
    pub is_past: bool,
    /// The number through which a collector has confirmed batches of this run, 0 if none has: those are not sent again, also
    /// if this collector does not have them.
    #[serde(deserialize_with = "fields::number")]
    pub confirmed: u64,
}

/// A message from a collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectorMessage {
    /// Accepts a hello.
    Welcome {
        /// The number of the last batch of this run that is stored; 0 if there is none.
        through: u64,
    },
    /// Refuses a hello, and gives the reason.
    Refused(String),
    /// Confirms that all batches up to a number are stored, except those that the agent dropped.
    Stored {
        /// The number.
        through: u64,
    },
    /// No batch is stored at present. The agent stays connected and keeps its batches.
    Busy {
        /// Why.
        reason: String,
        /// Milliseconds until the agent should send a batch again.
        retry_ms: u32,
    },
    /// A batch is not a valid message and will never be stored. The agent gives it up, and reports that as [`LostBatches`].
    Rejected {
        /// The number of the batch.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The key of the agent whose token it is, as the content of its file.
    Enrolled {
        /// The key.
        key: String,
    },
}

/// A numbered part of what an agent reports. The numbers of a run start at 1 and increase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The number of the batch within its run.
    #[serde(deserialize_with = "fields::number")]
    pub number: u64,
    /// The measurements.
    pub content: Content,
}

/// The content of a batch. All times are the host's CLOCK_MONOTONIC, in nanoseconds, unless noted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Content {
    /// Intervals that have ended.
    #[serde(deserialize_with = "fields::list::<_, _, MAX_INTERVALS>")]
    pub intervals: Vec<IntervalReport>,
    /// Traces of bytes that have passed all layers of one direction.
    pub traces: ByteTraces,
    /// Counters by name, as of now, since the run began: at most [`MAX_COUNTERS`], with names of at most
    /// [`MAX_NAME_BYTES`].
    #[serde(deserialize_with = "fields::counters")]
    pub counters: Vec<(String, u64)>,
    /// Batches that the agent had to give up, up to the number of this one. Then the batch carries nothing else.
    pub lost: Option<LostBatches>,
    /// Whether this is the last batch of its run, which ends in order.
    pub is_last: bool,
}

/// Batches that an agent gave up: from a number to that of the batch which reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBatches {
    /// The number of the first one.
    pub from: u64,
    /// Why.
    pub why: LossCause,
    /// When the first one was made, in Unix time by the host's clock.
    #[serde(deserialize_with = "fields::unix_time")]
    pub since_unix_ns: i64,
    /// When the last one was made.
    #[serde(deserialize_with = "fields::unix_time")]
    pub until_unix_ns: i64,
}

/// Why an agent gave up batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LossCause {
    /// Its buffer was full.
    BufferFull,
    /// The batch was longer than a frame can be.
    TooLong,
    /// A collector has rejected the batch.
    Rejected,
    /// It is not lost: another collector gets what is in the batch.
    Moved,
}

impl Message for CollectorMessage {}
impl Message for Batch {}
impl Message for ByteTraces {}

/// As a collector keeps them until both hosts of a byte have reported it: when they arrived, and for each its time at the driver
/// with the bound of its error.
impl Message for (u64, ByteTraces, Vec<(u64, u64)>) {
    fn take(version: Version, from: &[u8]) -> postcard::Result<(Self, &[u8])> {
        match version {
            Version::V3 => {
                let ((arrived_ns, traces, edges), rest) = postcard::take_from_bytes::<(_, v3::ByteTraces, _)>(from)?;
                Ok(((arrived_ns, traces.try_into()?, edges), rest))
            }
            Version::V4 => postcard::take_from_bytes(from),
        }
    }
}

impl Message for AgentMessage {
    fn put(&self, version: Version, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
        match self {
            AgentMessage::Batch(batch) if version == Version::V3 => v3::put(batch, to),
            _ => postcard::to_extend(self, to),
        }
    }

    fn take(version: Version, from: &[u8]) -> postcard::Result<(AgentMessage, &[u8])> {
        match version {
            Version::V3 => v3::take(from),
            Version::V4 => postcard::take_from_bytes(from),
        }
    }
}

impl Content {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        let Content { intervals, traces, counters, lost, is_last } = self;
        intervals.is_empty() && traces.0.is_empty() && counters.is_empty() && lost.is_none() && !is_last
    }

    /// Returns roughly how many bytes of memory the content takes; on the wire it may take a tenth.
    pub fn memory_bytes(&self) -> usize {
        /// A bucket of a histogram, as a tree keeps it.
        const BUCKET_BYTES: usize = 24;
        let of_histogram = |histogram: &Histogram| size_of::<Histogram>() + histogram.buckets().count() * BUCKET_BYTES;
        let of_interval = |interval: &IntervalReport| -> usize {
            let segments = interval.segments.iter();
            let segments = segments.map(|report| {
                let hooks = [&report.hooks.from, &report.hooks.to].into_iter().flatten().map(String::len);
                of_histogram(&report.first.histogram) + of_histogram(&report.again) + hooks.sum::<usize>()
            });
            let figures = interval.flows.iter().flat_map(|flow| &flow.segments);
            let figures = figures.map(|figures| of_histogram(&figures.histogram));
            let names = interval.flows.iter().flat_map(|flow| &flow.namespace).map(String::len);
            let flows = names.sum::<usize>()
                + interval.flows.len() * size_of::<FlowReport>()
                + interval.rtts.len() * size_of::<FlowRtt>();
            segments.sum::<usize>() + figures.sum::<usize>() + flows
        };
        let intervals: usize = self.intervals.iter().map(of_interval).sum();
        let counters: usize = self.counters.iter().map(|(name, _)| size_of::<(String, u64)>() + name.len()).sum();
        intervals + counters + self.traces.0.len() * size_of::<ByteTrace>()
    }
}

/// The measurements of an interval: its segments, or some of its flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// End of the interval.
    #[serde(deserialize_with = "fields::time")]
    pub end_ns: u64,
    /// End of the interval in Unix time, by the host's clock.
    #[serde(deserialize_with = "fields::unix_time")]
    pub end_unix_ns: i64,
    /// Length of the interval.
    #[serde(deserialize_with = "fields::duration")]
    pub length_ns: u64,
    /// Sampling distance: one byte in this many was traced.
    pub sample_bytes: u32,
    /// Segments over all flows; empty in a report that carries only flows.
    #[serde(deserialize_with = "fields::list::<_, _, { Segment::ALL.len() }>")]
    pub segments: Vec<SegmentReport>,
    /// Segments of single flows.
    #[serde(deserialize_with = "fields::list::<_, _, MAX_FLOWS>")]
    pub flows: Vec<FlowReport>,
    /// Round-trip times of these flows, as measured by the host's TCP.
    #[serde(deserialize_with = "fields::list::<_, _, MAX_RTTS>")]
    pub rtts: Vec<FlowRtt>,
}

/// The time that bytes of all flows spent in a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentReport {
    /// Times of bytes that were sent and received once.
    pub first: SegmentFigures,
    /// Times of bytes that were retransmitted or received again.
    pub again: Histogram,
    /// The hooks at the ends of the segment, with names of at most [`MAX_HOOKS_BYTES`] at each.
    #[serde(deserialize_with = "fields::hooks")]
    pub hooks: SegmentHooks,
}

/// The segments of one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow.
    pub ends: Ends,
    /// The name of its socket's network namespace, of at most [`MAX_NAME_BYTES`]; `None` for the one that the agent runs in.
    #[serde(deserialize_with = "fields::name")]
    pub namespace: Option<String>,
    /// The initial sequence numbers of its connection, if they are known; of several collectors, they say which one gets it.
    pub isns: Option<Isns>,
    /// Segments of the directions in which bytes were traced.
    #[serde(deserialize_with = "fields::list::<_, _, { Segment::ALL.len() }>")]
    pub segments: Vec<SegmentFigures>,
}

/// Round-trip times of one flow, as measured by the host's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRtt {
    /// The flow.
    pub ends: Ends,
    /// Whether the host receives this flow; otherwise it sends it.
    pub is_received: bool,
    /// TCP's recent minimum.
    #[serde(deserialize_with = "fields::duration")]
    pub min_ns: u64,
    /// TCP's smoothed round-trip time.
    #[serde(deserialize_with = "fields::duration")]
    pub smoothed_ns: u64,
}

/// The name of an agent: 1 to 64 letters, digits, dots, dashes and underscores.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    /// Returns the name.
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
