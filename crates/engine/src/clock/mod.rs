//! Clocks of two hosts: the packets that compare them, and the estimates from these comparisons.

mod estimate;
pub mod native;
mod sync;

pub use estimate::{Assumptions, BoundedTime, Clock, Drift, Exchange, Fit, best, pause};
pub use sync::{Counters, Experiment, Key, MESSAGE_BYTES, Reply, Session, Stamper, answer, read_reply, request};
