//! Watches the sockets of the process that this code runs in, whatever that process is.
//!
//! A poller reads the state of each socket and publishes it in the table. In a preloaded library the poller is a thread
//! that libc does not know, started by the first connection; for a program that asks for it (`session`) it is an
//! ordinary thread. While they run, both allocate nothing, take no lock, open no descriptor, and do not panic.
//!
//! - `registry`: the known sockets, and each round of polls. `entry`: one socket.
//! - `preload`: the state of a preloaded library, and how its poller starts and ends.
//! - `hooks`: the calls that the library intercepts.

mod adjust;
mod budget;
mod entry;
pub mod hooks;
mod mark;
mod memory;
mod pending;
pub mod preload;
mod registry;
mod stamps;

pub(crate) use adjust::{Adjuster, Refusals, set_congestion};
pub(crate) use budget::Budget;
pub(crate) use entry::{Context, Origin};
pub(crate) use hooks::hold;
pub(crate) use registry::OwnedRegistry;
pub use stamps::CallEvent;
