//! Objects of `dwell collect`.

use dwell_engine::layers::PathSegment;
use serde::Serialize;

use super::{Flow, Objects, rounded};
use crate::{Distribution, PathTable};

const SCHEMA: &str = "dwell.path/1";

/// `type` "path": the time on one segment of the path, of bytes that were seen on both hosts. All segments of one
/// interval, pair and flow are of the same bytes.
#[derive(Serialize)]
struct Object<'a> {
    interval_ns: u64,
    tx_host: &'a str,
    rx_host: &'a str,
    flow: Option<Flow>,
    resent: bool,
    segment: &'a str,
    direction: Option<&'a str>,
    part_of: Option<&'a str>,
    #[serde(flatten)]
    figures: Distribution,
    share: Option<f64>,
    bound_ns: u64,
    clamped: u64,
    doubtful: u64,
}

/// Writes one object per segment of the path.
pub(super) fn interval(table: &PathTable<'_>, objects: &mut Objects<'_>) {
    for leg in PathSegment::ALL {
        let body = Object {
            interval_ns: table.length_ns,
            tx_host: table.tx_host,
            rx_host: table.rx_host,
            flow: table.flow.as_ref().map(Flow::from),
            resent: table.resent,
            segment: leg.name(),
            direction: leg.direction().map(|direction| direction.name()),
            part_of: leg.part_of().map(PathSegment::name),
            figures: Distribution::from(table.path.segment(leg)),
            share: table.share(leg).map(rounded),
            bound_ns: table.path.bound_ns,
            clamped: table.path.clamped,
            doubtful: table.path.doubtful,
        };
        objects.write("path", SCHEMA, Some(table.end_ns), &body);
    }
}
