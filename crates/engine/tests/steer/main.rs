//! Maglev tables, latency steering step by step and in a closed loop, and statistics of backends in an interval.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod closed_loop;
mod forged;
mod heavy_share;
mod intervals;
mod latency;
mod maglev;
mod queues;
mod waiting;
mod zero_rtt;
