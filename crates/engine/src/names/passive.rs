//! What packets tell as they pass.

use std::{net::IpAddr, sync::Arc};

use super::{Answers, EndNames, FlowNames};
use crate::{
    labels::Labels,
    measure::{Endpoint, Protocol},
    observe::Observation,
    rtt::native::Payload,
};

/// Names of hosts from answers of DNS, and labels from requests in clear.
#[derive(Debug)]
pub struct PassiveNames {
    answers: Answers,
    /// `None` where none are to be shown.
    labels: Option<Labels>,
}

/// What was learnt, and what was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassiveCounts {
    /// Answers of DNS with addresses.
    pub answers: u64,
    /// Addresses whose name made room for others.
    pub hosts_forgotten: u64,
    /// Requests that had a label.
    pub requests: u64,
    /// Flows whose label made room for others.
    pub labels_forgotten: u64,
}

impl PassiveNames {
    /// Knows nothing yet.
    pub fn new(has_labels: bool) -> PassiveNames {
        PassiveNames { answers: Answers::default(), labels: has_labels.then(Labels::default) }
    }

    /// Learns from a packet.
    pub fn observe(&mut self, packet: &Observation<'_>) {
        if let Some(payload) = Payload::read(packet) {
            self.answers.take(&payload);
            if let Some(labels) = &mut self.labels {
                labels.take(&payload);
            }
        }
    }

    /// Returns the name under which an address was last asked for.
    pub fn host(&self, address: IpAddr) -> Option<Arc<str>> {
        self.answers.name(address)
    }

    /// Returns what the latest request of a flow has asked for.
    pub fn label(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<Arc<str>> {
        self.labels.as_ref()?.label(src, dst, protocol)
    }

    /// Returns all that is known of a flow.
    pub fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowNames {
        let end = |end: &Endpoint| EndNames { host: self.host(end.address), ..EndNames::default() };
        FlowNames { src: end(src), dst: end(dst), label: self.label(src, dst, protocol), ..FlowNames::default() }
    }

    /// Returns what was learnt, and what was forgotten.
    pub fn counts(&self) -> PassiveCounts {
        let of_labels = |of: fn(&Labels) -> u64| self.labels.as_ref().map_or(0, of);
        PassiveCounts {
            answers: self.answers.messages(),
            hosts_forgotten: self.answers.forgotten(),
            requests: of_labels(Labels::requests),
            labels_forgotten: of_labels(Labels::forgotten),
        }
    }
}
