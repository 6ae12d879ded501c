//! Objects of `dwell stack --baseline`.

use dwell_engine::layers::{Segment, baseline::Figure};
use serde::Serialize;

use super::{Objects, rounded, stack::SCHEMA};
use crate::{StackShift, record::figure_name};

/// `type` "stack-shift": whether a segment has shifted. Pairs are the baseline and now; an unknown value is null.
#[derive(Serialize)]
struct Object<'a> {
    host: &'a str,
    segment: &'a str,
    direction: &'a str,
    part_of: Option<&'a str>,
    shifted: Option<bool>,
    /// The figure with the least likely change.
    by: Option<&'a str>,
    ratio: Option<f64>,
    chance: Option<f64>,
    intervals: [usize; 2],
    bytes: [u64; 2],
    p50_ns: Option<[u64; 2]>,
    p99_ns: Option<[u64; 2]>,
    mean_ns: Option<[u64; 2]>,
}

/// Writes one object per segment of the baseline.
pub(super) fn comparison(shift: &StackShift<'_>, objects: &mut Objects<'_>) {
    for one in shift.compared {
        let pair = |figure| one.changes.get(&figure).map(|change| [change.was_ns, change.is_ns]);
        let body = Object {
            host: shift.host,
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
        objects.write("stack-shift", SCHEMA, Some(shift.end_ns), &body);
    }
}
