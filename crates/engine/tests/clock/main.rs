//! Comparison of clocks: the packets, and the estimates from their times.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod estimate;
mod packets;
mod siphash;
