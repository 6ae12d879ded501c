//! What is known of one socket.

use super::{Estimator, Observed, Reading, Totals, control::Setting};
use crate::layers::Ends;

/// A TCP connection, as one of its sockets tells it. Counts are since dwell began to watch it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Account {
    /// The kernel's number of the socket (SO_COOKIE), unique until the host restarts.
    pub cookie: u64,
    /// A process that has it, if known.
    pub pid: Option<u32>,
    /// Its descriptor there.
    pub fd: Option<i32>,
    /// This end, and the other.
    pub ends: Ends,
    /// How it is watched.
    pub way: Way,
    /// How delays are estimated.
    pub estimator: Estimator,
    /// The last look.
    pub reading: Reading,
    /// The last delay of each direction.
    pub observed: Observed,
    /// The longest since this was asked for last.
    pub peaks: Peaks,
    /// For how long the oldest byte that has not left has been waiting.
    pub waiting_ns: Option<u64>,
    /// What bytes have waited.
    pub totals: Totals,
    /// What a controller has set.
    pub setting: Setting,
    /// It is closed, and this is the last of it.
    pub ended: bool,
}

/// The longest delays of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peaks {
    /// From being written to leaving TCP.
    pub sender_ns: Option<u64>,
    /// From coming into order to being read.
    pub receiver_ns: Option<u64>,
}

/// How a socket is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Way {
    /// By libdwell in its process.
    Inside = 0,
    /// By netlink from another process.
    Outside = 1,
}

impl Way {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Way::Inside => "inside",
            Way::Outside => "outside",
        }
    }
}
