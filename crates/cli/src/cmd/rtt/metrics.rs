//! `--metrics`: what the kernel counts, for Prometheus.

use std::{net::SocketAddr, sync::Arc};

use dwell_engine::rtt::{Counters, Group};
use dwell_probes::rtt::Probe;
use dwell_records::{
    Interfaces,
    prometheus::{Map, Metrics, OTHER, Program, Server, serve},
};

use super::Args;
use crate::{exit::Failure, tell::tell};

/// Serves metrics while it lives.
pub struct Exporter {
    metrics: Arc<Metrics>,
    interfaces: Interfaces,
    _server: Server,
}

impl Exporter {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(
        address: SocketAddr,
        args: &Args,
        interfaces: Interfaces,
    ) -> Result<Exporter, Failure> {
        let metrics = Arc::new(Metrics::new(
            env!("CARGO_PKG_VERSION"),
            args.max_groups as usize,
        ));
        let server = serve(address, Arc::clone(&metrics)).map_err(Failure::usage)?;
        tell(format_args!(
            "metrics at http://{}/metrics",
            server.address()
        ));
        Ok(Exporter {
            metrics,
            interfaces,
            _server: server,
        })
    }

    /// Adds the samples of an interval.
    pub fn groups(&self, groups: &[Group]) {
        for group in groups {
            match &group.key {
                Some(key) => {
                    let interface = self.interfaces.label(key.interface).unwrap_or_default();
                    let prefix = key.prefix.to_string();
                    self.metrics
                        .merge(&interface, Some(key.method), &prefix, &group.histogram);
                }
                None => self.metrics.merge(OTHER, None, OTHER, &group.histogram),
            }
        }
    }

    /// Sets what dwell tells of itself.
    pub fn status(&self, probe: &Probe, counters: &Counters) {
        self.metrics.set_counters(counters);
        let (entries, capacity) = (counters.places_taken(), probe.places());
        self.metrics.set_map("flows", Map { entries, capacity });
        for (name, runs, run_ns) in probe.run_times() {
            self.metrics.set_program(name, Program { runs, run_ns });
        }
    }
}
