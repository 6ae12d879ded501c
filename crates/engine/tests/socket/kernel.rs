//! The counts of a simulated socket.

use dwell_engine::socket::{Reading, TcpInfo};

/// The fields that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// All fields.
    Now,
    /// Linux 4.6 to 4.18: the unsent bytes, but not the sent ones.
    Unsent,
    /// Linux 4.2 to 4.5: the acknowledged bytes.
    Acked,
}

pub const MSS: u64 = 1448;

/// A count of bytes over time, with one step per change.
#[derive(Debug, Clone, Default)]
pub struct Steps(Vec<(u64, u64)>);

impl Steps {
    /// Sets the count from `time_ns` on.
    pub fn push(&mut self, time_ns: u64, bytes: u64) {
        self.0.push((time_ns, bytes));
    }

    /// Returns the count at a time.
    pub fn at(&self, time_ns: u64) -> u64 {
        let before = self.0.partition_point(|step| step.0 <= time_ns);
        before.checked_sub(1).map_or(0, |n| self.0[n].1)
    }

    /// Returns when `bytes` were reached.
    pub fn reached(&self, bytes: u64) -> Option<u64> {
        let below = self.0.partition_point(|step| step.1 < bytes);
        self.0.get(below).map(|step| step.0)
    }
}

/// The counts of a socket.
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
    /// Returns a poll as a kernel of that age reports it.
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
