//! Real programs over loopback, with libdwell preloaded.

mod delays;
mod harness;
