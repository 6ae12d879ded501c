//! Metrics: the exposition formats of Prometheus and a server for them, and pushing by OTLP.
//!
//! A metric is declared where it is counted, as a [`Family`]. What counts implements [`Collect`], registers with the
//! process's [`Registry`], and keeps a [`Shared`] handle through which it updates its figures. A scrape or a push takes a
//! [`Snapshot`] of them all and writes that, so that both say the same.
//!
//! Names follow the Prometheus guidelines: base units (seconds), `_total` for counters. No label holds a flow or a
//! client's address. A value that is not known yet is absent, not 0.
//!
//! The text is our own and not prometheus-client's, for two reasons. That library writes OpenMetrics, whose counters
//! and end marker differ from text format 0.0.4, which every scraper reads. And its metrics are updated one event at a
//! time, while ours arrive as totals from the kernel's counters and as buckets from its histograms. For the same reason
//! [`otlp`] takes the messages of opentelemetry-proto, and not OpenTelemetry's SDK.

#![deny(clippy::print_stderr, reason = "only the program writes to stderr")]

mod family;
pub mod otlp;
mod process;
mod protobuf;
mod series;
mod server;
mod snapshot;
mod text;
pub mod tls;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use family::{Family, Kind, LATENCY_BOUNDS_NS, STACK_BOUNDS_NS};
pub use series::{Histograms, Numbers, OTHER};
pub use server::{ServeError, Server, serve};
pub use snapshot::{Number, Snapshot, seconds};

const BUILD_INFO: Family = Family::gauge("dwell_build_info", &["version"], "The version of dwell.");

/// Figures that can be exported.
pub trait Collect {
    /// Adds each family that has values. The samples of a family stand together.
    fn collect(&self, snapshot: &mut Snapshot);
}

/// Adds the figures of one part of a process.
type Collector = Box<dyn Fn(&mut Snapshot) + Send + Sync>;

/// Everything that a process exports, in the order of registration.
pub struct Registry {
    version: String,
    collectors: Mutex<Vec<Collector>>,
}

impl Registry {
    /// Creates a registry that exports only the version of dwell and what its process costs.
    pub fn new(version: impl Into<String>) -> Registry {
        Registry { version: version.into(), collectors: Mutex::default() }
    }

    /// Exports `figures` after everything registered before, and returns the handle that updates them.
    pub fn register<T: Collect + Clone + Send + 'static>(&self, figures: T) -> Shared<T> {
        let shared = Shared(Arc::new(Mutex::new(figures)));
        let exported = shared.clone();
        let collect = move |snapshot: &mut Snapshot| {
            // Reading a copy keeps a scrape from blocking the code that counts.
            let copy = exported.lock().clone();
            copy.collect(snapshot);
        };
        lock(&self.collectors).push(Box::new(collect));
        shared
    }

    /// Returns all metrics as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.family(&BUILD_INFO);
        snapshot.sample(&BUILD_INFO, &[&self.version], 1_u64);
        process::collect(&mut snapshot);
        for collect in &*lock(&self.collectors) {
            collect(&mut snapshot);
        }
        snapshot
    }

    /// Returns all metrics in text format 0.0.4.
    pub fn render(&self) -> String {
        text::text(&self.snapshot())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A handle to registered figures.
#[derive(Debug)]
pub struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    /// Locks the figures for an update. A scrape sees all of an update or nothing of it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

/// Locks `mutex` even after a panic elsewhere: counts have no invariant that a panic could break.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
