//! `--metrics`: estimates, for Prometheus.

use std::net::SocketAddr;

use dwell_engine::{
    response::{Estimate, Record, RunningMeans},
    rtt::Prefix,
};
use dwell_probes::response::Probe;
use dwell_records::Interfaces;
use dwell_socket::clock::monotonic_ns;

use super::Args;
use crate::{exit::Failure, served::Served};

/// In which half of a response's weight in the running mean goes.
const HALF_LIFE_NS: u64 = 10_000_000_000;
/// A server that was silent for so long has no running mean any more.
const FORGET_NS: u64 = 600_000_000_000;

/// Serves metrics while it lives.
pub struct Exporter {
    served: Served,
    means: RunningMeans<Prefix>,
    prefix4: u8,
    prefix6: u8,
}

impl Exporter {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(address: SocketAddr, args: &Args, interfaces: Interfaces) -> Result<Exporter, Failure> {
        Ok(Exporter {
            served: Served::start(address, args.max_groups, interfaces)?,
            means: RunningMeans::new(HALF_LIFE_NS),
            prefix4: args.prefix4,
            prefix6: args.prefix6,
        })
    }

    /// Adds an epoch.
    pub fn record(&mut self, record: &Record, estimate: &Estimate) {
        let reason = estimate.reason.map_or("valid", |reason| reason.name());
        self.served.metrics.epoch(reason);
        let (true, Some(response_ns)) = (estimate.is_valid(), estimate.response_ns) else {
            return;
        };
        let address = record.dst.address;
        let bits = if address.is_ipv4() { self.prefix4 } else { self.prefix6 };
        let prefix = Prefix::of(address, bits);
        let end_ns = record.epoch.start_ns.wrapping_add(record.epoch.epoch_ns);
        self.means.add(prefix, end_ns, estimate);
        self.served.metrics.responses(
            &self.served.interface(record.interface),
            estimate.method.name(),
            &prefix.to_string(),
            response_ns,
            estimate.batches,
        );
    }

    /// Sets the running means, and what dwell tells of itself.
    pub fn status(&mut self, probe: &mut Probe) -> Result<(), Failure> {
        let now_ns = monotonic_ns();
        self.means.forget(now_ns, FORGET_NS);
        let means = self.means.iter(now_ns);
        let means = means.map(|(prefix, running)| (prefix.to_string(), running.mean_ns));
        self.served.metrics.set_means(means);
        let counters = probe.counters()?;
        self.served.status(&counters, probe.places(), probe.run_times());
        Ok(())
    }
}
