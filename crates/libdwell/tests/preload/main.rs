//! Real programs over loopback, with libdwell preloaded.

mod build;
mod calls;
mod delays;
mod faults;
mod harness;
mod processes;
mod sockets;
