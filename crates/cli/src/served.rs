//! `--metrics`: what the verbs that serve Prometheus have in common.

use std::{borrow::Cow, net::SocketAddr, sync::Arc};

use dwell_engine::rtt::Counters;
use dwell_metrics::{Map, Metrics, Program, Server, serve};
use dwell_records::Interfaces;

use crate::{exit::Failure, tell::tell};

/// Of what has no option for it: hosts by segments.
const MAX_SERIES: u32 = 10_000;

/// Serves metrics while it lives.
pub struct Served {
    /// What is served.
    pub metrics: Arc<Metrics>,
    interfaces: Interfaces,
    _server: Server,
}

impl Served {
    /// Binds the address at once, so that a wrong one is known before anything is attached.
    pub fn start(address: SocketAddr, max_groups: u32, interfaces: Interfaces) -> Result<Served, Failure> {
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), max_groups as usize));
        let server = serve(address, Arc::clone(&metrics)).map_err(Failure::usage)?;
        tell(format_args!("metrics at http://{}/metrics", server.address()));
        Ok(Served { metrics, interfaces, _server: server })
    }

    /// The same, of what has nothing to do with interfaces.
    pub fn plain(address: SocketAddr) -> Result<Served, Failure> {
        Served::start(address, MAX_SERIES, Interfaces::default())
    }

    /// The label of an interface; empty if it is not known.
    pub fn interface(&self, number: u32) -> Cow<'_, str> {
        self.interfaces.label(number).unwrap_or_default()
    }

    /// Sets what dwell tells of itself: its counters, the places of its flow table, and each program
    /// with its runs and nanoseconds.
    pub fn status(&self, counters: &Counters, places: u64, run_times: Vec<(&'static str, u64, u64)>) {
        self.metrics.set_counters(counters);
        let (entries, capacity) = (counters.places_taken(), places);
        self.metrics.set_map("flows", Map { entries, capacity });
        for (name, runs, run_ns) in run_times {
            self.metrics.set_program(name, Program { runs, run_ns });
        }
    }
}
