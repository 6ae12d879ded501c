//! Simulation of balancing policies: clients, a balancer and servers with queues, on a simulated clock.
//!
//! The balancer's decisions are made by its own code: Maglev tables and latency steering of [`dwell_engine::steer`],
//! heavy hitters and overload detection of the C core that the kernel runs. `docs/method/simulation.md` describes the
//! model and what it leaves out.

#![deny(clippy::print_stderr, reason = "only the binary writes messages to people")]

mod batch;
mod clients;
mod distribution;
mod outcome;
mod policy;
mod random;
pub mod report;
mod route;
mod run;
mod scenario;
mod server;
mod statistics;
mod steering;
pub mod study;
mod tournament;
pub mod trace;

pub use batch::{Job, Progress, run_all};
pub use distribution::Distribution;
pub use outcome::{LoadSample, Outcome, ResumptionCounts};
pub use policy::Policy;
pub use run::simulate;
pub use scenario::{HeavyScope, Network, Scenario, ScenarioError, Server, TraceConfig, ZeroRtt};
pub use statistics::Estimate;
