//! The control plane of `dwell lb`: what a load balancer is to do, and what it takes to do it while
//! connections are open.

pub mod api;
pub mod config;
pub mod control;
pub mod health;
pub mod plan;
