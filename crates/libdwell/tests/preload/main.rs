//! Real programs over loopback, with libdwell_preload or libdwell_calls preloaded, and the C interface.

#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod api;
mod build;
mod calls;
mod delays;
mod faults;
mod harness;
mod processes;
mod reach;
#[path = "../../../../lab/testbed/src/skip.rs"]
mod skip;
mod sockets;
