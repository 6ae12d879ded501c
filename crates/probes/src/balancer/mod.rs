//! The data plane of a balancer: an XDP program that sends clients' packets to backends, which answer the clients
//! directly (direct server return), and estimates the response latency of each backend on the way.

mod decap;
mod dry_run;
mod heartbeat;
mod maps;
mod options;
mod pins;
mod plane;
mod tables;
mod transmit;
mod zero_rtt;

pub use crate::next_hop::{Device, NextHops};
pub use decap::Decap;
pub use dry_run::DryRun;
pub use dwell_engine::balance::{
    ActiveConnections, CidEvent, Counters, DecapCounters, DecapOutcome, DecapRules, Decision, Forward, Heartbeat,
    HeavyScope, Load, Mac, NextHop, Protocol, Real, Reason, Sampling, ServerId, ServerState, Verdict, Vip, VipKey,
    WhenStale, ZeroServer, ZeroVip,
};
pub use options::PlaneOptions;
pub use pins::StartKind;
pub use plane::Plane;
pub use tables::RECENT;
pub use transmit::{Delivery, TransmitCounts, Transmits};
pub use zero_rtt::ServerLoad;
