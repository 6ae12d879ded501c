//! What bytes wait at a socket, from one look at it after another.

use super::{Calls, Curve, Reading};

/// How the curves are made of what a socket tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Estimator {
    /// From the kernel's own counts of bytes.
    Exact = 0,
    /// From segments and their greatest size, as in the paper (ELEMENT, Algorithms 1 and 2), for kernels that do
    /// not count bytes. It is wrong by the bytes that segments have less than the greatest.
    Paper = 1,
}

impl Estimator {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Estimator::Exact => "exact",
            Estimator::Paper => "paper",
        }
    }
}

/// How long bytes waited, of those that went on since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// Of the newest of them.
    pub ns: u64,
    /// It was at least this.
    pub least_ns: u64,
    /// It was at most this.
    pub most_ns: u64,
    /// How many they are.
    pub bytes: u64,
}

/// What a look has shown. `None`: nothing has gone on since the last one, or it cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// From being written to leaving TCP.
    pub sender: Option<Delay>,
    /// From coming into order to being read.
    pub receiver: Option<Delay>,
}

/// Since the meter began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// From being written to leaving TCP.
    pub sender: Sum,
    /// From coming into order to being read.
    pub receiver: Sum,
    /// Bytes that the application wrote.
    pub written_bytes: u64,
    /// Bytes that the other end acknowledged.
    pub acked_bytes: u64,
    /// Bytes that came in order.
    pub received_bytes: u64,
}

/// Delays, each as often as it has bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// Looks that showed one.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Delays times bytes.
    pub ns_bytes: f64,
}

impl Sum {
    fn add(&mut self, delay: &Delay) {
        self.samples += 1;
        self.bytes = self.bytes.saturating_add(delay.bytes);
        self.ns_bytes += delay.ns as f64 * delay.bytes as f64;
    }

    /// The mean of the bytes, if there are any.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.bytes > 0).then(|| (self.ns_bytes / self.bytes as f64) as u64)
    }

    /// What has been added since it was `earlier`.
    pub fn since(&self, earlier: &Sum) -> Sum {
        Sum {
            samples: self.samples.saturating_sub(earlier.samples),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            ns_bytes: (self.ns_bytes - earlier.ns_bytes).max(0.0),
        }
    }
}

/// Watches one socket. Two curves a direction: how many bytes had been written, or had come, and how many had left,
/// or were read. What a byte waits is how far they are apart in time. It allocates nothing and does not panic.
#[derive(Debug, Clone)]
pub struct Meter {
    estimator: Estimator,
    sender: Side,
    receiver: Side,
    first: Option<Counts>,
    totals: Totals,
}

/// What a look at a socket counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    written: u64,
    acked: u64,
    received: u64,
}

impl Meter {
    /// That makes its curves in this way, or in the next best where the kernel does not tell enough.
    pub fn new(estimator: Estimator) -> Meter {
        Meter { estimator, sender: Side::default(), receiver: Side::default(), first: None, totals: Totals::default() }
    }

    /// How it makes its curves: not as it was asked to, once a reading had not what that takes.
    pub fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// Takes a look at the socket. They must come in the order of their times.
    pub fn observe(&mut self, reading: &Reading) -> Observed {
        self.observe_calls(reading, None)
    }

    /// The same, of a socket whose writes and reads are known. The estimator `paper` goes by them.
    pub fn observe_calls(&mut self, reading: &Reading, calls: Option<&mut Calls>) -> Observed {
        if self.estimator == Estimator::Exact && exact_sender(reading).is_none() {
            self.estimator = Estimator::Paper;
            self.sender = Side::default();
            self.receiver = Side::default();
        }
        let (sender, receiver) = match self.estimator {
            Estimator::Exact => (exact_sender(reading), exact_receiver(reading)),
            Estimator::Paper => (paper_sender(reading), paper_receiver(reading)),
        };
        let mut observed = Observed {
            sender: self.sender.step(reading.time_ns, sender),
            receiver: self.receiver.step(reading.time_ns, receiver),
        };
        if let (Estimator::Paper, Some(calls)) = (self.estimator, calls) {
            observed = calls.observe(reading, observed);
        }
        if let Some(delay) = &observed.sender {
            self.totals.sender.add(delay);
        }
        if let Some(delay) = &observed.receiver {
            self.totals.receiver.add(delay);
        }
        let counts = Counts {
            written: sender.map_or(0, |passed| passed.into),
            acked: reading.info.bytes_acked.unwrap_or_default(),
            received: reading.info.bytes_received.unwrap_or_default(),
        };
        let first = *self.first.get_or_insert(counts);
        self.totals.written_bytes = counts.written.saturating_sub(first.written);
        self.totals.acked_bytes = counts.acked.saturating_sub(first.acked);
        self.totals.received_bytes = counts.received.saturating_sub(first.received);
        observed
    }

    /// For how long the oldest byte that has not left has been waiting. `None`: none waits, or nobody knows since when.
    pub fn waiting_ns(&self, now_ns: u64) -> Option<u64> {
        self.sender.waiting_ns(now_ns)
    }

    /// Since it began.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// Bytes that came to a queue, and those that went on from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed {
    into: u64,
    out: u64,
}

/// One direction.
#[derive(Debug, Clone, Default)]
struct Side {
    into: Curve,
    /// The last look, and what had gone on then.
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
        Some(Delay {
            ns: now_ns.saturating_sub(came.at_ns),
            least_ns: last_ns.saturating_sub(came.by_ns),
            most_ns: now_ns.saturating_sub(came.after_ns),
            bytes,
        })
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
        // Kernels from 4.6 to 4.18.
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

/// What has left, as Algorithm 1 estimates it.
pub(super) fn paper_left(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    info.bytes_acked?.checked_add(u64::from(info.unacked).checked_mul(u64::from(info.send_mss))?)
}

/// What has come, as Algorithm 2 estimates it.
pub(super) fn paper_arrived(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    u64::from(info.segments_in?).checked_mul(u64::from(info.receive_mss))
}
