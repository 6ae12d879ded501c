//! What the connections have in common on which most of a time was spent.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Group, Part};

/// From this share of the time on they have something in common.
const MOST: f64 = 0.8;
/// Lengths of the prefixes that are one site.
const PREFIX_V4: u32 = 24;
const PREFIX_V6: u32 = 48;

/// What connections have in common, and their share of the time: the first of peer, port, prefix and process that covers
/// most of it and that not all connections share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// What it is.
    pub what: Shared,
    /// Their share of the time, from 0 to 1.
    pub share: f64,
}

/// A property of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shared {
    /// The other end.
    Peer(IpAddr),
    /// The first bits of the other end's address.
    Prefix(IpAddr, u32),
    /// The port of the server.
    Port(u16),
    /// The process of this host.
    Process(u32),
}

impl Shared {
    /// Returns the kind in output.
    pub fn kind(self) -> &'static str {
        match self {
            Shared::Peer(_) => "peer",
            Shared::Prefix(..) => "prefix",
            Shared::Port(_) => "port",
            Shared::Process(_) => "pid",
        }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shared::Peer(address) => write!(formatter, "{address}"),
            Shared::Prefix(address, bits) => write!(formatter, "{address}/{bits}"),
            Shared::Port(port) => write!(formatter, "{port}"),
            Shared::Process(pid) => write!(formatter, "{pid}"),
        }
    }
}

impl Common {
    /// Returns what the connections have in common on which most of the time of these parts was spent. `None` if there is
    /// nothing that tells them from the others.
    pub(super) fn of(groups: &[Group], parts: &[Part]) -> Option<Common> {
        let total: f64 = groups.iter().map(|group| group.times.sum(parts)).sum();
        let kinds: [fn(&Group) -> Option<Shared>; 4] = [
            |group| Some(Shared::Peer(group.key.peer)),
            |group| Some(Shared::Port(group.key.port)),
            |group| Some(prefix(group.key.peer)),
            |group| group.key.pid.map(Shared::Process),
        ];
        kinds.into_iter().find_map(|kind| {
            let mut times = BTreeMap::new();
            for group in groups {
                *times.entry(kind(group)).or_insert(0.0) += group.times.sum(parts);
            }
            let (what, most) = times.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
            let tells_apart = times.len() > 1 && *most > 0.0 && *most >= MOST * total;
            Some(Common { what: (*what)?, share: most / total }).filter(|_| tells_apart)
        })
    }
}

/// The site of an address.
fn prefix(address: IpAddr) -> Shared {
    match address {
        IpAddr::V4(address) => {
            let bits = u32::from(address) & (u32::MAX << (32 - PREFIX_V4));
            Shared::Prefix(Ipv4Addr::from(bits).into(), PREFIX_V4)
        }
        IpAddr::V6(address) => {
            let bits = u128::from(address) & (u128::MAX << (128 - PREFIX_V6));
            Shared::Prefix(Ipv6Addr::from(bits).into(), PREFIX_V6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ByLength, CountKind, Key, Role, Times},
        *,
    };

    fn group(peer: &str, port: u16, pid: u32, waited_ns: f64) -> Group {
        let key = Key { peer: peer.parse().unwrap(), port, role: Role::Client, pid: Some(pid), seen_from: None };
        let mut times = Times::default();
        times.add(Part::Answer, waited_ns);
        let (counted, answers) = (CountKind::Whole, ByLength::default());
        Group { key, counted, connections: 1, brief: 0, refused: 0, times, answers, answered_polls: 0 }
    }

    fn common(groups: &[Group]) -> Option<Shared> {
        Common::of(groups, &[Part::Answer]).map(|common| common.what)
    }

    #[test]
    fn the_first_that_covers_most_is_reported() {
        let slow = group("10.0.0.3", 80, 1, 90.0);
        assert_eq!(common(&[slow, group("10.0.0.4", 80, 1, 5.0)]), Some(Shared::Peer(slow.key.peer)));
        let site = [group("10.0.0.3", 80, 1, 45.0), group("10.0.0.4", 80, 1, 45.0), group("10.0.9.4", 80, 1, 5.0)];
        assert_eq!(common(&site).map(|it| it.to_string()).as_deref(), Some("10.0.0.0/24"));
        let port = [group("10.0.0.3", 80, 1, 45.0), group("10.9.0.4", 80, 1, 45.0), group("10.0.0.3", 81, 1, 5.0)];
        assert_eq!(common(&port), Some(Shared::Port(80)));
        let pid = [group("10.0.0.3", 80, 7, 45.0), group("10.9.0.4", 80, 7, 45.0), group("10.5.0.3", 80, 1, 5.0)];
        assert_eq!(common(&pid), Some(Shared::Process(7)));
    }

    #[test]
    fn what_all_share_and_what_nobody_waited_for_tells_nothing() {
        assert_eq!(common(&[]), None);
        assert_eq!(common(&[group("10.0.0.3", 80, 1, 90.0)]), None);
        assert_eq!(common(&[group("10.0.0.3", 80, 1, 0.0), group("10.9.0.4", 81, 2, 0.0)]), None);
        let even = [("10.0.0.3", 1), ("10.9.0.4", 2), ("10.8.0.4", 3)].map(|(peer, pid)| group(peer, 80, pid, 30.0));
        assert_eq!(common(&even), None);
    }
}
