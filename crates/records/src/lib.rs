//! What dwell writes: records, and the formats that turn them into bytes.
//!
//! A [`Format`] appends a [`Record`] to a buffer and does nothing else. A [`Sink`] writes the buffer to a file, pipe or
//! terminal and classifies failures. An [`Output`] joins the two with a [`Source`], which interprets the times and
//! interface numbers in records, and with what is to [`Keep`] them. A [`Summary`] collects samples for the end of a run. Nothing here reads a clock: all
//! output is in Unix time as the source's [`Clock`] gives it, whatever the local time zone.

#![deny(clippy::print_stderr, reason = "only the program writes to stderr")]

mod clock;
mod file;
mod formats;
mod gray;
mod keep;
mod latencies;
mod names;
mod output;
mod record;
mod responses;
mod schema;
mod shift;
mod sink;
mod sockets;
mod source;
mod summary;
mod top;

pub use clock::{Clock, Timestamps, now};
pub use file::{RecordFile, Rotation};
pub use formats::{
    End, EndNamesObject, Entry, EstimateObject, FORMATS, FlowObject, Format, Header, Jsonl, Latency, LatencyObject,
    Lines, NamesObject, Object, Ppviz, Rate, SCHEMA, Text, counted, entry, write_object,
};
pub use gray::{GrayFailure, GrayFigures};
pub use keep::Keep;
pub use latencies::{LatencyLine, latencies, sample_latencies};
pub use names::{name_note, server_note};
pub use output::Output;
pub(crate) use record::Mode;
pub use record::{
    AgentEvent, ConditionOutcome, Cost, Distribution, Group, GroupKey, Interval, Kind, PathObject, PathTable, Prefix,
    Record, Response, Stack, StackByte, StackFlow, StackHop, StackPlace, Status, Verb, Verdict, Why, complete_bytes,
};
pub use responses::{ResponseLine, ResponseSummary, ResponsesOf};
pub use schema::Schema;
pub use shift::{ResponseKey, RoundTripKey, Shift, ShiftKey};
pub use sink::{Flush, Sink, SinkError, print};
pub use sockets::{
    Shares, Socket, SocketCounts, SocketEnd, SocketFigure, SocketLine, SocketOrder, SocketSummary, SocketTotal, Sockets,
};
pub use source::{Interfaces, Source};
pub use summary::{FlowKey, FlowLine, Summary};
pub use top::{Top, TopRow};
