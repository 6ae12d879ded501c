//! `--no-names`, and what knows the names of flows.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{Answers, EndNames, FlowNames, NameFlows},
    observe::Observation,
};
use dwell_socket::names::LiveNames;

/// Whether names are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct NamesArgs {
    /// Show no names, but numbers: of processes, services and hosts
    #[arg(short, long)]
    no_names: bool,
}

impl NamesArgs {
    /// Whether there are to be names.
    pub fn are_shown(self) -> bool {
        !self.no_names
    }

    /// Starts to look up names of flows of this host, if they are to be shown in an output that `has_flows`.
    pub fn live(self, has_flows: bool) -> Namer {
        match self.are_shown() && has_flows {
            true => Namer::Live(Arc::new(LiveNames::start())),
            false => Namer::None,
        }
    }

    /// Returns what learns names from a capture, if they are to be shown in an output that `has_flows`.
    pub fn of_capture(self, has_flows: bool) -> Namer {
        match self.are_shown() && has_flows {
            true => Namer::Capture(Arc::default()),
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
            names.0.lock().unwrap_or_else(PoisonError::into_inner).observe(packet);
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
        let Namer::Live(names) = self else {
            return;
        };
        let counts = names.counts();
        let counts = [
            ("name_lookups", counts.lookups),
            ("name_sockets_gone", counts.gone),
            ("name_sockets_omitted", counts.omitted),
            ("dns_answers", counts.answers),
            ("dns_names_lost", counts.lost_names),
        ];
        counters.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.into(), count)));
    }
}

/// Names of hosts by the answers of DNS in a capture, so far.
#[derive(Debug, Default)]
pub struct CaptureNames(Mutex<Answers>);

impl NameFlows for CaptureNames {
    fn names(&self, src: &Endpoint, dst: &Endpoint, _protocol: Protocol) -> FlowNames {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |end: &Endpoint| EndNames { host: answers.name(end.address), ..EndNames::default() };
        FlowNames { src: end(src), dst: end(dst), service: None }
    }
}
