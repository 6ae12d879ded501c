//! Goals of the benchmarks that measure how true figures are: how near they must come to the truth. [`super::limits`] has what dwell
//! may cost.

use serde_json::Value;

use crate::goal::Goal;

/// The greatest error at p99 of a time that is converted to another host's clock.
pub const MAX_CLOCK_ERROR_NS: u64 = 2_000;
/// The least share of conversions whose error is within their bound.
pub const MIN_CLOCK_WITHIN: f64 = 0.999;

pub const PAGE_1: &[Accuracy] = &[Accuracy::Within(10, 99.0)];
pub const PAGE_4: &[Accuracy] = &[Accuracy::Median(0.6), Accuracy::Within(10, 90.0), Accuracy::Within(15, 95.0)];
pub const PAGE_16: &[Accuracy] = &[Accuracy::Median(5.0)];
pub const PAGE_4_LOSSY: &[Accuracy] = &[Accuracy::Median(2.6), Accuracy::Within(10, 88.0), Accuracy::Within(15, 93.0)];
pub const BATCH_4_LOSSY: &[Accuracy] = &[Accuracy::Within(10, 88.0), Accuracy::Within(15, 93.0)];
pub const PAGE_4_FAR: &[Accuracy] = &[Accuracy::Within(5, 95.0)];
pub const MEMCACHED: &[Accuracy] = &[Accuracy::Distribution(5.0)];

/// A goal for the estimates of response latency under a load.
#[derive(Debug, Clone, Copy)]
pub enum Accuracy {
    /// The most that the median of the absolute errors may be, in percent.
    Median(f64),
    /// A relative error in percent, and the least share of epochs, in percent, that are within it.
    Within(u32, f64),
    /// The most by which the distributions of truth and estimates may differ from p10 to p99, in percent.
    Distribution(f64),
}

impl Accuracy {
    /// Judges an object of type `lab.response` of a load. Undecided if the object lacks the figure.
    pub fn judge(self, load: &str, object: &Value) -> Goal {
        let percent = |value: &Value| value.as_f64().map(|share| share * 100.0);
        let error = &object["error"];
        let (what, found, holds): (_, _, fn(f64, f64) -> bool) = match self {
            Accuracy::Median(most) => {
                (format!("|p50|, wanted: at most {most}"), percent(&error["size_p50"]), |found, most| found <= most)
            }
            Accuracy::Within(near, least) => (
                format!("of epochs within {near} %, wanted: at least {least}"),
                percent(&error[format!("within_{near}")]),
                |found, least| found >= least,
            ),
            Accuracy::Distribution(most) => (
                format!("greatest difference p10-p99, wanted: at most {most}"),
                percent(&object["greatest_difference"]).map(f64::abs),
                |found, most| found <= most,
            ),
        };
        let (Accuracy::Median(limit) | Accuracy::Within(_, limit) | Accuracy::Distribution(limit)) = self;
        let shown = found.map_or("-".to_owned(), |found| format!("{found:.2}"));
        Goal { holds: found.map(|found| holds(found, limit)), what: format!("{load}: {shown} % {what}") }
    }
}

/// The errors of times that were converted to another host's clock, and the steps that the comparison believed in.
pub fn clock(condition: &str, error_p99_ns: u64, within: f64, steps: usize) -> Goal {
    let us = |ns: u64| ns as f64 / 1e3;
    Goal::decided(
        error_p99_ns <= MAX_CLOCK_ERROR_NS && within >= MIN_CLOCK_WITHIN && steps == 0,
        format!(
            "{condition}: |error| of {:.3} µs at p99, {:.2} % within the bound, {steps} steps; wanted: at most {} µs, \
             at least {} %, none",
            us(error_p99_ns),
            within * 100.0,
            us(MAX_CLOCK_ERROR_NS),
            MIN_CLOCK_WITHIN * 100.0
        ),
    )
}
