//! Measures how long bytes wait at a socket, from successive polls.

use super::{Calls, Curve, Reading, calls::Calculated};

/// How the curves are derived from a socket's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Estimator {
    /// From the kernel's own counts of bytes.
    Exact = 0,
    /// From the number and maximum size of segments, as in the paper (ELEMENT, Algorithms 1 and 2), for kernels that do
    /// not count bytes. The error is the number of bytes by which segments are smaller than the maximum.
    Paper = 1,
}

impl Estimator {
    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Estimator::Exact => "exact",
            Estimator::Paper => "paper",
        }
    }
}

/// How long bytes waited that moved on since the last poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// The delay of the latest of them.
    pub ns: u64,
    /// The lower bound of the delay.
    pub least_ns: u64,
    /// The upper bound of the delay.
    pub most_ns: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// The delays of one poll. `None` if nothing has moved since the last poll, or if it cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delays {
    /// From the write to leaving TCP.
    pub sender: Option<Delay>,
    /// From arriving in order to being read.
    pub receiver: Option<Delay>,
}

/// Delays and bytes since the meter started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// From the write to leaving TCP.
    pub sender: Sum,
    /// From arriving in order to being read.
    pub receiver: Sum,
    /// Bytes that the application wrote.
    pub written_bytes: u64,
    /// Bytes that the peer acknowledged.
    pub acked_bytes: u64,
    /// Bytes that arrived in order.
    pub received_bytes: u64,
}

/// A sum of delays, weighted by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// The number of polls that showed a delay.
    pub samples: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The sum of delay times bytes.
    pub ns_bytes: f64,
}

impl Sum {
    pub(super) fn add(&mut self, delay: &Delay) {
        self.samples += 1;
        self.bytes = self.bytes.saturating_add(delay.bytes);
        self.ns_bytes += delay.ns as f64 * delay.bytes as f64;
    }

    /// Returns the sum of two sums.
    #[must_use]
    pub fn plus(&self, other: &Sum) -> Sum {
        Sum {
            samples: self.samples.saturating_add(other.samples),
            bytes: self.bytes.saturating_add(other.bytes),
            ns_bytes: self.ns_bytes + other.ns_bytes,
        }
    }

    /// Returns the mean delay of a byte, or `None` without bytes.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.bytes > 0).then(|| (self.ns_bytes / self.bytes as f64) as u64)
    }

    /// Returns the difference from an `earlier` state of this sum.
    pub fn since(&self, earlier: &Sum) -> Sum {
        Sum {
            samples: self.samples.saturating_sub(earlier.samples),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            ns_bytes: (self.ns_bytes - earlier.ns_bytes).max(0.0),
        }
    }
}

/// Measures the delays at one socket. There are two curves for each direction: how many bytes had been written (or had
/// arrived), and how many had left (or were read). The delay of a byte is the horizontal distance of the curves. A
/// meter allocates nothing and does not panic.
#[derive(Debug, Clone)]
pub struct Meter {
    estimator: Estimator,
    sender: Side,
    receiver: Side,
    /// How long the kernel had data that was not acknowledged, as of the last poll.
    busy_us: Option<u64>,
    first: Option<Counts>,
    totals: Totals,
}

/// A byte that was written and left between two polls counts as having left at once if it cannot have waited for longer than
/// this: the error that a delay may have. Otherwise its delay is unknown.
const VAGUE_NS: u64 = 40_000_000;

/// The greatest tick of a kernel, by which it measures how long it was busy.
const TICK_US: u64 = 10_000;

/// The byte counts of one poll.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    written: u64,
    acked: u64,
    received: u64,
}

impl Meter {
    /// Creates a meter with this estimator. It falls back to `Paper` if the kernel does not report enough.
    pub fn new(estimator: Estimator) -> Meter {
        let (sender, receiver) = (Side::default(), Side::default());
        Meter { estimator, sender, receiver, busy_us: None, first: None, totals: Totals::default() }
    }

    /// Returns the estimator in use, which differs from the requested one after a fallback.
    pub fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// Adds a poll of the socket. Polls must be in the order of their times.
    pub fn observe(&mut self, reading: &Reading) -> Delays {
        self.observe_calls(reading, None)
    }

    /// Adds a poll of a socket whose writes and reads are known; the estimator `paper` uses them.
    pub fn observe_calls(&mut self, reading: &Reading, calls: Option<&mut Calls>) -> Delays {
        if self.estimator == Estimator::Exact && exact_sender(reading).is_none() {
            self.estimator = Estimator::Paper;
            self.sender = Side::default();
            self.receiver = Side::default();
        }
        let (sender, receiver) = match self.estimator {
            Estimator::Exact => (exact_sender(reading), exact_receiver(reading)),
            Estimator::Paper => (paper_sender(reading), paper_receiver(reading)),
        };
        let sent = self.sender.step(reading.time_ns, sender);
        let sent = sent.filter(|delay| delay.ns > 0 || self.unsent_at_most_ns(delay, reading) <= VAGUE_NS);
        self.busy_us = reading.info.busy_us;
        let polled = [sent, self.receiver.step(reading.time_ns, receiver)];
        let called = match (self.estimator, calls) {
            (Estimator::Paper, Some(calls)) => calls.observe(reading),
            _ => [None; 2],
        };
        let [sender_delay, receiver_delay] =
            [add(&mut self.totals.sender, polled[0], called[0]), add(&mut self.totals.receiver, polled[1], called[1])];
        let counts = Counts {
            written: sender.map_or(0, |passed| passed.into),
            acked: reading.info.bytes_acked.unwrap_or_default(),
            received: reading.info.bytes_received.unwrap_or_default(),
        };
        let first = *self.first.get_or_insert(counts);
        self.totals.written_bytes = counts.written.saturating_sub(first.written);
        self.totals.acked_bytes = counts.acked.saturating_sub(first.acked);
        self.totals.received_bytes = counts.received.saturating_sub(first.received);
        Delays { sender: sender_delay, receiver: receiver_delay }
    }

