//! Captures made byte by byte, damaged ones, and real ones.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod build;
mod copy;
mod damage;
mod formats;
mod real;
#[path = "../../../../lab/testbed/src/skip.rs"]
mod skip;
mod writer;
