//! Response latency from the client's packets alone.
//!
//! The core processes each packet of a flow and leaves a record of each epoch ([`Epoch`]); [`estimate()`] turns it into
//! a latency with a confidence.

mod answers;
mod auto;
mod config;
mod estimate;
mod modes;
mod native;
mod running;
mod tracker;
mod tracks;
mod turns;

pub use answers::{Answers, Bucket, Quantile};
pub use config::{Config, Epsilon, Estimator, Rto};
pub use estimate::{Estimate, Method, Reason, Truth, estimate};
pub use native::{Epoch, Flow, Tracker, brief_edges};
pub use running::{Running, RunningMeans};
pub use tracker::{Key, Record, Watch};
