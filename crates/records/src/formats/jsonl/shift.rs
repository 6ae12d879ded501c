//! Objects of `dwell stack --baseline`.

use dwell_engine::layers::{Segment, baseline::Figure};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Object, Objects, rounded};
use crate::{StackShift, record::figure_name};

/// Whether a segment of the host has shifted, with `--baseline`. Pairs are the baseline and now.
#[derive(Serialize, JsonSchema)]
pub(super) struct ShiftObject<'a> {
    /// The name of the segment.
    segment: &'a str,
    /// "tx" for bytes that this host sends, "rx" for bytes that it receives.
    direction: &'a str,
    /// The segment that contains this one. Null for those that are not part of another.
    part_of: Option<&'a str>,
    /// Whether the segment has shifted. Null where too few intervals had bytes there.
    shifted: Option<bool>,
    /// The figure with the least likely change: "p50", "p99" or "mean".
    by: Option<&'a str>,
    /// That figure now, divided by that of the baseline.
    ratio: Option<f64>,
    /// The probability of a change as large as this without a shift.
    chance: Option<f64>,
    /// The numbers of intervals.
    intervals: [usize; 2],
    /// The numbers of stamped bytes.
    bytes: [u64; 2],
    /// The medians.
    p50_ns: Option<[u64; 2]>,
    /// The 99th percentiles.
    p99_ns: Option<[u64; 2]>,
    /// The means.
    mean_ns: Option<[u64; 2]>,
}

impl Object for ShiftObject<'_> {
    const KINDS: &'static [&'static str] = &["stack.shift"];
}

/// Writes one object per segment of the baseline.
pub(super) fn comparison(shift: &StackShift<'_>, objects: &mut Objects<'_>) {
    for one in shift.compared {
        let pair = |figure| one.changes.get(&figure).map(|change| [change.was_ns, change.is_ns]);
        let body = ShiftObject {
            segment: one.segment.name(),
            direction: one.segment.direction().name(),
            part_of: one.segment.part_of().map(Segment::name),
            shifted: one.shifted,
            by: one.by.map(figure_name),
            ratio: one.change().map(|change| rounded(change.ratio())),
            chance: one.chance,
            intervals: one.intervals,
            bytes: one.bytes,
            p50_ns: pair(Figure::Median),
            p99_ns: pair(Figure::P99),
            mean_ns: pair(Figure::Mean),
        };
        objects.write(Some(shift.end_ns), &body);
    }
}
