//! Memory that `dwell run` shares with the processes that it runs: libdwell writes measurements, and dwell reads them.
//!
//! Each slot is one socket, identified by its cookie; one process at a time writes it. Nobody waits for anybody: a
//! process that is killed at any point leaves a readable table and a slot that another process can take over.

mod layout;
mod raw_config;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::{io, ops::AddAssign, time::Duration};

use dwell_engine::socket::Estimator;

pub use layout::{Poller, SLOTS};
pub use raw_config::RawConfig;
pub use reader::Table;
pub use writer::{Claim, Count, SlotIndex, SocketOption, Writer};

pub(crate) use record::blank;

/// Environment variable with the table's path.
pub const VARIABLE: &str = "DWELL_TABLE";

/// Environment variable with a path of the table through an inherited descriptor, for programs that run as another user
/// than dwell, which may not open the path in [`VARIABLE`].
pub const INHERITED_VARIABLE: &str = "DWELL_TABLE_INHERITED";

/// Configuration of the library.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Time between two polls of a socket.
    pub poll: Duration,
    /// Share of a core that the pollers of all processes may use together; they poll less often rather than exceed it.
    pub budget: f64,
    /// The method of estimating delays.
    pub estimator: Estimator,
    /// The controller that shortens delays, if any.
    pub controller: Option<ControllerKind>,
    /// Target of the controller for the delay in the send buffer.
    pub target: Duration,
    /// Whether the controller also sets the send buffer's size, for networks whose rate varies a lot.
    pub wireless: bool,
    /// Congestion control for all sockets, by the kernel's name. `None` leaves it unchanged.
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

/// A controller that shortens delays in the send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ControllerKind {
    /// The kernel limits unsent bytes, by `TCP_NOTSENT_LOWAT`. With libdwell_calls writes are cut into pieces, so that it
    /// does so with segmentation offload too.
    Lowat = 1,
    /// Algorithm 3 of ELEMENT, which sleeps in calls that write. It needs libdwell_calls, and the estimator is then
    /// `Paper`.
    Element = 2,
}

/// Events in all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Processes that loaded the library and opened the table. One that executes another program counts again.
    pub processes: u64,
    /// Connections that ended before their first poll.
    pub too_short: u64,
    /// Connections that found no free slot in the table or in their process.
    pub no_slot: u64,
    /// Number of times that a process could not start a poller.
    pub no_poller: u64,
    /// Connections that dwell leaves alone because their program sets the same options.
    pub hands_off: u64,
    /// Options that the kernel refused.
    pub refused: Vec<Refused>,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts { processes, too_short, no_slot, no_poller, hands_off, refused } = other;
        self.processes += processes;
        self.too_short += too_short;
        self.no_slot += no_slot;
        self.no_poller += no_poller;
        self.hands_off += hands_off;
        for one in refused {
            match self.refused.iter_mut().find(|it| (it.option, it.errno) == (one.option, one.errno)) {
                Some(same) => same.times += one.times,
                None => self.refused.push(one),
            }
        }
    }
}

/// An option that the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The option.
    pub option: SocketOption,
    /// The error number: EPERM, ENOENT and the like.
    pub errno: i32,
    /// Number of refusals.
    pub times: u64,
}

/// Why a table could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel provided no memory.
    #[error("memory to share with programs: {operation}: {source}")]
    Memory {
        /// The system call that failed.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A kernel cannot have a congestion control of this name.
    #[error(
        "congestion control `{name}`: a name has 1 to 15 bytes, as in sysctl net.ipv4.tcp_available_congestion_control"
    )]
    Congestion {
        /// The invalid name.
        name: String,
    },
}
