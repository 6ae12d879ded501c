//! Bytes that pass layers at times that the test sets.
#![allow(clippy::unwrap_used, reason = "what does not hold fails the test")]

mod hops;
mod join;
mod lost;
mod receive;
mod send;
mod support;
mod translated;
