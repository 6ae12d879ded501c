//! Memory that `dwell run` shares with the processes that it runs: libdwell writes there what it finds, and dwell
//! reads it.
//!
//! A slot is one socket, known by its cookie, which one process at a time writes. Nobody waits for anybody: a process
//! that is killed at any point leaves a table that can be read, and a slot that another process can take over.

mod layout;
mod orders;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::{io, time::Duration};

use dwell_engine::socket::Estimator;

pub use layout::{Poller, SLOTS};
pub use orders::Orders;
pub use reader::Table;
pub use writer::{Claim, Count, Seat, Wish, Writer};

pub(crate) use record::blank;

/// The environment variable that has the table's path.
pub const VARIABLE: &str = "DWELL_TABLE";

/// What the library is to do in each process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How often each socket is looked at.
    pub poll: Duration,
    /// What share of a core the pollers of all processes may take; they look less often rather than take more.
    pub budget: f64,
    /// How delays are estimated.
    pub estimator: Estimator,
    /// What shortens them. `None`: nothing.
    pub controller: Option<ControllerKind>,
    /// The delay in the send buffer that a controller aims at.
    pub target: Duration,
    /// The controller sets the send buffer's size too, for networks whose rate changes a lot.
    pub wireless: bool,
    /// The congestion control that sockets get, by the kernel's name. `None`: what they have.
    pub congestion: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            poll: Duration::from_millis(10),
            budget: 0.02,
            estimator: Estimator::Exact,
            controller: None,
            target: Duration::from_millis(25),
            wireless: false,
            congestion: None,
        }
    }
}

/// What shortens delays in the send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ControllerKind {
    /// The kernel, by `TCP_NOTSENT_LOWAT`.
    Lowat = 1,
    /// Algorithm 3 of the paper, which sleeps in calls that write. It takes libdwell_calls.
    Element = 2,
}

/// What happened in all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Processes that loaded the library and opened the table; one that runs another program counts again.
    pub processes: u64,
    /// Connections that ended before they were looked at.
    pub too_short: u64,
    /// Connections that found no free place, here or in their process.
    pub no_place: u64,
    /// Times that a process could not start a poller.
    pub no_poller: u64,
    /// Connections that dwell leaves alone, as their program sets itself what a controller would.
    pub hands_off: u64,
    /// Settings that the kernel refused.
    pub refused: Vec<Refused>,
}

/// A setting that the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Which.
    pub wish: Wish,
    /// Why: EPERM, ENOENT and their like.
    pub errno: i32,
    /// How often.
    pub times: u64,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel gave no memory.
    #[error("memory to share with programs: {operation}: {source}")]
    Memory {
        /// The call that failed.
        operation: &'static str,
        /// Why.
        source: io::Error,
    },
    /// No kernel has a congestion control of this name.
    #[error(
        "congestion control `{name}`: a name has 1 to 15 bytes, as in sysctl net.ipv4.tcp_available_congestion_control"
    )]
    Congestion {
        /// The name.
        name: String,
    },
}
