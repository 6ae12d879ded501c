//! Waiting times encoded in 16 bits.

use std::{fmt, time::Duration};

use super::native;

/// The waiting time of a request at a server, as a connection ID carries it: exact up to 2 µs, and then to 0.05 %.
/// Times above 73 minutes are encoded as 73 minutes. Loads are ordered by waiting time, with an unknown load as the
/// least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Load(u16);

impl Load {
    /// The load of a server that does not know it.
    pub const UNKNOWN: Load = Load(0);

    /// Encodes a waiting time.
    pub fn from_wait(wait: Duration) -> Load {
        Load(native::wait_code(wait.as_nanos().try_into().unwrap_or(u64::MAX)))
    }

    /// Wraps the code in a connection ID.
    pub fn from_code(code: u16) -> Load {
        Load(code)
    }

    /// Returns the waiting time, if it is known.
    pub fn wait(self) -> Option<Duration> {
        (self != Load::UNKNOWN).then(|| Duration::from_nanos(native::wait_ns(self.0)))
    }

    /// Returns the code for a connection ID.
    pub fn code(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait() {
            Some(wait) => write!(f, "Load({wait:?})"),
            None => f.write_str("Load(unknown)"),
        }
    }
}
