//! What dwell prints: each format a file behind the [`Format`] trait, and what
//! stands around them.
//!
//! A [`Format`] turns records into bytes and does nothing else. A [`Sink`]
//! takes the bytes to a file, pipe or terminal and says what a failure means. An
//! [`Output`] is the two with a [`Source`], which knows how to read the times
//! and interface numbers in records. [`Summary`] collects what is written at the end. Nothing here reads a clock: all output is in
//! Unix time as the source's [`Clock`] gives it, whatever the local time zone.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod clock;
mod formats;
mod output;
mod record;
mod sink;
mod sockets;
mod source;
mod summary;

pub use clock::{Clock, Timestamps};
pub use formats::{Entry, FORMATS, Format, Jsonl, Latency, Ppviz, Rate, SCHEMA, Text, counted, entry};
pub use output::Output;
pub use record::{
    Distribution, Group, GroupKey, Interval, PathTable, Prefix, Response, Stack, StackHop, StackPlace, StackRow,
    StackShift, Status,
};
pub use sink::{Flush, Sink, SinkError};
pub use sockets::{Shares, Socket, SocketCounts, SocketEnd, SocketLine, SocketSummary, SocketTotal, Sockets};
pub use source::{Interfaces, Source};
pub use summary::{FlowKey, FlowLine, Summary};
