//! `--no-names`, `--resolve`, `--no-labels`, `--as-file`, and what knows the names and labels of flows.

mod networks;

use std::{
    borrow::Cow,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::anyhow;
use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{FlowNames, NameFlows, PassiveCounts, PassiveNames},
    observe::Observation,
};
use dwell_probes::owners::Owners;
use dwell_socket::names::{KernelOwners, LiveNames, ReverseCounts};

pub use self::networks::Tables;
use self::networks::WithNetworks;
use crate::{exit::Failure, written::WriteArgs};

/// Whether names are shown.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct NamesArgs {
    /// Show numbers instead of the names of processes, services and hosts, and no labels
    #[arg(short, long)]
    no_names: bool,

    /// Ask name servers for the names of remote addresses that have none otherwise. This sends queries, from which the
    /// name servers, and anyone on the path to them, learn which addresses this host talks to
    #[arg(long, conflicts_with = "no_names")]
    resolve: bool,

    /// Show the autonomous systems and countries of addresses that this file has: a table of iptoasn.com, also gzipped, or a
    /// database of MaxMind's format; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "no_names")]
    as_file: Vec<PathBuf>,

    #[command(flatten)]
    labels: LabelArgs,
}

/// Whether labels are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct LabelArgs {
    /// Show no labels: what requests in clear ask for, such as GET /index.html
    #[arg(long, overrides_with = "labels")]
    no_labels: bool,

    /// Keep labels in files too; without it they are only shown
    #[arg(long, overrides_with = "no_labels")]
    labels: bool,
}

impl LabelArgs {
    /// Whether there are to be labels in an output, which may be a file.
    pub fn are_shown(self, is_file: bool) -> bool {
        !self.no_labels && (self.labels || !is_file)
    }
}

impl NamesArgs {
    /// As with `--no-names`.
    #[cfg(test)]
    pub fn none() -> NamesArgs {
        let labels = LabelArgs { no_labels: false, labels: false };
        NamesArgs { no_names: true, resolve: false, as_file: Vec::new(), labels }
    }

    /// Whether there are to be names.
    pub fn are_shown(&self) -> bool {
        !self.no_names
    }

    /// Whether name servers are to be asked.
    pub fn resolve(&self) -> bool {
        self.resolve
    }

    /// Refuses to ask name servers about a capture, which is over before they answer.
    pub fn refuse_to_resolve(&self) -> Result<(), Failure> {
        match self.resolve {
            true => Err(Failure::usage(anyhow!(
                "--resolve is for live flows: a capture has the names of the answers of DNS in it; leave it out with -r"
            ))),
            false => Ok(()),
        }
    }

    /// Whether there are to be labels in an output, which may be a file.
    pub fn have_labels(&self, is_file: bool) -> bool {
        self.are_shown() && self.labels.are_shown(is_file)
    }

    /// Reads the tables of autonomous systems. `None` without any.
    pub fn tables(&self) -> Result<Option<Arc<Tables>>, Failure> {
        match self.as_file.is_empty() {
            true => Ok(None),
            false => Ok(Some(Arc::new(Tables::open(self.as_file.iter().map(PathBuf::as_path))?))),
        }
    }

    /// Starts to look up names of flows of this host, if they are to be shown in an output that `has_flows`, and labels,
    /// unless nothing is printed, or into a file that is not to have them: a store has none.
    pub fn live(&self, has_flows: bool, write: &WriteArgs, format: &str) -> Result<Namer, Failure> {
        let start = || LiveNames::start(self.print_labels(write, format), self.resolve, kernel_owners);
        self.namer(has_flows, || NameSource::Live(Arc::new(start())))
    }

    /// Returns what learns names from a capture, and labels, where [`NamesArgs::live`] would look them up.
    pub fn of_capture(&self, has_flows: bool, write: &WriteArgs, format: &str) -> Result<Namer, Failure> {
        self.refuse_to_resolve()?;
        let passive = || PassiveNames::new(self.print_labels(write, format));
        self.namer(has_flows, || NameSource::Capture(Arc::new(CaptureNames(Mutex::new(passive())))))
    }

