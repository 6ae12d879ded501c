//! What bytes wait in the buffers of a TCP socket, seen from user space ("I Sent It: Where Does Slow Data Go to
//! Wait?", EuroSys 2019), and what keeps them from waiting.

mod account;
mod calls;
pub mod control;
mod curve;
mod meter;
mod reading;
mod rhythm;

pub use account::{Account, Peaks, Way};
pub use calls::Calls;
pub use curve::{Curve, When};
pub use meter::{Delay, Estimator, Meter, Observed, Sum, Totals};
pub use reading::{Reading, TcpInfo};
pub use rhythm::Rhythm;
