//! The segments between the sender and the receiver, as the collector stored them.

use std::{collections::BTreeMap, path::Path};

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, PathSegment, join},
};
use dwell_store::{Place, Reader, StoreError};

/// The paths in the store of one run.
pub struct StoredPaths {
    /// Length of the stored span of time.
    pub span_ns: u64,
    /// End of the span, in the store's time.
    pub end_ns: u64,
    /// By flow (`None`: all flows together) and whether the bytes were sent more than once.
    pub all: BTreeMap<(Option<i64>, bool), join::Path>,
    flows: BTreeMap<i64, Ends>,
}

impl StoredPaths {
    /// Reads a store.
    pub fn read(store: &Path) -> Result<StoredPaths, StoreError> {
        let reader = Reader::open(store)?;
        let span = reader.span()?.unwrap_or_default();
        let flows = reader.flows(span, &[])?;
        let numbers: Vec<i64> = flows.iter().map(|(number, ..)| *number).collect();
        let mut all = BTreeMap::<_, join::Path>::new();
        reader.rows(span, &numbers, |read| {
            if !matches!(read.place, Place::Path(Some(_), Some(_))) {
                return;
            }
            let path = all.entry((read.flow, read.resent)).or_default();
            let index = PathSegment::ALL.iter().position(|segment| *segment == read.segment);
            path.segments[index.expect("all segments are in the list")].add(read.histogram);
            if read.segment == PathSegment::Network {
                path.bound_ns = path.bound_ns.max(read.bound_ns.unwrap_or(0));
                path.clamped += read.clamped;
            }
        })?;
        Ok(StoredPaths {
            span_ns: (span.1 - span.0).unsigned_abs(),
            end_ns: span.1.unsigned_abs(),
            all,
            flows: flows.into_iter().map(|(number, ends, _)| (number, ends)).collect(),
        })
    }

    /// The path of the flow to this port of the receiver, over bytes that were sent once.
    pub fn to_port(&self, port: u16) -> Option<&join::Path> {
        self.all.get(&(Some(self.flow_to(port)?), false))
    }

    /// The end-to-end latency of all bytes of the flow to this port, including bytes that were sent again. `None` if
    /// no byte was stamped on both hosts.
    pub fn end_to_end(&self, port: u16) -> Option<Histogram> {
        let flow = self.flow_to(port)?;
        let mut whole = Histogram::default();
        for resent in [false, true] {
            if let Some(path) = self.all.get(&(Some(flow), resent)) {
                whole.merge(path.segment(PathSegment::EndToEnd));
            }
        }
        (whole.count() > 0).then_some(whole)
    }

    fn flow_to(&self, port: u16) -> Option<i64> {
        self.flows.iter().find(|(_, ends)| ends.dst.port == port).map(|(number, _)| *number)
    }
}
