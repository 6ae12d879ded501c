//! Transport of measurements from agents on many hosts to one collector, or a few.
//!
//! An agent gathers its measurements into batches by a [`Batcher`], keeps them in an [`Outbox`], and sends them by an
//! [`Uplink`] until the collector confirms that they are stored; [`Lanes`] are one of each per collector. A [`Server`] admits agents that authenticate, and passes their batches to
//! a [`Handler`]. Both sides exchange the frames of [`wire`] over TLS 1.3, and each authenticates the other by its
//! [`Identity`].
//!
//! This crate measures nothing. All that it writes to disk is the outbox, if it has a folder.

#![deny(clippy::print_stderr, reason = "only the binary writes messages to people")]

mod agent;
mod confinement;
mod error;
mod identity;
mod lanes;
mod link;
mod outbox;
mod server;
mod session;
#[cfg(test)]
#[path = "../../../lab/testbed/src/skip.rs"]
mod skip;
mod uplink;
pub mod wire;

pub use agent::Batcher;
pub use confinement::{Confinement, confine, folder_of};
pub use error::Error;
pub use identity::{Identity, Key, KeyFile, NewKey, Token};
pub use lanes::{Lane, Lanes, MAX_COLLECTORS};
pub use link::Secret;
pub use outbox::{Backlog, BufferError, Outbox, Unread, adopt};
pub use server::{Agent, Busy, Handler, Limits, Refusal, Refusals, Server, peer_host};
pub use session::clock_session;
pub use uplink::{CollectorAddress, Event, Uplink, VERSION_REMEDY, ask_for_key};