    fn print_labels(&self, write: &WriteArgs, format: &str) -> bool {
        write.format(format).is_some() && self.have_labels(write.write.is_some())
    }

    fn namer(&self, has_flows: bool, start: impl FnOnce() -> NameSource) -> Result<Namer, Failure> {
        match self.are_shown() && has_flows {
            true => Ok(Namer { tables: self.tables()?, known: start() }),
            false => Ok(Namer::default()),
        }
    }
}

/// Has the kernel note the processes that connect sockets from now on, where this process may ask for that.
pub fn kernel_owners() -> Option<Arc<dyn KernelOwners>> {
    Owners::attach().map(|owners| Arc::new(owners) as _)
}

/// What knows the names of flows.
#[derive(Debug, Clone, Default)]
pub struct Namer {
    known: NameSource,
    tables: Option<Arc<Tables>>,
}

#[derive(Debug, Clone, Default)]
enum NameSource {
    /// No names are shown.
    #[default]
    None,
    /// Those of this host.
    Live(Arc<LiveNames>),
    /// Those that a capture has.
    Capture(Arc<CaptureNames>),
}

impl Namer {
    /// Returns what a source of records needs.
    pub fn of_source(&self) -> Option<Arc<dyn NameFlows>> {
        let names: Arc<dyn NameFlows> = match &self.known {
            NameSource::None => return None,
            NameSource::Live(names) => Arc::clone(names) as _,
            NameSource::Capture(names) => Arc::clone(names) as _,
        };
        Some(match &self.tables {
            Some(tables) => Arc::new(WithNetworks { names, tables: Arc::clone(tables) }),
            None => names,
        })
    }

    /// Learns from a packet of a capture.
    pub fn observe(&self, packet: &Observation<'_>) {
        if let NameSource::Capture(names) = &self.known {
            names.lock().observe(packet);
        }
    }

    /// Has the names of a flow looked up that is shown later: its sockets may have gone by then.
    pub fn note(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) {
        if let NameSource::Live(names) = &self.known {
            names.names(src, dst, protocol);
        }
    }

    /// Adds what names have cost, and what could not be named, but for what is 0.
    pub fn count(&self, counters: &mut Vec<(Cow<'static, str>, u64)>) {
        let mut add = |counts: &[(&'static str, u64)]| {
            let counts = counts.iter().filter(|(_, count)| *count > 0);
            counters.extend(counts.map(|(name, count)| (Cow::Borrowed(*name), *count)));
        };
        let (told, lost) = match &self.known {
            NameSource::None => return,
            NameSource::Live(names) => {
                let counts = names.counts();
                add(&[
                    ("name_lookups", counts.lookups),
                    ("name_sockets_gone", counts.gone),
                    ("name_sockets_noted", counts.noted),
                    ("name_notes_lost", counts.notes_lost),
                    ("name_sockets_omitted", counts.omitted),
                ]);
                add(&reverse_counters(counts.reverse));
                let PassiveCounts { answers, requests, .. } = counts.passive;
                add(&[("dns_answers", answers), ("labelled_requests", requests)]);
                (counts.passive, (counts.answers_lost, counts.requests_lost))
            }
            NameSource::Capture(names) => (names.lock().counts(), (0, 0)),
        };
        add(&[("dns_names_lost", lost.0 + told.hosts_forgotten), ("labels_lost", lost.1 + told.labels_forgotten)]);
    }
}

/// Returns what reverse look-ups have cost, and what could not be named, with the names of the counters.
pub fn reverse_counters(counts: ReverseCounts) -> [(&'static str, u64); 4] {
    [
        ("reverse_lookups", counts.lookups),
        ("reverse_unnamed", counts.unnamed),
        ("reverse_omitted", counts.omitted),
        ("reverse_threads_refused", counts.refused),
    ]
}

/// Names that packets of a capture have told so far.
#[derive(Debug)]
pub struct CaptureNames(Mutex<PassiveNames>);

impl CaptureNames {
    fn lock(&self) -> MutexGuard<'_, PassiveNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameFlows for CaptureNames {
    fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowNames {
        self.lock().names(src, dst, protocol)
    }
}
