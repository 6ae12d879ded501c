//! What this host can do. `probe` finds out facts by trial, `plan` decides what they mean for each verb, and `explain`
//! puts that in words, with remedies.

mod capabilities;
mod clsact;
mod devices;
mod explain;
mod facts;
mod mounts;
pub mod needs;
mod plan;
mod probe;
mod trials;

pub use capabilities::lacking_to_load;
pub use clsact::Filter;
pub use devices::{Attached, Device};
pub use explain::{Report, diagnose};
pub use facts::{Answer, Fact, LayerHook};
pub use mounts::mount_points;
pub use needs::{DWELL, ExtraFact, Need, Obstacle, Otherwise, Requirements, Verb};
pub use plan::{Reason, State, Verdict};
pub use probe::installed;

pub(crate) use capabilities::{Capability, GRANT, OUTSIDE, remedy_for_missing};
pub(crate) use devices::{native_xdp, program_by_id, xdp_mode};
pub(crate) use mounts::{bpf_filesystem_remedy, mount_point};
pub(crate) use trials::{attaches, has_loop};

use facts::Facts;
use plan::Plan;
use probe::probe;

#[cfg(test)]
mod tests;
