//! Names for people, of what a verdict is about.

use std::{collections::BTreeMap, net::IpAddr};

use super::Shared;
use crate::names::EndNames;

/// Names of the processes and the peers of a target, as far as they are known. The decision does not look at them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Processes by their ID, with their units.
    pub processes: BTreeMap<u32, EndNames>,
    /// Peers by their address, with their networks.
    pub peers: BTreeMap<IpAddr, EndNames>,
}

impl Names {
    /// Returns the name of a process with its unit, `nginx, nginx.service`, or its pod, `nginx, shop/web-0/nginx`.
    pub fn process(&self, pid: u32) -> Option<String> {
        let EndNames { process, unit, pod, .. } = self.processes.get(&pid)?;
        let pod = pod.as_ref().map(ToString::to_string);
        joined([process.as_deref(), pod.as_deref().or(unit.as_deref())], ", ")
    }

    /// Returns the name of a peer with its network, `db.example AS64496`.
    pub fn peer(&self, address: IpAddr) -> Option<String> {
        let EndNames { host, network, .. } = self.peers.get(&address)?;
        joined([host.as_deref(), network.as_ref().map(ToString::to_string).as_deref()], " ")
    }

    /// Returns the name of what connections have in common.
    pub fn of(&self, shared: &Shared) -> Option<String> {
        match shared {
            Shared::Process(pid) => self.process(*pid),
            Shared::Peer(address) => self.peer(*address),
            Shared::Prefix(..) | Shared::Port(_) => None,
        }
    }
}

fn joined(parts: [Option<&str>; 2], by: &str) -> Option<String> {
    let known: Vec<&str> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(by))
}
