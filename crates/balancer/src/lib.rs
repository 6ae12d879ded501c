//! The control plane of `dwell lb`: configuration, planning, health checks, the control loop and its API.

pub mod api;
pub mod config;
pub mod control;
pub mod health;
pub mod metrics;
pub mod neighbours;
pub mod plan;
pub mod shared;
