//! Where packets come from: interfaces and captures.

mod capture;
mod input;
mod live;
mod told;

pub use capture::{Capture, interrupted};
pub use input::NoInput;
pub use live::{Interfaces, boot_id, clock};
pub use told::Told;
