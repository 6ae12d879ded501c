//! What this host can do: facts, each really tried; a plan, what they mean for
//! each verb; an explanation, with what to do about it.

mod capabilities;
mod clsact;
mod devices;
mod explain;
mod facts;
mod plan;
mod probe;
mod trials;

pub use clsact::Filter;
pub use devices::{Attached, Device};
pub use explain::{Report, explain};
pub use facts::{Answer, Fact, Facts, LayerHook};
pub use plan::{Plan, Reason, State, Verdict, plan};
pub use probe::probe;

pub(crate) use capabilities::{Capability, GRANT};
pub(crate) use devices::native_xdp;
pub(crate) use trials::{attaches, has_loop};

#[cfg(test)]
mod tests;
