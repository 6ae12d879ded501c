//! The accuracy of estimates compared with the truth.

use dwell_engine::stats::{mean, quantile};

/// Delays of bytes by the times at which they left or were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series(Vec<(u64, u64)>);

/// An estimate of the delay of the newest byte that had left, or had been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Time of the poll.
    pub at_ns: u64,
    /// The estimated delay.
    pub delay_ns: u64,
    /// Its lower and upper bound, if they are reported.
    pub bounds_ns: Option<(u64, u64)>,
}

/// A span of time: its start and its end, in nanoseconds.
pub type Span = (u64, u64);

/// Errors below this count as 0.
pub const NEAR_NS: f64 = 1e6;

/// Estimates compared with the truth at their times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// Number of estimates at whose times the truth is known.
    pub samples: usize,
    /// Mean truth at these times.
    pub truth_ns: f64,
    /// Mean of the estimates.
    pub estimate_ns: f64,
    /// Mean absolute error; errors below a millisecond count as 0.
    pub error_ns: f64,
    /// 5th percentile of the signed errors.
    pub p5_ns: f64,
    /// 95th percentile of the signed errors.
    pub p95_ns: f64,
    /// Share of the estimates with bounds whose truth is within them. `None` if none has bounds.
    pub bounded: Option<f64>,
}

impl Accuracy {
    /// Compares the estimates within a span with the truth. `None` if the truth is known at none of their times.
    pub fn of(truth: &Series, estimates: &[Estimate], span: Span) -> Option<Accuracy> {
        let (mut truth_sum, mut estimate_sum, mut error_sum) = (0.0, 0.0, 0.0);
        let (mut errors, mut are_bounded) = (Vec::new(), Vec::new());
        for estimate in estimates {
            if estimate.at_ns < span.0 || estimate.at_ns > span.1 {
                continue;
            }
            let Some(truth_ns) = truth.at(estimate.at_ns) else {
                continue;
            };
            if let Some((least_ns, most_ns)) = estimate.bounds_ns {
                are_bounded.push(f64::from((least_ns..=most_ns).contains(&truth_ns)));
            }
            let error = estimate.delay_ns as f64 - truth_ns as f64;
            truth_sum += truth_ns as f64;
            estimate_sum += estimate.delay_ns as f64;
            error_sum += Some(error.abs()).filter(|&error| error >= NEAR_NS).unwrap_or(0.0);
            errors.push(error);
        }
        errors.sort_by(f64::total_cmp);
        let samples = errors.len() as f64;
        Some(Accuracy {
            samples: errors.len(),
            truth_ns: truth_sum / samples,
            estimate_ns: estimate_sum / samples,
            error_ns: error_sum / samples,
            p5_ns: quantile(&errors, 0.05)?,
            p95_ns: quantile(&errors, 0.95)?,
            bounded: mean(are_bounded),
        })
    }

    /// One minus the mean error as a share of the mean truth: 1 is best, and it may be negative. It is 1 if no error
    /// counts, whatever the truth.
    pub fn share(&self) -> f64 {
        if self.error_ns == 0.0 {
            return 1.0;
        }
        1.0 - self.error_ns / self.truth_ns
    }
}

/// The delays of bytes within a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delays {
    /// Number of stamped bytes.
    pub bytes: usize,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 95th percentile.
    pub p95_ns: f64,
}

impl Series {
    /// Makes a series from times and delays, in any order of times.
    pub fn new(bytes: impl IntoIterator<Item = (u64, u64)>) -> Series {
        let mut bytes: Vec<_> = bytes.into_iter().collect();
        // Bytes with the same time stay in the order of the flow.
        bytes.sort_by_key(|(at_ns, _)| *at_ns);
        Series(bytes)
    }

    /// The delay of the newest byte at a time. `None` before the first byte and after the last.
    pub fn at(&self, time_ns: u64) -> Option<u64> {
        let after = self.0.partition_point(|(at_ns, _)| *at_ns <= time_ns);
        let (at_ns, delay_ns) = *self.0.get(after.checked_sub(1)?)?;
        (at_ns == time_ns || after < self.0.len()).then_some(delay_ns)
    }

    /// The delays of the bytes within a span. `None` if there are none.
    pub fn delays(&self, (from_ns, to_ns): Span) -> Option<Delays> {
        let within = self.0.iter().filter(|(at_ns, _)| (from_ns..=to_ns).contains(at_ns));
        let mut delays: Vec<f64> = within.map(|(_, delay_ns)| *delay_ns as f64).collect();
        delays.sort_by(f64::total_cmp);
        Some(Delays {
            bytes: delays.len(),
            p50_ns: quantile(&delays, 0.5)?,
            p95_ns: quantile(&delays, 0.95)?,
            mean_ns: mean(delays.iter().copied())?,
        })
    }

