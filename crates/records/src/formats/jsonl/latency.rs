//! The object `latency`, which is the same in all verbs.

use std::borrow::Cow;

use dwell_engine::histogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution of latencies, or what is known of it, in nanoseconds. Null is unknown. Where it comes from a
/// histogram, count, minimum, maximum and mean (rounded down) are exact; quantiles are within 0.8 % of a measured value,
/// and beyond 68.7 s only known to be at least that.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "latency")]
pub struct LatencyObject {
    /// How the latencies were measured or estimated. Null for several methods together.
    pub method: Option<Cow<'static, str>>,
    /// The number of latencies.
    pub count: Option<u64>,
    /// The arithmetic mean.
    pub mean_ns: Option<u64>,
    /// The minimum.
    pub min_ns: Option<u64>,
    /// The maximum.
    pub max_ns: Option<u64>,
    /// The median.
    pub p50_ns: Option<u64>,
    /// The 90th percentile.
    pub p90_ns: Option<u64>,
    /// The 95th percentile.
    pub p95_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p99_9_ns: Option<u64>,
    /// What is known of its truth. Only estimates have these keys.
    #[serde(flatten)]
    pub estimate: Option<EstimateObject>,
}

/// How far an estimate can be believed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EstimateObject {
    /// The lower bound of the latest latency.
    pub low_ns: Option<u64>,
    /// The upper bound of the latest latency.
    pub high_ns: Option<u64>,
    /// The lower bound of the 99th percentile.
    pub p99_low_ns: Option<u64>,
    /// The upper bound of the 99th percentile.
    pub p99_high_ns: Option<u64>,
    /// Confidence, from 0 to 1.
    pub confidence: Option<f64>,
    /// Whether there is an estimate and no reason to disbelieve it.
    pub valid: bool,
    /// Why the estimate should not be believed.
    pub reason: Option<Cow<'static, str>>,
}

impl LatencyObject {
    /// Creates the object of latencies that were measured by one method.
    pub fn new(method: Option<&'static str>, histogram: &Histogram) -> LatencyObject {
        LatencyObject {
            method: method.map(Cow::Borrowed),
            count: Some(histogram.count()),
            mean_ns: histogram.mean_ns(),
            min_ns: histogram.min_ns(),
            max_ns: histogram.max_ns(),
            p50_ns: histogram.quantile_ns(0.5),
            p90_ns: histogram.quantile_ns(0.9),
            p95_ns: histogram.quantile_ns(0.95),
            p99_ns: histogram.quantile_ns(0.99),
            p99_9_ns: histogram.quantile_ns(0.999),
            estimate: None,
        }
    }
}
