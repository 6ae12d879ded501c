//! What connections that are no longer followed have shown.

use std::mem;

use dwell_engine::{
    labels::asks_for_tls,
    roles::Role,
    why::{Connection, CountKind, Evidence, Key},
};

use super::connections::Followed;
use crate::names::Requests;

/// The sum over connections.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) evidence: Evidence,
    /// What connections have shown while they were in a panel: those that this host has accepted, and those that it has opened.
    panel: [Evidence; 2],
    /// What connections have shown that were found by chance and did not live to join a panel.
    by_chance: Evidence,
    /// Connections that were not followed, in namespaces that are gone.
    pub(super) omitted: u64,
    /// Connections whose first request was not read when it was answered.
    pub(super) unread: u64,
}

impl Tally {
    /// Adds a request that was answered, by what it asked for. Where both ends are followed, it is counted at the server. The
    /// first of a connection may have been the beginning of TLS's handshake.
    pub(super) fn answer(&mut self, followed: &mut Followed, requests: &Requests, answered_ns: Option<u64>) {
        let counts = match followed.counted {
            CountKind::Whole => true,
            CountKind::WithPeer => followed.role == Role::Server,
            CountKind::Upstream => false,
        };
        let may_be_tls = followed.connection.may_have_opened_with_tls();
        if !counts || answered_ns.is_none() && !may_be_tls {
            return;
        }
        match requests.label(&followed.ends) {
            Some(label) => {
                answered_ns.into_iter().for_each(|ns| self.evidence.requests.add(&label, ns));
                // Also where the answer came too soon to tell when.
                if asks_for_tls(&label) {
                    followed.connection.opened_with_tls();
                    followed.closely.iter_mut().for_each(Connection::opened_with_tls);
                }
            }
            None if answered_ns.is_some() && !requests.is_complete() => {
                let connection = followed.closely.as_ref().unwrap_or(&followed.connection);
                self.unread += u64::from(connection.may_have_opened_with_tls());
            }
            None => {}
        }
    }

    /// Adds what a connection has shown. One that was found too late for TLS's handshake is counted.
    pub(super) fn add(&mut self, followed: &mut Followed, requests: &Requests) {
        let key = followed.group_key();
        let opened_with_tls = || requests.label(&followed.ends).is_some_and(|label| asks_for_tls(&label));
        let was_late = followed.was_answered && opened_with_tls();
        self.add_whole(&followed.connection, key, followed.counted, was_late);
        self.leave_panel(followed);
        if followed.by_chance.is_some() && !followed.was_in_panel {
            self.by_chance.add(&followed.connection, key, followed.counted);
        }
    }

    /// Adds a connection that was found too late for TLS's handshake, or in time. Where so little was seen of it that it is not one
    /// of those whose number is known, neither is its handshake one of those that were missed.
    fn add_whole(&mut self, connection: &Connection, key: Key, counted: CountKind, was_late: bool) {
        let is_known = self.evidence.add_polls(connection, key, counted, true);
        let misses = is_known && was_late && counted != CountKind::Upstream;
        self.evidence.missed_handshakes += u64::from(misses);
    }

    /// Keeps what a connection has shown since it joined the panel, if it is in it.
    pub(super) fn leave_panel(&mut self, followed: &mut Followed) {
        let key = followed.group_key();
        if let Some(closely) = followed.closely.take() {
            self.add_closely(&closely, key, followed.counted, &mut followed.was_in_panel);
        }
    }

    /// Adds what a connection has shown in the panel, which it may have joined before.
    fn add_closely(&mut self, closely: &Connection, key: Key, counted: CountKind, was_in_panel: &mut bool) {
        let of_role = &mut self.panel[usize::from(key.role == Role::Client)];
        *was_in_panel |= of_role.add_polls(closely, key, counted, !*was_in_panel);
    }

