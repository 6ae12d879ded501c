//! End-to-end tests of `dwell lb`: the real binary, with real traffic between network namespaces. Tests whose names begin
//! with `root_` need root, and are skipped without it.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]
#![allow(unsafe_code, reason = "BPF programs are written as instructions")]

mod api;
mod chain;
mod collected;
mod files;
mod heavy;
mod offline;
mod paths;
mod scene;
mod second;
mod shared;
mod steering;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod support;
mod takeover;
mod traffic;
mod units;
mod veth;
#[path = "../../../probes/tests/support/xdp.rs"]
mod xdp;
mod zero_rtt;
