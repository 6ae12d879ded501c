//! Agents and collectors on loopback.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod certificates;
mod messages;
mod sessions;
mod strangers;
mod support;
