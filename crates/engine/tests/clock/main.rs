//! Clocks compared: the packets, and what is made of their times.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod estimate;
mod packets;
mod siphash;
