//! Objects of `--baseline`, the same for all verbs but for what is compared.

use dwell_engine::{
    baseline::{Comparison, Figure},
    layers::{Direction, Segment},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Object, Objects,
    object::{names, names_or_null},
    rounded,
};
use crate::{
    Shift,
    shift::{ResponseKey, RoundTripKey, ShiftKey, figure_name},
};

/// Whether latencies have shifted, with `--baseline`. Pairs are the baseline and now.
#[derive(Serialize, JsonSchema)]
pub(super) struct ShiftObject<'a, K> {
    #[serde(flatten)]
    key: &'a K,
    /// Whether the latencies have shifted. Null where too few intervals had samples.
    shifted: Option<bool>,
    /// The figure with the least likely change.
    #[schemars(extend("enum" = names_or_null(Figure::ALL, figure_name)))]
    by: Option<&'a str>,
    /// That figure now, divided by that of the baseline.
    ratio: Option<f64>,
    /// The probability of a change as large as this without a shift.
    chance: Option<f64>,
    /// The length of an interval.
    interval_ns: u64,
    /// The numbers of intervals.
    intervals: [usize; 2],
    /// The numbers of samples in the median interval: stamped bytes, round trips or responses.
    samples: [u64; 2],
    /// The medians.
    p50_ns: Option<[u64; 2]>,
    /// The 99th percentiles.
    p99_ns: Option<[u64; 2]>,
    /// The means.
    mean_ns: Option<[u64; 2]>,
}

/// The segment of a host that is compared.
#[derive(Serialize, JsonSchema)]
pub(super) struct SegmentKey {
    /// The name of the segment.
    #[schemars(extend("enum" = names(Segment::ALL, Segment::name)))]
    segment: &'static str,
    /// "tx" for bytes that this host sends, "rx" for bytes that it receives.
    #[schemars(extend("enum" = names(Direction::ALL, Direction::name)))]
    direction: &'static str,
    /// The segment that contains this one. Null for those that are not part of another.
    part_of: Option<&'static str>,
}

impl Object for ShiftObject<'_, SegmentKey> {
    const KINDS: &'static [&'static str] = &["stack.shift"];
}

impl Object for ShiftObject<'_, RoundTripKey> {
    const KINDS: &'static [&'static str] = &["rtt.shift"];
}

impl Object for ShiftObject<'_, ResponseKey> {
    const KINDS: &'static [&'static str] = &["response.shift"];
}

/// Writes one object per key of the baseline.
pub(super) fn comparison(shift: &Shift<'_>, objects: &mut Objects<'_>) {
    for one in shift.compared {
        let time_ns = Some(shift.end_ns);
        match &one.key {
            ShiftKey::Segment(segment) => {
                let key = SegmentKey {
                    segment: segment.name(),
                    direction: Direction::name(segment.direction()),
                    part_of: segment.part_of().map(Segment::name),
                };
                objects.write(time_ns, &object(&key, one, shift));
            }
            ShiftKey::RoundTrips(key) => objects.write(time_ns, &object(key, one, shift)),
            ShiftKey::Responses(key) => objects.write(time_ns, &object(key, one, shift)),
        }
    }
}

fn object<'a, K>(key: &'a K, one: &'a Comparison<ShiftKey>, shift: &Shift<'_>) -> ShiftObject<'a, K> {
    let pair = |figure| one.changes.get(&figure).map(|change| [change.was_ns, change.is_ns]);
    ShiftObject {
        key,
        shifted: one.shifted,
        by: one.by.map(figure_name),
        ratio: one.change().map(|change| rounded(change.ratio())),
        chance: one.chance,
        interval_ns: shift.interval_ns,
        intervals: one.intervals,
        samples: one.samples,
        p50_ns: pair(Figure::Median),
        p99_ns: pair(Figure::P99),
        mean_ns: pair(Figure::Mean),
    }
}
