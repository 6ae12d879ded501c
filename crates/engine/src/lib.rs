//! The engine of dwell: turns packets into latencies.
//!
//! Per-packet algorithms are C in `core/`, compiled both into BPF programs and, by this crate, natively. Nothing here
//! reads a clock, a file or a map: time is an argument, so live traffic, a capture and a simulation produce the same
//! numbers from the same input.

pub mod abi;
pub mod balance;
pub mod baseline;
pub mod clock;
mod counters;
pub mod filter;
mod flow_id;
pub mod gray;
pub mod hash;
pub mod histogram;
pub mod labels;
pub mod layers;
pub mod measure;
pub mod missing;
pub mod names;
pub mod observe;
pub mod quic_lb;
pub mod replay;
pub mod response;
pub mod roles;
pub mod rtt;
mod sequence;
pub mod socket;
pub mod stats;
pub mod steer;
mod table;
pub mod top;
pub mod units;
pub mod why;

pub use flow_id::flow_id;
