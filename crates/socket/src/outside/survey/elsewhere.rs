//! What this host has of a target of which a survey has found no connection.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use dwell_engine::layers::Ends;

use super::{
    super::{Error, diag::Diag, namespace, processes::Processes},
    MAX_NAMESPACES, Selection,
};
use crate::names::own_addresses;

/// A listener at the port of a target, and connections of it in another network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// Whether a program listens at the port of the target.
    pub is_listening: bool,
    /// The process of that, if it may be known.
    pub listener: Option<u32>,
    /// The other network namespace that has most connections of the target, or a listener at its port.
    pub namespace: Option<OtherNamespace>,
}

/// A network namespace that is not that of dwell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherNamespace {
    /// A process in it.
    pub pid: u32,
    /// The connections of the target there.
    pub connections: u64,
}

impl Selection {
    /// Looks for a listener, and into other network namespaces as far as that is allowed. Finds nothing for a target of processes,
    /// which is looked at where they are.
    pub fn elsewhere(&self) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        if self.is_of_processes() {
            return elsewhere;
        }
        let mut processes = Processes::of_all();
        if let Ok((_, Some(inode))) = self.count() {
            elsewhere.is_listening = true;
            elsewhere.listener = processes.sockets().get(&inode).map(|owner| owner.pid);
        }
        processes.refresh();
        let mut seen: BTreeSet<u64> = namespace::number_of("thread-self").into_iter().collect();
        for pid in processes.known() {
            let is_new = namespace::number_of(&pid.to_string()).is_ok_and(|number| seen.insert(number));
            if !is_new || seen.len() > MAX_NAMESPACES {
                continue;
            }
            let Ok((connections, listener)) = namespace::enter(pid, || self.count()) else {
                continue;
            };
            let is_more = elsewhere.namespace.is_none_or(|most| connections > most.connections);
            if is_more && (connections > 0 || listener.is_some()) {
                elsewhere.namespace = Some(OtherNamespace { pid, connections });
            }
        }
        elsewhere
    }

    /// Counts connections of the target in the network namespace of the calling thread, and finds the inode of a listener.
    fn count(&self) -> Result<(u64, Option<u32>), Error> {
        let (mut diag, mut connections, mut listener) = (Diag::open()?, 0, None);
        let own = own_addresses();
        diag.dump_listening(&mut |_, report| {
            if self.may_be_served_at(&report.key.ends(), &own) {
                listener = Some(report.inode);
            }
        })?;
        diag.dump_connected_and_opening(&mut |_, report| connections += u64::from(self.matches(&report.key.ends())))?;
        Ok((connections, listener))
    }

    /// Whether connections of the target may be to this listener. One at all addresses serves `own` ones, and says nothing of
    /// another host.
    fn may_be_served_at(&self, listener: &Ends, own: &HashSet<IpAddr>) -> bool {
        let Selection::Ends { addresses, port: Some(port) } = self else {
            return false;
        };
        let is_here =
            addresses.is_empty() || addresses.iter().any(|address| address.is_loopback() || own.contains(address));
        listener.src.port == *port && (is_here || addresses.contains(&listener.src.address))
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::measure::Endpoint;

    use super::*;

    #[test]
    fn a_listener_at_all_addresses_serves_those_of_this_host_alone() {
        let at = |address: &str| Selection::Ends { addresses: vec![address.parse().unwrap()], port: Some(443) };
        let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
        let listener = |address| Ends { src: end(address, 443), dst: end("0.0.0.0", 0) };
        let own: HashSet<IpAddr> = ["10.0.0.5".parse().unwrap()].into();
        let is_served = |target, listening| at(target).may_be_served_at(&listener(listening), &own);
        assert!(is_served("10.0.0.5", "0.0.0.0") && is_served("127.0.0.1", "0.0.0.0"));
        assert!(is_served("10.0.0.6", "10.0.0.6") && !is_served("10.0.0.6", "0.0.0.0"));
    }
}
