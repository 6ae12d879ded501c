//! A socket's counts, made by the test.

use dwell_engine::socket::{Reading, TcpInfo};

/// Which fields the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// All.
    Now,
    /// 4.6 to 4.18: what is unsent, and not what was sent.
    Unsent,
    /// 4.2 to 4.5: what was acknowledged.
    Acked,
}

pub const MSS: u64 = 1448;

/// Counts of bytes, and when each was reached, a step a change.
#[derive(Debug, Clone, Default)]
pub struct Steps(Vec<(u64, u64)>);

impl Steps {
    /// From `time_ns` on the count is `bytes`.
    pub fn push(&mut self, time_ns: u64, bytes: u64) {
        self.0.push((time_ns, bytes));
    }

    /// The count at a time.
    pub fn at(&self, time_ns: u64) -> u64 {
        let before = self.0.partition_point(|step| step.0 <= time_ns);
        before.checked_sub(1).map_or(0, |n| self.0[n].1)
    }

    /// When `bytes` were reached.
    pub fn reached(&self, bytes: u64) -> Option<u64> {
        let below = self.0.partition_point(|step| step.1 < bytes);
        self.0.get(below).map(|step| step.0)
    }
}

/// What the counts of a socket are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub written: u64,
    pub left: u64,
    pub acked: u64,
    pub again: u64,
    pub arrived: u64,
    pub read: u64,
}

impl Counts {
    /// As the kernel of that age tells them.
    pub fn reading(&self, time_ns: u64, age: Age) -> Reading {
        let Counts { written, left, acked, again, arrived, read } = *self;
        Reading {
            time_ns,
            info: TcpInfo {
                state: 1,
                send_mss: MSS as u32,
                receive_mss: MSS as u32,
                unacked: (left - acked).div_ceil(MSS) as u32,
                segments_in: Some((arrived / MSS) as u32),
                bytes_acked: Some(acked + 1),
                bytes_received: Some(arrived),
                notsent_bytes: (age != Age::Acked).then_some((written - left) as u32),
                bytes_sent: (age == Age::Now).then_some(left + again),
                bytes_retransmitted: (age == Age::Now).then_some(again),
                ..TcpInfo::default()
            },
            unacknowledged: Some(written - acked),
            readable: Some(arrived - read),
        }
    }
}
