//! Agents and their collector: how what was measured on many hosts comes to one.
//!
//! An agent keeps what it measured in an [`Outbox`] and sends it by an [`Uplink`], in
//! numbered batches, until the collector says that they are stored. A [`Server`] lets
//! in who has the right key, and hands their batches to a [`Desk`]. Both sides speak
//! the frames of [`wire`] over TLS 1.3, and each requires the other to be whom its
//! [`Identity`] says.
//!
//! Nothing here measures, and nothing is kept on a disk.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod error;
mod identity;
mod link;
mod outbox;
mod server;
mod uplink;
pub mod wire;

pub use error::Error;
pub use identity::{Identity, Key};
pub use link::Secret;
pub use outbox::{Backlog, Outbox};
pub use server::{Agent, Desk, Refusals, Server};
pub use uplink::{CollectorName, Event, Uplink};
