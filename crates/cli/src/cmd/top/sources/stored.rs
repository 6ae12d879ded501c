//! Flows and backends of the last interval of a store, read again as rows are written.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use dwell_engine::{
    filter::Filter,
    measure::{Endpoint, Protocol},
    names::EndNames,
    top::{Metric, StoredLatency},
    units::nanos,
};
use dwell_records::Source;
use dwell_socket::clock::realtime_ns;
use dwell_store::{Address, LastKind, LastLatency, Reader};

use crate::{
    cmd::top::{Args, shown::Screenful},
    exit::Failure,
};

/// Names that are remembered, of each kind.
const MAX_NAMES: usize = 65_536;

/// The names that a store has of the ends of its flows.
#[derive(Debug, Default)]
pub struct StoredNames {
    processes: HashMap<u32, EndNames>,
    hosts: HashMap<IpAddr, Arc<str>>,
    services: HashMap<(Endpoint, Protocol), Arc<str>>,
}

impl StoredNames {
    fn note(&mut self, latency: &LastLatency) {
        let LastLatency { ends, names, protocol, .. } = latency;
        for (end, names) in [(&ends.src, &names.src), (&ends.dst, &names.dst)] {
            if let Some(pid) = names.pid {
                insert(&mut self.processes, pid, || EndNames { host: None, ..names.clone() });
            }
            if let Some(host) = &names.host {
                insert(&mut self.hosts, end.address, || Arc::clone(host));
            }
        }
        if let Some(service) = &names.service {
            let server = if ends.src.port < ends.dst.port { ends.src } else { ends.dst };
            insert(&mut self.services, (server, *protocol), || Arc::clone(service));
        }
    }

    pub fn process(&self, pid: u32) -> EndNames {
        self.processes.get(&pid).cloned().unwrap_or_else(|| EndNames { pid: Some(pid), ..EndNames::default() })
    }

    pub fn host(&self, address: IpAddr) -> Option<Arc<str>> {
        self.hosts.get(&address).cloned()
    }

    pub fn service(&self, server: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        self.services.get(&(*server, protocol)).cloned()
    }
}

/// Remembers the latest value. Where there is no room for its key, all others are forgotten: those that are still there
/// come again.
fn insert<K: std::hash::Hash + Eq, V>(all: &mut HashMap<K, V>, key: K, value: impl FnOnce() -> V) {
    if all.len() >= MAX_NAMES && !all.contains_key(&key) {
        all.clear();
    }
    all.insert(key, value());
}

/// A store that others may be writing.
#[derive(Debug)]
pub struct StoreFile {
    path: PathBuf,
    /// The length of an interval, if it was given.
    length_ns: Option<i64>,
    /// The ends of the intervals that were shown last, of flows and of backends.
    shown_ns: [Option<i64>; 2],
}

impl StoreFile {
    /// Opens a store, and shows its last interval.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a store.
    pub fn open(args: &Args, path: &Path, filter: Filter) -> Result<(StoreFile, Screenful), Failure> {
        if path.to_str().is_some_and(Address::is_meant_by) {
            return Err(Failure::usage(anyhow!(
                "a store is an SQLite file here: a ClickHouse server cannot be read; `dwell report -r {}` draws what it has",
                path.display()
            )));
        }
        let mut shown = Screenful::of_store(args.settings(), filter, &args.names, Source::default())?;
        shown.path = Some(path.to_owned());
        let length_ns = args.interval.map(|interval| nanos(interval).cast_signed());
        let mut file = StoreFile { path: path.to_owned(), length_ns, shown_ns: [None; 2] };
        file.update(&mut shown)?;
        Ok((file, shown))
    }

    /// Shows the last interval again, after what is admitted has changed.
    ///
    /// # Errors
    ///
    /// As [`StoreFile::update`].
    pub fn read_again(&mut self, shown: &mut Screenful) -> Result<(), Failure> {
        self.shown_ns[0] = None;
        self.update(shown)
    }

    /// Shows the last interval, if rows have been written since.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub fn update(&mut self, shown: &mut Screenful) -> Result<(), Failure> {
        // A reader sees the store as it was when it was opened.
        let store = Reader::open(&self.path)?;
        let now_ns = realtime_ns().cast_signed();
        if let Some(span) = store.last_interval(self.length_ns, now_ns)?
            && self.shown_ns[0].replace(span.1) != Some(span.1)
        {
            store.last_latencies(span, |latency| add(shown, &latency))?;
            shown.end_stored_interval(span);
        }
        if let Some(span) = store.last_interval_of_backends(now_ns)?
            && self.shown_ns[1].replace(span.1) != Some(span.1)
        {
            let backends = store.last_backends(span)?;
            if let Some(balancer) = &mut shown.balancer {
                balancer.take_stored(backends, span.1.cast_unsigned());
            }
        }
        Ok(())
    }
}

fn add(shown: &mut Screenful, latency: &LastLatency) {
    if !shown.admits(&latency.ends, latency.protocol) {
        return;
    }
    let names = &latency.names;
    let is_local = |end: &EndNames| end.pid.is_some() || end.process.is_some() || end.unit.is_some();
    let is_src_local = match (is_local(&names.src), is_local(&names.dst)) {
        _ if latency.is_src_local => Some(true),
        (true, false) => Some(true),
        (false, true) => Some(false),
        (true, true) | (false, false) => None,
    };
    let own = if is_src_local == Some(false) { &names.dst } else { &names.src };
    shown.stored_names.note(latency);
    shown.table.stored(&StoredLatency {
        ends: latency.ends,
        protocol: latency.protocol,
        is_src_local,
        pid: own.pid,
        unit: match &own.pod {
            Some(pod) => shown.units.of_pod(pod),
            None => own.unit.as_ref().and_then(|unit| shown.units.number(unit)),
        },
        is_around: latency.is_around,
        metric: match latency.kind {
            LastKind::Rtt => Metric::Rtt,
            LastKind::Response => Metric::Response,
            LastKind::SendBuffer => Metric::SendBuffer,
        },
        mean_ns: latency.mean_ns,
        count: latency.count,
        time_ns: latency.time_ns.cast_unsigned(),
    });
}
