//! Response latency: the modes of the paper, epochs, and estimates of synthetic workloads with known latencies.

#![allow(clippy::unwrap_used)] // also in the helpers of tests, which clippy does not see as tests

mod adversary;
mod captures;
mod doubts;
mod epochs;
mod faults;
mod flows;
mod late_acks;
mod modes;
mod recorded;
mod server_clock;
mod simulation;
#[path = "../../../../lab/testbed/src/skip.rs"]
mod skip;
mod support;
mod tls;
mod turns;
mod unasked;
mod wire;
mod workloads;
