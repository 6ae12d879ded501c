//! Sources of packets and of what is stored: interfaces, captures, and servers.

mod capture;
mod cost;
mod filter;
mod input;
mod live;
mod metrics;
mod nothing;
mod repeats;
mod replay_output;
mod server;
mod stack;
mod stack_metrics;

use std::hash::{BuildHasher, RandomState};

pub use capture::{Capture, CaptureLosses, MORE_OF_EACH, Observer, interrupted, left_out};
pub use cost::cost;
pub use filter::FilterArgs;
pub use input::NoInput;
pub use live::{HookName, Interfaces, clock, fail_if_lost};
pub use metrics::{GROUP_LABELS, ProbeStatus, Watcher};
pub use nothing::Wanted;
pub use replay_output::ReplayOutput;
pub use server::{ServerArgs, is_store, server};
pub use stack::{Namespaces, StackArgs, host_name, stack_lost, stack_status};
pub use stack_metrics::StackMetrics;

/// Draws a seed for what is hashed in the kernel or sampled, which no peer can guess.
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
