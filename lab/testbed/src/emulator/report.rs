use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Nanos};

/// The report of the emulator: its counts, and how exactly it followed its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The schema, `dwell.emulator/1`.
    pub schema: String,
    /// Whether it ran with real-time scheduling.
    pub realtime: bool,
    /// The median of the error: how much later than in the model packets were released, in steps of a microsecond,
    /// rounded up. `null` without packets.
    pub error_p50_ns: Option<Nanos>,
    /// 99th percentile of the error.
    pub error_p99_ns: Option<Nanos>,
    /// Largest error.
    pub error_max_ns: Option<Nanos>,
    /// The reports of single directions.
    pub directions: Vec<DirectionReport>,
}

/// The report of one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Name of the direction.
    pub name: String,
    /// Packets that arrived. A packet that segmentation offload keeps whole counts as one.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: Bytes,
    /// Packets among them with the kernel's arrival timestamp. The others got the time at which they were read.
    pub stamped: u64,
    /// Packets released.
    pub delivered: u64,
    /// Drops by random loss.
    pub dropped_loss: u64,
    /// Drops because the model's queue was full.
    pub dropped_queue_full: u64,
    /// Drops by the kernel because the emulator was too slow; the model never saw them. `null` if unknown.
    pub dropped_kernel: Option<u64>,
    /// Packets that were still waiting at the end, and are lost.
    pub unfinished: u64,
    /// Verdicts about packets that the kernel no longer had.
    pub refused: u64,
    /// Median of the error.
    pub error_p50_ns: Option<Nanos>,
    /// 99th percentile of the error.
    pub error_p99_ns: Option<Nanos>,
    /// Largest error.
    pub error_max_ns: Option<Nanos>,
}

impl Report {
    pub(super) fn new(realtime: bool, directions: Vec<(String, Tally, Option<u64>, u64)>) -> Self {
        let mut all = ErrorHistogram::default();
        for (_, tally, ..) in &directions {
            all.add(&tally.error);
        }
        let directions = directions.into_iter().map(|(name, tally, dropped_kernel, unfinished)| DirectionReport {
            name,
            packets: tally.packets,
            bytes: tally.bytes,
            stamped: tally.stamped,
            delivered: tally.error.count,
            dropped_loss: tally.lost,
            dropped_queue_full: tally.queue_full,
            dropped_kernel,
            unfinished,
            refused: tally.refused,
            error_p50_ns: tally.error.quantile(0.5),
            error_p99_ns: tally.error.quantile(0.99),
            error_max_ns: tally.error.max(),
        });
        Self {
            schema: "dwell.emulator/1".to_owned(),
            realtime,
            error_p50_ns: all.quantile(0.5),
            error_p99_ns: all.quantile(0.99),
            error_max_ns: all.max(),
            directions: directions.collect(),
        }
    }

    /// Returns the report of one direction.
    pub fn direction(&self, name: &str) -> Option<&DirectionReport> {
        self.directions.iter().find(|direction| direction.name == name)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |error: Option<Nanos>| error.map_or("unknown".to_owned(), |error| error.to_string());
        let scheduling = if self.realtime { "" } else { ", without real-time scheduling" };
        write!(
            f,
            "emulator error p50 {}, p99 {}, max {}{scheduling}",
            show(self.error_p50_ns),
            show(self.error_p99_ns),
            show(self.error_max_ns),
        )?;
        for direction in &self.directions {
            write!(
                f,
                "\n  {:<24} {} packets, {} lost, {} over the queue limit, {} dropped by the kernel, error p50 {}",
                direction.name,
                direction.packets,
                direction.dropped_loss,
                direction.dropped_queue_full,
                direction.dropped_kernel.map_or("unknown".to_owned(), |count| count.to_string()),
                show(direction.error_p50_ns),
            )?;
        }
        Ok(())
    }
}

/// The running counts of one direction.
#[derive(Debug, Default)]
pub(super) struct Tally {
    packets: u64,
    bytes: Bytes,
    stamped: u64,
    pub(super) lost: u64,
    pub(super) queue_full: u64,
    pub(super) refused: u64,
    error: ErrorHistogram,
}

impl Tally {
    pub(super) fn offered(&mut self, bytes: Bytes, stamped: bool) {
        self.packets += 1;
        self.bytes.0 += bytes.0;
        self.stamped += u64::from(stamped);
    }

    pub(super) fn delivered(&mut self, error: Nanos) {
        self.error.record(error);
    }
}

/// A histogram of errors in steps of a microsecond, up to 10 ms. Beyond, only the largest error is known.
#[derive(Debug)]
struct ErrorHistogram {
    micros: Vec<u64>,
    count: u64,
    max: Nanos,
}

impl Default for ErrorHistogram {
    fn default() -> Self {
        Self { micros: vec![0; 10_000], count: 0, max: Nanos::ZERO }
    }
}

impl ErrorHistogram {
    fn record(&mut self, error: Nanos) {
        self.count += 1;
        self.max = self.max.max(error);
        if let Some(bucket) = usize::try_from(error.0 / 1_000).ok().and_then(|at| self.micros.get_mut(at)) {
            *bucket += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.max = self.max.max(other.max);
        for (sum, count) in self.micros.iter_mut().zip(&other.micros) {
            *sum += count;
        }
    }

    fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the upper end of the bucket that contains the quantile, at most the largest error.
    fn quantile(&self, quantile: f64) -> Option<Nanos> {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut below = 0;
        for (micros, count) in (1..).zip(&self.micros) {
            below += count;
            if below >= rank {
                return Some(Nanos::from_micros(micros).min(self.max));
            }
        }
        self.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_and_unknown_without_packets() {
        let mut errors = ErrorHistogram::default();
        assert_eq!((errors.quantile(0.5), errors.max()), (None, None));
        for micros in 0..100 {
            errors.record(Nanos(micros * 1_000 + 1));
        }
        assert_eq!(errors.quantile(0.5), Some(Nanos::from_micros(50)));
        assert_eq!(errors.quantile(0.99), Some(Nanos::from_micros(99)));
        assert_eq!(errors.quantile(1.0), Some(Nanos(99_001)));
    }

    #[test]
    fn errors_past_the_scale_count_as_the_largest() {
        let mut errors = ErrorHistogram::default();
        errors.record(Nanos::from_millis(20));
        errors.record(Nanos::from_millis(30));
        assert_eq!(errors.quantile(0.5), Some(Nanos::from_millis(30)));
    }
}
