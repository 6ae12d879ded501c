//! Simulated sockets, for which the test knows when each byte was written, left, arrived and was read.

mod control;
mod kernel;
mod meter;
