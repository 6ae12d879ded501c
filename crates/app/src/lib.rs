//! What the binaries `dwell` and `dwell-lab` have in common: exit statuses, signals, messages to people, and the
//! values that options of several verbs take.

pub mod args;
pub mod completions;
mod exit;
pub mod failure;
pub mod log;
pub mod man;
pub mod progress;
mod service;
pub mod stop;

pub use exit::Exit;
