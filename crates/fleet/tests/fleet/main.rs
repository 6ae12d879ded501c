//! Agents and collectors on loopback.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

mod certificates;
mod golden;
mod keys;
mod lanes;
mod messages;
mod refusals;
mod sessions;
mod support;
