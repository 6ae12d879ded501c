//! `--no-names`, `--no-labels`, and what knows the names and labels of flows.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{FlowNames, NameFlows, PassiveCounts, PassiveNames},
    observe::Observation,
};
use dwell_socket::names::LiveNames;

/// Whether names are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct NamesArgs {
    /// Show no names, but numbers: of processes, services and hosts. Nor labels
    #[arg(short, long)]
    no_names: bool,

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
        NamesArgs { no_names: true, labels: LabelArgs { no_labels: false, labels: false } }
    }

    /// Whether there are to be names.
    pub fn are_shown(self) -> bool {
        !self.no_names
    }

    /// Whether there are to be labels in an output, which may be a file.
    pub fn have_labels(self, is_file: bool) -> bool {
        self.are_shown() && self.labels.are_shown(is_file)
    }

    /// Starts to look up names of flows of this host, if they are to be shown in an output that `has_flows`, and labels,
    /// unless it is a file that is not to have them.
    pub fn live(self, has_flows: bool, is_file: bool) -> Namer {
        match self.are_shown() && has_flows {
            true => Namer::Live(Arc::new(LiveNames::start(self.have_labels(is_file)))),
            false => Namer::None,
        }
    }

    /// Returns what learns names from a capture, if they are to be shown in an output that `has_flows`, and labels, unless it
    /// is a file that is not to have them.
    pub fn of_capture(self, has_flows: bool, is_file: bool) -> Namer {
        match self.are_shown() && has_flows {
            true => Namer::Capture(Arc::new(CaptureNames(Mutex::new(PassiveNames::new(self.have_labels(is_file)))))),
            false => Namer::None,
        }
    }
}

/// What knows the names of flows.
#[derive(Debug, Clone, Default)]
pub enum Namer {
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
        match self {
            Namer::None => None,
            Namer::Live(names) => Some(Arc::clone(names) as _),
            Namer::Capture(names) => Some(Arc::clone(names) as _),
        }
    }

    /// Learns from a packet of a capture.
    pub fn observe(&self, packet: &Observation<'_>) {
        if let Namer::Capture(names) = self {
            names.lock().observe(packet);
        }
    }

    /// Has the names of a flow looked up that is shown later: its sockets may have gone by then.
    pub fn note(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) {
        if let Namer::Live(names) = self {
            names.names(src, dst, protocol);
        }
    }

    /// Adds what names have cost, and what could not be named, but for what is 0.
    pub fn count(&self, counters: &mut Vec<(Cow<'static, str>, u64)>) {
        let mut add = |counts: &[(&'static str, u64)]| {
            let counts = counts.iter().filter(|(_, count)| *count > 0);
            counters.extend(counts.map(|(name, count)| (Cow::Borrowed(*name), *count)));
        };
        let (told, lost) = match self {
            Namer::None => return,
            Namer::Live(names) => {
                let counts = names.counts();
                add(&[
                    ("name_lookups", counts.lookups),
                    ("name_sockets_gone", counts.gone),
                    ("name_sockets_omitted", counts.omitted),
                ]);
                let PassiveCounts { answers, requests, .. } = counts.passive;
                add(&[("dns_answers", answers), ("labelled_requests", requests)]);
                (counts.passive, (counts.answers_lost, counts.requests_lost))
            }
            Namer::Capture(names) => (names.lock().counts(), (0, 0)),
        };
        add(&[("dns_names_lost", lost.0 + told.hosts_forgotten), ("labels_lost", lost.1 + told.labels_forgotten)]);
    }
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
