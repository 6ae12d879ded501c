//! Sockets watched in their own process, whatever that process is.
//!
//! A poller looks at each socket of the process and tells the table what it finds. Preloaded, it is a thread that
//! libc knows nothing of, which the first connection starts; for a program that asks for it (`session`), it is an
//! ordinary one. Both allocate nothing once they run, take no lock, open no descriptor, and do not panic.
//!
//! - `registry`: the sockets that are known, and each round of looks at them. `entry`: one socket.
//! - `preload`: what a preloaded library keeps, and how its poller begins and ends.
//! - `hooks`: what happens in the calls that the library takes the place of.

mod adjust;
mod budget;
mod entry;
pub mod hooks;
mod memory;
mod pending;
pub mod preload;
mod registry;
mod stamps;

pub(crate) use budget::Budget;
pub(crate) use entry::{Begun, Means};
pub(crate) use hooks::hold;
pub(crate) use registry::Watched;
