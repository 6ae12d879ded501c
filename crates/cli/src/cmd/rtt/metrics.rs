//! `--metrics`: the histograms and counters of the kernel, for Prometheus.

use std::net::SocketAddr;

use dwell_engine::rtt::{Counters, Group};
use dwell_metrics::{Family, Histograms, LATENCY_BOUNDS_NS, OTHER, Shared};
use dwell_probes::rtt::Probe;
use dwell_records::Interfaces;

use super::Args;
use crate::{
    exit::Failure,
    served::Served,
    source::{GROUP_LABELS, ProbeStatus},
};

const RTT: Family = Family::histogram(
    "dwell_rtt_seconds",
    GROUP_LABELS,
    LATENCY_BOUNDS_NS,
    "Time from seeing a packet to seeing its answer, by the prefix of the side that answered.",
);

/// Serves metrics while it lives.
pub struct Exporter {
    interfaces: Interfaces,
    rtt: Shared<Histograms>,
    status: Shared<ProbeStatus>,
    _served: Served,
}

impl Exporter {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(address: SocketAddr, args: &Args, interfaces: Interfaces) -> Result<Exporter, Failure> {
        let served = Served::start(address)?;
        Ok(Exporter {
            interfaces,
            rtt: served.registry.register(Histograms::new(RTT, args.max_groups as usize)),
            status: served.registry.register(ProbeStatus::default()),
            _served: served,
        })
    }

    /// Adds the samples of an interval.
    pub fn groups(&self, groups: &[Group]) {
        let mut rtt = self.rtt.lock();
        for group in groups {
            let histogram = match &group.key {
                Some(key) => {
                    let interface = self.interfaces.label(key.interface).unwrap_or_default();
                    let (method, prefix) = (key.method.name(), key.prefix.to_string());
                    rtt.get([&interface, method, &prefix], [OTHER, method, OTHER])
                }
                None => rtt.get([OTHER; 3], [OTHER; 3]),
            };
            histogram.merge(&group.histogram);
        }
    }

    /// Updates what the probe exports about itself.
    pub fn status(&self, probe: &Probe, counters: &Counters) {
        self.status.lock().update(counters, probe.slots(), probe.run_times());
    }
}
