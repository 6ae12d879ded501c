//! Which flows of two hosts are one connection, although its addresses are translated between them (NAT).
//!
//! Translation changes no sequence number, so that both hosts know the connection by the same two initial ones. Of `n`
//! connections that are known at the same time, a pair of different ones has the same with a probability of `n * n / 2^65`, as
//! far as kernels choose them at random (RFC 6528).

use std::collections::HashMap;

use super::{Direction, Ends, Isns, join::HostTrace, room::Room};

/// How a host sees one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct View {
    host: u32,
    namespace: u32,
    ends: Ends,
}

/// One direction of a connection, as its sender and its receiver see it.
#[derive(Debug, Clone, Copy, Default)]
struct Connection {
    /// The host that reported it first.
    host: u32,
    tx: Option<View>,
    rx: Option<View>,
    /// Two hosts say that they send it, or that they receive it: nobody knows which of them belong together.
    is_contested: bool,
}

/// What is known about the connection of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its hosts see the same addresses, or one of them has not reported it, or not by numbers.
    ByAddress,
    /// Its hosts see different addresses: these.
    Translated { isns: Isns, tx: Ends, rx: Ends },
    /// More than two hosts report its numbers, so that they say nothing.
    Contested,
    /// There is no room for it, so that nothing is known.
    Omitted,
}

/// Connections that hosts have reported lately, in a limited number.
#[derive(Debug)]
pub(super) struct Connections {
    /// Those that were reported since the last turn, and those of the time before it.
    young: HashMap<Isns, Connection>,
    old: HashMap<Isns, Connection>,
    room: Room,
    old_hosts: usize,
    limit: usize,
}

impl Connections {
    /// Creates a list for twice as many connections as `limit`, at about 150 bytes of memory each.
    pub(super) fn new(limit: usize) -> Connections {
        Connections { young: HashMap::new(), old: HashMap::new(), room: Room::new(limit), old_hosts: 0, limit }
    }

    /// Notes which host reports a trace, and returns what is known about its connection.
    pub(super) fn note(&mut self, HostTrace { host, trace, .. }: &HostTrace) -> Known {
        let Some(isns) = trace.isns else {
            return Known::ByAddress;
        };
        if !self.young.contains_key(&isns) {
            let parts = self.room.hosts().max(self.old_hosts);
            let connection = self.old.remove(&isns).unwrap_or(Connection { host: *host, ..Connection::default() });
            // Those of before have no more right to a place: who repeats them after new ones would have both.
            if !self.room.has_room(connection.host, parts) {
                return Known::Omitted;
            }
            self.room.take(connection.host);
            self.young.insert(isns, connection);
        }
        let connection = self.young.get_mut(&isns).expect("it was just inserted");
        let view = View { host: *host, namespace: trace.namespace, ends: trace.ends };
        let own = match trace.direction {
            Direction::Tx => &mut connection.tx,
            Direction::Rx => &mut connection.rx,
        };
        connection.is_contested |= *own.get_or_insert(view) != view;
        match (connection.tx, connection.rx) {
            _ if connection.is_contested => Known::Contested,
            (Some(View { ends: tx, .. }), Some(View { ends: rx, .. })) if tx != rx => {
                Known::Translated { isns, tx, rx }
            }
            _ => Known::ByAddress,
        }
    }

    /// Forgets the connections that were not reported since the turn before.
    pub(super) fn turn(&mut self) {
        self.old_hosts = self.room.hosts();
        self.room = Room::new(self.limit);
        self.old = std::mem::take(&mut self.young);
    }
}
