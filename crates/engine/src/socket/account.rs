//! The state of one socket.

use super::{Delays, Estimator, Reading, Totals, control::Setting};
use crate::layers::Ends;

/// A TCP connection, as observed at one of its sockets. Counts start when dwell starts to observe it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Account {
    /// The kernel's number of the socket (SO_COOKIE), unique until the host restarts.
    pub cookie: u64,
    /// A process that holds the socket, if known.
    pub pid: Option<u32>,
    /// The descriptor of the socket in that process.
    pub fd: Option<i32>,
    /// The flow from this end to the other.
    pub ends: Ends,
    /// How the socket is observed.
    pub viewpoint: Viewpoint,
    /// How delays are estimated.
    pub estimator: Estimator,
    /// The last poll.
    pub reading: Reading,
    /// The last delay of each direction.
    pub delays: Delays,
    /// The longest delays since they were last read.
    pub peaks: Peaks,
    /// The age of the oldest byte that has not left.
    pub waiting_ns: Option<u64>,
    /// Delays and bytes since the start.
    pub totals: Totals,
    /// What a controller has set.
    pub setting: Setting,
    /// The socket is closed, and this is its last record.
    pub ended: bool,
}

/// The longest delays of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peaks {
    /// From the write to leaving TCP.
    pub sender_ns: Option<u64>,
    /// From arriving in order to being read.
    pub receiver_ns: Option<u64>,
}

/// How a socket is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Viewpoint {
    /// By libdwell in its process.
    Inside = 0,
    /// By netlink from another process.
    Outside = 1,
}

impl Viewpoint {
    /// Both viewpoints.
    pub const ALL: [Viewpoint; 2] = [Viewpoint::Inside, Viewpoint::Outside];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Viewpoint::Inside => "inside",
            Viewpoint::Outside => "outside",
        }
    }
}
