//! A waiting time in 16 bits.

use std::{fmt, time::Duration};

use super::native;

/// How long a request waits at a server, as a connection ID carries it: exact up to 2 µs, and
/// then to 0.05 %. What is longer than 73 minutes is taken for that. A longer wait is more; not to
/// be known is the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Load(u16);

impl Load {
    /// A server that cannot tell.
    pub const UNKNOWN: Load = Load(0);

    /// Of a waiting time.
    pub fn from_wait(wait: Duration) -> Load {
        Load(native::wait_code(wait.as_nanos().try_into().unwrap_or(u64::MAX)))
    }

    /// What a connection ID says.
    pub fn from_code(code: u16) -> Load {
        Load(code)
    }

    /// The waiting time, if it is known.
    pub fn wait(self) -> Option<Duration> {
        (self != Load::UNKNOWN).then(|| Duration::from_nanos(native::wait_ns(self.0)))
    }

    /// As a connection ID has it.
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
