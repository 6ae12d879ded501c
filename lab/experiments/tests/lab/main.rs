//! The laboratory from outside: the binary `dwell-lab`, on real traffic between network namespaces. Tests whose names
//! begin with `root_` need root. They start the `dwell` next to `dwell-lab`: build the workspace first.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod cost;
mod demo;
mod errors;
mod faults;
mod fleet;
mod help;
mod lab;
mod lb;
mod load;
mod problem;
mod quic;
mod response;
mod rtt;
mod run;
#[path = "../../../testbed/tests/root/support.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the testbed's tests")]
mod scripts;
mod sim;
mod socket;
mod spin;
mod stack;
mod support;
mod video;
