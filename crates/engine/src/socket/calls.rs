//! Algorithms 1 and 2 of the paper (ELEMENT, EuroSys 2019), which observe each write and read.

use super::{
    Delay, Delays, Reading,
    meter::{paper_arrived, paper_left},
};

/// The number of calls that are remembered. If there are more, the oldest is dropped: a delay is lost, but none is
/// wrong.
const CALLS: usize = 128;

/// The writes and reads of the application with their times, for the estimator `paper`.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    writes: Queue,
    arrivals: Queue,
    left: u64,
    read: Option<(u64, u64)>,
    has_writes: bool,
    has_reads: bool,
}

impl Calls {
    /// Records a write that started at `time_ns`; `bytes` is the total written so far.
    pub fn record_write(&mut self, time_ns: u64, bytes: u64) {
        self.has_writes = true;
        self.writes.push(time_ns, bytes);
    }

    /// Records a read at `time_ns`; `bytes` is the total read so far.
    pub fn record_read(&mut self, time_ns: u64, bytes: u64) {
        self.has_reads = true;
        self.read = Some((time_ns, bytes));
    }

    /// Returns the delay of the latest write that has left, and of the latest byte that was read. For a direction
    /// without calls it returns the delay that was `polled`.
    pub(super) fn observe(&mut self, reading: &Reading, polled: Delays) -> Delays {
        let now_ns = reading.time_ns;
        let sender = paper_left(reading).and_then(|left| {
            let (written_ns, _) = self.writes.take_through(left)?;
            let before = self.left;
            self.left = left.max(before);
            Some(exactly(now_ns.saturating_sub(written_ns), left.saturating_sub(before)))
        });
        if let Some(arrived) = paper_arrived(reading) {
            self.arrivals.push(now_ns, arrived);
        }
        let receiver = self.read.take().and_then(|(read_ns, bytes)| {
            let (before, arrived_ns) = self.arrivals.take_reaching(bytes)?;
            Some(exactly(read_ns.saturating_sub(arrived_ns), bytes.saturating_sub(before)))
        });
        Delays {
            sender: if self.has_writes { sender } else { polled.sender },
            receiver: if self.has_reads { receiver } else { polled.receiver },
        }
    }
}

/// The paper has no error bounds.
fn exactly(ns: u64, bytes: u64) -> Delay {
    Delay { ns, least_ns: ns, most_ns: ns, bytes: bytes.max(1) }
}

/// Counts and their times, the oldest first.
#[derive(Debug, Clone)]
struct Queue {
    entries: [(u64, u64); CALLS],
    first: usize,
    length: usize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { entries: [(0, 0); CALLS], first: 0, length: 0 }
    }
}

impl Queue {
    fn push(&mut self, time_ns: u64, bytes: u64) {
        if self.length == CALLS {
            self.first = (self.first + 1) % CALLS;
            self.length -= 1;
        }
        if let Some(slot) = self.entries.get_mut((self.first + self.length) % CALLS) {
            *slot = (time_ns, bytes);
            self.length += 1;
        }
    }

    fn front(&self) -> Option<(u64, u64)> {
        (self.length > 0).then(|| self.entries.get(self.first % CALLS).copied()).flatten()
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % CALLS;
        self.length = self.length.saturating_sub(1);
    }

    /// Removes all entries up to `bytes`, and returns the last of them.
    fn take_through(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let mut taken = None;
        while let Some(entry) = self.front().filter(|entry| entry.1 <= bytes) {
            taken = Some(entry);
            self.pop();
        }
        taken
    }

    /// Removes all entries below `bytes`. Returns the count before, and the time of the first entry that reaches
    /// `bytes`.
    fn take_reaching(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let below = self.take_through(bytes.saturating_sub(1));
        let (time_ns, _) = self.front()?;
        Some((below.map_or(0, |entry| entry.1), time_ns))
    }
}
