//! Why connections are slow: from what was measured of them to the cause.
//!
//! A [`Connection`] takes polls of one socket and divides its time into [`Part`]s; a [`Replay`] does so with the packets of a
//! capture, and a [`Path`] has what a store knows of the path of bytes between two hosts. [`Evidence`] is the sum over all
//! connections of a target, with what is known of their process and of the layers of this host. [`decide`] ranks the
//! [`Cause`]s by it. Nothing here reads a clock, a file or a socket. docs/method/why.md has the rules and their sources.

mod capture;
mod cause;
mod common;
mod connection;
mod evidence;
mod figures;
mod groups;
mod names;
mod part;
mod path;
mod poll;
mod requests;
#[cfg(test)]
mod tests;
mod unseen;
mod unsent;
mod verdict;
mod worst;

pub use capture::{Replay, UdpPackets};
pub use cause::Cause;
pub use common::{Common, Shared};
pub use connection::Connection;
pub use evidence::{Evidence, Source, Target, UnopenedConnections, Unseen};
pub use figures::{ByLength, Datagrams, Layers, Process, Quota, RoundTrip, Silences, Sums};
pub use groups::{CountKind, Group, Key};
pub use names::Names;
pub use part::{Part, Times};
pub use path::{Path, PathFigures};
pub use requests::{RequestEnds, Requests};
pub use unsent::Unsent;
pub use verdict::{Certainty, Fact, Outcome, Ranked, Remedy, Value, Verdict, decide};
pub use worst::{Longest, Worst};

use crate::roles::Role;
