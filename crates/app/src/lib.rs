//! What the binaries `dwell` and `dwell-lab` have in common: exit statuses, signals, messages to people, the
//! values that options of several verbs take, and what holds of all options.

pub mod args;
pub mod completions;
mod exit;
pub mod failure;
pub mod log;
pub mod man;
pub mod progress;
mod service;
pub mod stop;
pub mod vocabulary;

pub use exit::Exit;