    /// The times and delays.
    pub fn points(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Each 10 ms a byte leaves; each waited 100 ms more than the one before.
    fn rising() -> Series {
        Series::new((1..=100).map(|n| (n * 10 * MS, n * 100 * MS)))
    }

    const ALL: Span = (0, u64::MAX);

    fn estimate(at_ns: u64, delay_ns: u64) -> Estimate {
        Estimate { at_ns, delay_ns, bounds_ns: None }
    }

    #[test]
    fn the_truth_is_of_the_newest_byte_and_not_of_one_that_has_yet_to_leave() {
        let truth = rising();
        assert_eq!(truth.at(10 * MS), Some(100 * MS));
        assert_eq!(truth.at(15 * MS), Some(100 * MS));
        assert_eq!(truth.at(10 * MS - 1), None, "no byte had left");
        assert_eq!(truth.at(1000 * MS), Some(10_000 * MS));
        assert_eq!(truth.at(1000 * MS + 1), None, "who knows what left then");
        // A frame leaves at once, but for its last segment.
        let frame = Series::new([(0, 10_000), (33 * MS, 33 * MS)]);
        let poll = Estimate { bounds_ns: Some((0, 16 * MS)), ..estimate(20 * MS, 40_000) };
        let accuracy = Accuracy::of(&frame, &[poll], ALL).unwrap();
        assert_eq!((accuracy.truth_ns, accuracy.share(), accuracy.bounded), (10_000.0, 1.0, Some(1.0)));
    }

    #[test]
    fn of_bytes_that_leave_together_the_newest_counts() {
        let truth = Series::new([(10, 7), (20, 9), (20, 8), (20, 5), (30, 15)]);
        assert_eq!([15, 20, 25].map(|time| truth.at(time)), [Some(7), Some(5), Some(5)]);
    }

    #[test]
    fn bounds_that_do_not_hold_are_counted() {
        let bounded = |bounds_ns| Estimate { bounds_ns: Some(bounds_ns), ..estimate(10 * MS, 0) };
        let estimates = [bounded((99 * MS, 101 * MS)), bounded((0, 99 * MS)), estimate(10 * MS, 0)];
        assert_eq!(Accuracy::of(&rising(), &estimates, ALL).unwrap().bounded, Some(0.5));
        assert_eq!(Accuracy::of(&rising(), &estimates[2..], ALL).unwrap().bounded, None);
    }

    #[test]
    fn accuracy_is_what_errors_leave_of_the_mean_truth() {
        // Truth 100 and 200 ms, estimates 10 ms more and 20 ms less: a mean error of 15 ms of 150.
        let estimates = [estimate(10 * MS, 110 * MS), estimate(20 * MS, 180 * MS)];
        let accuracy = Accuracy::of(&rising(), &estimates, ALL).unwrap();
        assert_eq!((accuracy.samples, accuracy.truth_ns), (2, 150e6));
        assert_eq!((accuracy.error_ns, accuracy.estimate_ns), (15e6, 145e6));
        assert!((accuracy.share() - 0.9).abs() < 1e-12);
        assert_eq!((accuracy.p5_ns, accuracy.p95_ns), (-20e6, 10e6));
    }

    #[test]
    fn errors_below_a_millisecond_count_as_none() {
        let estimates = [estimate(10 * MS, 100 * MS + MS - 1), estimate(20 * MS, 200 * MS - MS + 1)];
        let accuracy = Accuracy::of(&rising(), &estimates, ALL).unwrap();
        assert_eq!(accuracy.share(), 1.0);
        let estimates = [estimate(10 * MS, 101 * MS), estimate(20 * MS, 200 * MS)];
        let accuracy = Accuracy::of(&rising(), &estimates, ALL).unwrap();
        assert_eq!(accuracy.error_ns, 0.5e6);
        // No delay, and an estimate of 0.4 ms: as good as it gets.
        let nothing = Series::new([(0, 0), (10, 0)]);
        let accuracy = Accuracy::of(&nothing, &[estimate(5, 400_000)], ALL).unwrap();
        assert_eq!(accuracy.share(), 1.0);
    }

    #[test]
    fn samples_outside_of_the_time_or_of_the_truth_do_not_count() {
        let estimates =
            [estimate(5 * MS, MS), estimate(10 * MS, 100 * MS), estimate(20 * MS, 0), estimate(2000 * MS, 0)];
        let accuracy = Accuracy::of(&rising(), &estimates, (0, 10 * MS)).unwrap();
        assert_eq!((accuracy.samples, accuracy.share()), (1, 1.0));
        assert_eq!(Accuracy::of(&rising(), &estimates[..1], ALL), None);
        assert_eq!(Accuracy::of(&rising(), &[], ALL), None);
    }

    #[test]
    fn delays_are_over_the_bytes_within_the_span() {
        let delays = rising().delays((10 * MS, 1000 * MS)).unwrap();
        assert_eq!((delays.bytes, delays.mean_ns), (100, 5050e6));
        assert_eq!((delays.p50_ns, delays.p95_ns), (5000e6, 9500e6));
        assert_eq!(rising().delays((0, 5)), None);
    }
}
