//! `--metrics`: what the kernel counts, for Prometheus.

use std::net::SocketAddr;

use dwell_engine::rtt::{Counters, Group};
use dwell_metrics::OTHER;
use dwell_probes::rtt::Probe;
use dwell_records::Interfaces;

use super::Args;
use crate::{exit::Failure, served::Served};

/// Serves metrics while it lives.
pub struct Exporter(Served);

impl Exporter {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(address: SocketAddr, args: &Args, interfaces: Interfaces) -> Result<Exporter, Failure> {
        Served::start(address, args.max_groups, interfaces).map(Exporter)
    }

    /// Adds the samples of an interval.
    pub fn groups(&self, groups: &[Group]) {
        let metrics = &self.0.metrics;
        for group in groups {
            match &group.key {
                Some(key) => metrics.merge(
                    &self.0.interface(key.interface),
                    Some(key.method),
                    &key.prefix.to_string(),
                    &group.histogram,
                ),
                None => metrics.merge(OTHER, None, OTHER, &group.histogram),
            }
        }
    }

    /// Sets what dwell tells of itself.
    pub fn status(&self, probe: &Probe, counters: &Counters) {
        self.0.status(counters, probe.places(), probe.run_times());
    }
}
