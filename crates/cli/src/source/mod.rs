//! Where packets come from: interfaces and captures.

mod capture;
mod input;
mod live;
mod metrics;
mod stack;
mod told;

pub use capture::{Capture, interrupted};
pub use input::NoInput;
pub use live::{Interfaces, boot_id, clock};
pub use metrics::{GROUP_LABELS, ProbeStatus};
pub use stack::{StackArgs, host_name, stack_rows};
pub use told::Told;
