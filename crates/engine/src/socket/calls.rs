//! Algorithms 1 and 2 of the paper (ELEMENT, EuroSys 2019), which observe each write and read.

use super::{
    Delay, Reading, Sum,
    meter::{paper_arrived, paper_left},
};

/// The number of calls and polls that are remembered in each direction. The paper's lists grow without bound. Here every
/// second entry is dropped once there are more: some delays are lost, but none is wrong.
const ENTRIES: usize = 128;

/// The writes and reads of the application with their times, for the estimator `paper`.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// Algorithm 1: the bytes that were written before each write, and the time before it.
    writes: Queue,
    written: u64,
    /// The entry of Algorithm 1 that left last.
    left: u64,
    /// Algorithm 2: the bytes that had arrived at a poll, and its time.
    arrivals: Queue,
    arrived: u64,
    read: u64,
    /// The delays that were calculated since the last poll, and Algorithm 3's average of the sender's.
    sender: Calculated,
    receiver: Calculated,
    average_ns: Option<f64>,
    has_writes: bool,
    has_reads: bool,
}

/// The delays of a direction that were calculated since the last poll.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Calculated {
    /// The newest delay; `None` if there was none.
    pub newest: Option<Delay>,
    /// All of them.
    pub sum: Sum,
}

impl Calls {
    /// Creates the calls of a connection that had written and read so many bytes before its calls were observed.
    pub fn after(written: u64, read: u64) -> Calls {
        Calls { written, left: written, read, ..Calls::default() }
    }

    /// Records that a write begins at `time_ns`.
    pub fn begin_write(&mut self, time_ns: u64) {
        self.has_writes = true;
        self.writes.push(time_ns, self.written);
    }

    /// Records that a write has returned, and how many bytes it wrote. A write that failed leaves no entry.
    pub fn end_write(&mut self, bytes: u64) {
        if bytes == 0 {
            self.writes.take_back(self.written);
        }
        self.written = self.written.saturating_add(bytes);
    }

    /// Records a read that returned `bytes` at `time_ns`: Algorithm 2, the data receiving thread.
    pub fn read(&mut self, time_ns: u64, bytes: u64) {
        self.has_reads = true;
        self.read = self.read.saturating_add(bytes);
        while self.arrivals.front().is_some_and(|(_, arrived)| arrived <= self.read) {
            self.arrivals.pop();
        }
        if let Some((arrived_ns, _)) = self.arrivals.front() {
            self.receiver.add(time_ns.saturating_sub(arrived_ns), bytes);
        }
    }

    /// Returns the average of the sender's delays as Algorithm 3 smooths it. `None` before the first.
    pub fn average_ns(&self) -> Option<f64> {
        self.average_ns
    }

    /// Runs the polling thread of both algorithms for one poll. Returns the delays of writes that have left, and of reads
    /// since the last poll; `None` for a direction without calls.
    pub(super) fn observe(&mut self, reading: &Reading) -> [Option<Calculated>; 2] {
        let now_ns = reading.time_ns;
        let left = paper_left(reading).unwrap_or_default();
        while let Some((written_ns, before)) = self.writes.front().filter(|&(_, before)| before <= left) {
            self.writes.pop();
            let delay_ns = now_ns.saturating_sub(written_ns);
            self.sender.add(delay_ns, before.saturating_sub(self.left));
            self.left = before;
            self.average_ns = Some(match self.average_ns {
                Some(average_ns) => average_ns * 7.0 / 8.0 + delay_ns as f64 / 8.0,
                // The paper leaves open where the average starts.
                None => delay_ns as f64,
            });
        }
        if let Some(arrived) = paper_arrived(reading).filter(|&arrived| arrived > self.arrived) {
            self.arrived = arrived;
            self.arrivals.push(now_ns, arrived);
        }
        let (sender, receiver) = (std::mem::take(&mut self.sender), std::mem::take(&mut self.receiver));
        [self.has_writes.then_some(sender), self.has_reads.then_some(receiver)]
    }
}

impl Calculated {
    /// Adds a delay. The paper has no error bounds and no weights: each delay stands for at least one byte.
    fn add(&mut self, ns: u64, bytes: u64) {
        let delay = Delay { ns, least_ns: ns, most_ns: ns, bytes: bytes.max(1) };
        self.sum.add(&delay);
        self.newest = Some(delay);
    }
}

/// Counts and their times, the oldest first.
#[derive(Debug, Clone)]
struct Queue {
    entries: [(u64, u64); ENTRIES],
    first: usize,
    length: usize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { entries: [(0, 0); ENTRIES], first: 0, length: 0 }
    }
}

impl Queue {
    fn push(&mut self, time_ns: u64, bytes: u64) {
        if self.length == ENTRIES {
            self.thin_out();
        }
        self.put(self.length, (time_ns, bytes));
        self.length += 1;
    }

    /// Drops every second entry, and keeps the oldest.
    fn thin_out(&mut self) {
        for kept in 0..ENTRIES / 2 {
            if let Some(entry) = self.get(2 * kept) {
                self.put(kept, entry);
            }
        }
        self.length = ENTRIES / 2;
    }

    fn front(&self) -> Option<(u64, u64)> {
        self.get(0)
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % ENTRIES;
        self.length = self.length.saturating_sub(1);
    }

    /// Removes the newest entry if it has this count.
    fn take_back(&mut self, bytes: u64) {
        let newest = self.length.checked_sub(1).and_then(|newest| self.get(newest));
        if newest.is_some_and(|newest| newest.1 == bytes) {
            self.length -= 1;
        }
    }

    fn get(&self, number: usize) -> Option<(u64, u64)> {
        let entry = self.entries.get((self.first + number) % ENTRIES);
        entry.filter(|_| number < self.length).copied()
    }

    fn put(&mut self, number: usize, entry: (u64, u64)) {
        if let Some(slot) = self.entries.get_mut((self.first + number) % ENTRIES) {
            *slot = entry;
        }
    }
}
