//! Which backend a new connection gets, in the native core, where time is an argument, and in the kernel.

mod choices;
mod reuse;
mod sampling;
