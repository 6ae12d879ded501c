//! Sockets, of which the test knows when each byte was written, left, came and was read.

mod control;
mod kernel;
mod meter;
