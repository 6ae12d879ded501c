//! Testbeds made of network namespaces, for measurements whose true answer is known.
//!
//! A [`Lab`] is a small network: a client, a server, and a vantage point between them where dwell watches. Link
//! emulators stand between the vantage point and each end, in namespaces of their own, so that endpoints and vantage
//! point are the same as on a real host. Measurements at the vantage point can then be compared with the [`Topology`]
//! and with the emulator's [`Report`].
//!
//! Nothing is left behind: guards remove namespaces and end processes when they are dropped, and each new lab first
//! removes what a killed one left ([`list`]).

mod console;
mod cpu_group;
mod emulator;
pub mod error;
mod guest;
pub mod harness;
pub mod json_schema;
mod link;
mod link_box;
mod namespace;
mod nfqueue;
pub mod pages;
mod pair;
mod persistent;
mod phases;
pub mod program;
mod registry;
pub mod signals;
pub mod skip;
mod switch;
mod topology;
mod trace;
mod units;
pub mod workload;

pub use cpu_group::{CpuGroup, CpuGroups};
pub use emulator::{DirectionReport, EmulatorConfig, EmulatorHandle, QueueConfig, Report, become_realtime, emulate};
pub use error::Error;
pub use guest::{Guest, GuestOptions};
pub use link::{DropReason, Fate, Link, LinkSpec, QueueLimit, Reorder};
pub use link_box::{BoxLink, BoxSpec, Discipline, LinkBox, QueueStatistics, Shaper, Statistics, Towards};
pub use namespace::{Guarded, Namespace};
pub use pair::Pair;
pub use persistent::{UpOptions, down, up};
pub use phases::{Phase, Phases};
pub use registry::{Labs, ProcessId, State, list, missing_requirement};
pub use switch::Switch;
pub use topology::{Emulation, Lab, LabOptions, LinkPair, Role, Side, Topology};
pub use trace::Trace;
pub use units::{BitsPerSecond, Bytes, Nanos, Probability};

/// The result of fallible functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;
