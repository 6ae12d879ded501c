//! What connections that are no longer followed have shown.

use std::mem;

use dwell_engine::why::{Connection, Counted, Evidence, Key, Role};

use super::connections::Followed;
use crate::names::Requests;

/// The sum over connections.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) evidence: Evidence,
    /// The connections of a panel, with what they have shown.
    pub(super) panel: Vec<(Connection, Key, Counted)>,
    /// Connections that were not followed, in namespaces that are gone.
    pub(super) omitted: u64,
}

impl Tally {
    /// Adds a request that was answered, by what it asked for. Where both ends are followed, it is counted at the server.
    pub(super) fn answer(&mut self, followed: &Followed, requests: Option<&Requests>, answered_ns: Option<u64>) {
        let counts = match followed.counted {
            Counted::Whole => true,
            Counted::WithPeer => followed.role == Role::Server,
            Counted::Upstream => false,
        };
        if let Some(ns) = answered_ns.filter(|_| counts)
            && let Some(label) = requests.and_then(|requests| requests.label(&followed.ends))
        {
            self.evidence.requests.add(&label, ns);
        }
    }

    pub(super) fn add(&mut self, followed: &mut Followed) {
        self.evidence.add(&followed.connection, followed.group_key(), followed.counted);
        self.leave_panel(followed);
    }

    /// Keeps what a connection has shown since it joined the panel, if it is in it.
    pub(super) fn leave_panel(&mut self, followed: &mut Followed) {
        let key = followed.group_key();
        self.panel.extend(followed.closely.take().map(|closely| (closely, key, followed.counted)));
    }

    /// Returns what the panel alone has shown. Connections that this host opened and those that it accepted are as many as
    /// they are among all, in the time that each takes.
    pub(super) fn closer(&mut self) -> Option<Evidence> {
        let panel = mem::take(&mut self.panel);
        let of_all = |role: Role| {
            let groups = self.evidence.groups.iter().filter(|group| group.key.role == role);
            groups.map(|group| group.connections).sum::<u64>() as f64
        };
        let of_panel = |role: Role| panel.iter().filter(|(_, key, _)| key.role == role).count() as f64;
        let stands_for = |role: Role| of_all(role) / of_panel(role);
        let (server, client) = (stands_for(Role::Server), stands_for(Role::Client));
        let weight = if (client / server).is_normal() { client / server } else { 1.0 };
        let mut closer = Evidence::default();
        for (connection, key, counted) in &panel {
            let weight = if key.role == Role::Client { weight } else { 1.0 };
            closer.add_for_others(connection, *key, *counted, weight);
        }
        (!panel.is_empty()).then_some(closer)
    }
}
