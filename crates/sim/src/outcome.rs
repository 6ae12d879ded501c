//! What came of a run.

use std::time::Duration;

use serde::Serialize;

use crate::Distribution;

/// Connections, and how many of them used 0-RTT.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Resumed {
    /// All.
    pub connections: u64,
    /// Those that could have used it under any policy: their client had had a ticket by then.
    pub possible: u64,
    /// Those that tried: their client had a ticket that was not used up.
    pub tried: u64,
    /// Those that did.
    pub used: u64,
}

impl Resumed {
    /// Of those that could; none of none.
    pub fn part(&self) -> Option<f64> {
        (self.possible > 0).then(|| self.used as f64 / self.possible as f64)
    }
}

impl std::ops::Add for Resumed {
    type Output = Resumed;

    fn add(self, other: Resumed) -> Resumed {
        Resumed {
            connections: self.connections + other.connections,
            possible: self.possible + other.possible,
            tried: self.tried + other.tried,
            used: self.used + other.used,
        }
    }
}

/// Servers in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Its end.
    pub time_s: f64,
    /// The mean part of it in which a server was busy.
    pub load: f64,
    /// That of the busiest server over the mean; none where all were idle.
    pub imbalance: Option<f64>,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Time to the first byte of an answer, over what it would be with 0-RTT and without waiting.
    pub first_byte: Distribution,
    /// Time to the last byte, likewise.
    pub completion: Distribution,
    /// Connections of few packets.
    pub short: Resumed,
    /// All others.
    pub long: Resumed,
    /// Connections that were sent to the least loaded server instead of their own.
    pub diverted: u64,
    /// Packets that were served, those of handshakes left out.
    pub packets: u64,
    /// Packets that are at a server on average, over time and servers: waiting or served.
    pub present: f64,
    /// By interval, of those that ended before the last connection began.
    pub samples: Vec<Sample>,
    /// Simulated.
    pub time: Duration,
    /// What it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// Short and long ones.
    pub fn all(&self) -> Resumed {
        self.short + self.long
    }

    /// The mean over intervals.
    pub fn load(&self) -> Option<f64> {
        mean(self.samples.iter().map(|sample| sample.load))
    }

    /// The mean over intervals.
    pub fn imbalance(&self) -> Option<f64> {
        mean(self.samples.iter().filter_map(|sample| sample.imbalance))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}
