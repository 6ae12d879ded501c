//! `dwell lb` from outside: the real binary, over real traffic between network namespaces. Tests whose
//! names begin with `root_` need root, and say so and pass without it.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]
#![allow(unsafe_code, reason = "BPF programs by their instructions")]

mod api;
mod chain;
mod files;
mod heavy;
mod offline;
mod scene;
mod steering;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod support;
mod takeover;
mod traffic;
mod units;
mod ways;
#[path = "../../../probes/tests/support/xdp.rs"]
mod xdp;
mod zero_rtt;
