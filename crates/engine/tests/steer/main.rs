//! Maglev tables, latency steering step by step, and statistics of backends in an interval.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod forged;
mod heavy_share;
mod intervals;
mod latency;
mod maglev;
mod waiting;
mod zero_rtt;
