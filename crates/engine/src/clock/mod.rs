//! Two hosts' clocks: the packets that compare them, and what follows from the
//! comparisons.

mod estimate;
pub mod native;
mod sync;

pub use estimate::{Assumptions, Clock, Converted, Drift, Exchange, Fit, best, pause};
pub use sync::{Counters, Experiment, Key, MESSAGE_BYTES, Reply, Session, Stamper, answer, read_reply, request};
