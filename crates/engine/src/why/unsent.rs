//! Why data that was written has not left: the congestion window is full, or the rate of the socket has a limit.

use crate::socket::TcpInfo;

/// What polls found of data that had not left although nothing was to be repaired and no window of the peer was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsent {
    /// The polls that found such data.
    pub polls: u64,
    /// Those of them at which the congestion window was full.
    pub full_polls: u64,
    /// The lowest limit of a socket's rate that held data back, in bytes per second.
    pub limit: Option<u64>,
}

impl Unsent {
    /// Adds a poll that found some. Returns true if it waits for the limit of the rate alone.
    pub(super) fn observe(&mut self, info: &TcpInfo) -> bool {
        let is_full = info.unacked + 1 >= info.cwnd;
        let limit = info.max_pacing_rate.filter(|limit| !is_full && info.pacing_rate >= Some(*limit));
        self.plus(&Unsent { polls: 1, full_polls: is_full.into(), limit });
        limit.is_some()
    }

    pub(super) fn plus(&mut self, other: &Unsent) {
        self.polls += other.polls;
        self.full_polls += other.full_polls;
        self.limit = [self.limit, other.limit].into_iter().flatten().min();
    }

    /// Returns the share of these polls at which the congestion window was full; `None` without any.
    pub fn full(&self) -> Option<f64> {
        (self.polls > 0).then(|| self.full_polls as f64 / self.polls as f64)
    }
}
