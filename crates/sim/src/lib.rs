//! What a policy does to those who wait: clients, a balancer and servers with queues, on a clock of
//! their own.
//!
//! The balancer's decisions are its own code: Maglev tables and latency steering of
//! [`dwell_engine::steer`], heavy hitters and overload of the C core that the kernel runs. What the
//! model leaves out is told in `docs/method/simulation.md`.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod batch;
mod clients;
mod distribution;
mod outcome;
mod random;
mod route;
mod run;
mod scenario;
mod server;
mod statistics;
mod steering;
pub mod study;
pub mod trace;

pub use batch::{Job, Progress, run_all};
pub use distribution::Distribution;
pub use outcome::{Outcome, Resumed, Sample};
pub use route::Policy;
pub use run::simulate;
pub use scenario::{Network, Scenario, ScenarioError, Server, TraceConfig, ZeroRtt};
pub use statistics::Estimate;
