//! Measures how long bytes wait in the buffers of a TCP socket, from user space ("I Sent It: Where Does Slow Data Go to
//! Wait?", EuroSys 2019), and controls that wait.

mod account;
mod calls;
pub mod control;
mod curve;
mod meter;
mod poll_pacer;
mod reading;

pub use account::{Account, Peaks, Viewpoint};
pub use calls::Calls;
pub use curve::{CrossingTime, Curve};
pub use meter::{Delay, Delays, Estimator, Meter, Sum, Totals};
pub use poll_pacer::PollPacer;
pub use reading::{Reading, TcpInfo};