    /// Returns for how long a byte can have been unsent that was written and left since the last poll. The kernel is busy from
    /// the write to the acknowledgement: not for longer than it was, and for a round trip after the last byte has left.
    fn unsent_at_most_ns(&self, delay: &Delay, reading: &Reading) -> u64 {
        let info = &reading.info;
        let busy_us = info.busy_us.zip(self.busy_us).and_then(|(now, before)| now.checked_sub(before));
        let since_last_us = u64::from(info.last_data_sent_ms) * 1_000;
        let in_flight_us = since_last_us.min(info.min_rtt_us.unwrap_or_default().into());
        let unsent_us = busy_us.map(|busy_us| (busy_us + TICK_US).saturating_sub(in_flight_us));
        unsent_us.map_or(delay.most_ns, |unsent_us| delay.most_ns.min(unsent_us.saturating_mul(1_000)))
    }

    /// Returns the age of the oldest byte that has not left. `None` if no byte waits, or if its age is unknown.
    pub fn waiting_ns(&self, now_ns: u64) -> Option<u64> {
        self.sender.waiting_ns(now_ns)
    }

    /// Returns the totals since the meter started.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// Adds the delays of one poll and direction to the totals: those that follow from calls, if these are known. Returns the
/// newest of them.
fn add(total: &mut Sum, polled: Option<Delay>, called: Option<Calculated>) -> Option<Delay> {
    let Some(called) = called else {
        if let Some(delay) = &polled {
            total.add(delay);
        }
        return polled;
    };
    *total = total.plus(&called.sum);
    called.newest
}

/// The bytes that entered a queue, and those that left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed {
    into: u64,
    out: u64,
}

/// The state of one direction.
#[derive(Debug, Clone, Default)]
struct Side {
    into: Curve,
    /// The time of the last poll, and the bytes that had left by then.
    last: Option<(u64, u64)>,
}

impl Side {
    fn step(&mut self, now_ns: u64, passed: Option<Passed>) -> Option<Delay> {
        let passed = passed?;
        self.into.push(now_ns, passed.into);
        let Some((last_ns, last_out)) = self.last else {
            self.last = Some((now_ns, passed.out));
            return None;
        };
        let out = passed.out.max(last_out);
        self.last = Some((now_ns, out));
        let bytes = out - last_out;
        if bytes == 0 {
            return None;
        }
        let came = self.into.reached(out);
        self.into.forget(out);
        let came = came?;
        let (least_ns, most_ns) = (last_ns.saturating_sub(came.by_ns), now_ns.saturating_sub(came.after_ns));
        // The last byte of a full queue has just left. A queue that is empty may have been so since the last poll, and
        // what passed through it came and left at one time rather than along a line.
        let is_burst = passed.into == out && came.by_ns <= last_ns;
        let ns = if is_burst { least_ns.midpoint(most_ns) } else { now_ns.saturating_sub(came.at_ns) };
        Some(Delay { ns, least_ns, most_ns, bytes })
    }

    fn waiting_ns(&self, now_ns: u64) -> Option<u64> {
        let (_, out) = self.last?;
        let oldest = self.into.reached(out.checked_add(1)?)?;
        Some(now_ns.saturating_sub(oldest.at_ns))
    }
}

fn exact_sender(reading: &Reading) -> Option<Passed> {
    let info = &reading.info;
    let notsent = u64::from(info.notsent_bytes?);
    match (info.bytes_sent, info.bytes_retransmitted) {
        (Some(sent), Some(again)) => {
            let out = sent.checked_sub(again)?;
            Some(Passed { into: out.checked_add(notsent)?, out })
        }
        // Linux 4.6 to 4.18.
        _ => {
            let into = info.bytes_acked?.checked_add(reading.unacknowledged?)?;
            Some(Passed { into, out: into.checked_sub(notsent)? })
        }
    }
}

fn exact_receiver(reading: &Reading) -> Option<Passed> {
    let into = reading.info.bytes_received?;
    Some(Passed { into, out: into.saturating_sub(reading.readable?) })
}

fn paper_sender(reading: &Reading) -> Option<Passed> {
    let acked = reading.info.bytes_acked?;
    let into = acked.checked_add(reading.unacknowledged?)?;
    Some(Passed { into, out: paper_left(reading)?.min(into) })
}

fn paper_receiver(reading: &Reading) -> Option<Passed> {
    let into = paper_arrived(reading)?;
    Some(Passed { into, out: into.saturating_sub(reading.readable?) })
}

/// Returns the bytes that have left, as Algorithm 1 estimates them.
pub(super) fn paper_left(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    info.bytes_acked?.checked_add(u64::from(info.unacked).checked_mul(u64::from(info.send_mss))?)
}

/// Returns the bytes that have arrived, as Algorithm 2 estimates them.
pub(super) fn paper_arrived(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    u64::from(info.segments_in?).checked_mul(u64::from(info.receive_mss))
}