    /// Returns what the panel alone has shown, with what services waited for on connections that were too short for it. Connections
    /// that this host opened and those that it accepted are as many as they are among all, in the time that each takes.
    pub(super) fn closer(&mut self) -> Option<Evidence> {
        let [mut closer, mut opened] = mem::take(&mut self.panel);
        if closer.groups.is_empty() && opened.groups.is_empty() {
            return None;
        }
        opened.plus(&self.by_chance, 1.0);
        let of = |evidence: &Evidence, role: Role| {
            let groups = evidence.groups.iter().filter(|group| group.key.role == role);
            groups.map(|group| group.connections).sum::<u64>() as f64
        };
        let server = of(&self.evidence, Role::Server) / of(&closer, Role::Server);
        let client = of(&self.evidence, Role::Client) / of(&opened, Role::Client);
        closer.plus(&opened, if (client / server).is_normal() { client / server } else { 1.0 });
        Some(closer)
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::socket::{Reading, TcpInfo};

    use super::*;

    #[test]
    fn connections_of_a_panel_are_counted_once_however_often_they_join_it() {
        let reading = |time_ns| Reading { time_ns, info: TcpInfo::default(), unacknowledged: None, readable: None };
        let mut tally = Tally::default();
        for role in [Role::Server, Role::Client] {
            let key = Key { peer: [192, 0, 2, 1].into(), port: 443, role, pid: None, seen_from: None };
            for _connection in 0..3 {
                let mut was_in_panel = false;
                for polls in [1, 5, 5, 1, 5] {
                    let mut closely = Connection::new(role, &reading(0));
                    for poll in 1..polls {
                        closely.observe(&reading(poll * 250_000_000));
                    }
                    tally.add_closely(&closely, key, CountKind::Whole, &mut was_in_panel);
                }
            }
        }
        let groups: usize = tally.panel.iter().map(|evidence| evidence.groups.len()).sum();
        let closer = tally.closer().unwrap();
        assert_eq!((closer.connections, closer.accepted), (6, 3));
        assert_eq!(closer.sums.polls, 2 * 3 * 3 * 5);
        assert!(groups == 2, "{groups}");
        let key_of = |group: &dwell_engine::why::Group| -> Key { group.key };
        assert!(closer.groups.iter().all(|group| group.connections == 3 && key_of(group).port == 443));
    }

    #[test]
    fn a_connection_of_which_too_little_was_seen_has_missed_no_handshake() {
        let reading = |time_ns| Reading { time_ns, info: TcpInfo::default(), unacknowledged: None, readable: None };
        let key = Key { peer: [192, 0, 2, 1].into(), port: 443, role: Role::Client, pid: None, seen_from: None };
        let mut tally = Tally::default();
        for (polls, counted, was_late) in [
            (1, CountKind::Whole, true),
            (2, CountKind::Upstream, true),
            (2, CountKind::Whole, false),
            (2, CountKind::Whole, true),
        ] {
            let mut connection = Connection::new(Role::Client, &reading(0));
            for poll in 1..polls {
                connection.observe(&reading(poll * 250_000_000));
            }
            tally.add_whole(&connection, key, counted, was_late);
        }
        assert_eq!((tally.evidence.connections, tally.evidence.missed_handshakes), (2, 1));
    }

    /// A proxy that opens a connection for each question has none that lives to join the panel of its clients.
    #[test]
    fn what_a_service_waits_for_counts_in_the_panel_although_it_is_never_part_of_it() {
        let reading = |time_ns| Reading { time_ns, info: TcpInfo::default(), unacknowledged: None, readable: None };
        let polled = |role| {
            let mut connection = Connection::new(role, &reading(0));
            connection.observe(&reading(250_000_000));
            connection
        };
        let key = |role| Key { peer: [192, 0, 2, 1].into(), port: 80, role, pid: Some(7), seen_from: None };
        let (client, upstream) = (polled(Role::Server), polled(Role::Client));
        let mut tally = Tally::default();
        tally.by_chance.add(&upstream, key(Role::Client), CountKind::Upstream);
        assert!(tally.closer().is_none(), "there is no panel");
        tally.add_closely(&client, key(Role::Server), CountKind::Whole, &mut false);
        let closer = tally.closer().unwrap();
        let counted: Vec<_> = closer.groups.iter().map(|group| (group.counted, group.connections)).collect();
        assert_eq!(counted, [(CountKind::Whole, 1), (CountKind::Upstream, 1)]);
        assert_eq!(closer.connections, 1);
    }
}
