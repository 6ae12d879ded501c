//! The data plane of a balancer: an XDP program that sends clients' packets to
//! backends, which answer the clients themselves (direct server return), and
//! that estimates the response latency of each as it does.

mod carry;
mod decap;
mod maps;
mod options;
mod pins;
mod plane;
mod zero_rtt;

pub use decap::{Decap, DecapCounters};
pub use dwell_engine::balance::{
    Counters, Decision, Forward, Load, Mac, NextHop, Protocol, Real, Seen, ServerId, Verdict, Vip, VipKey, Why,
    ZeroServer, ZeroVip,
};
pub use options::PlaneOptions;
pub use pins::Taken;
pub use plane::{Actives, Answer, Plane};
pub use zero_rtt::ServerLoad;
