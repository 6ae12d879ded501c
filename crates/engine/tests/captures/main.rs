//! Captures from other sources, compared with what other programs measured in them, and captures with known delays.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod nasty;
mod quic;
mod recorded;
mod requests;
#[path = "../../../../lab/testbed/src/skip.rs"]
mod skip;
mod support;
mod tcp;
mod wraps;
