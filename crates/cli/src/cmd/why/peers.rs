//! Names for the verdict: hosts have those of /etc/hosts, of answers of DNS that come in meanwhile, or the one that the user
//! asked about.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use dwell_engine::{
    names::{EndNames, is_host_name},
    observe::Observation,
    why::Evidence,
};
use dwell_socket::names::Names;

use crate::{
    exit::Failure,
    names::{NamesArgs, Tables},
};

/// What is known of names; nothing with `--no-names`.
#[derive(Debug, Default)]
pub struct PeerNames {
    names: Option<Names>,
    tables: Option<Arc<Tables>>,
    asked: BTreeMap<IpAddr, Arc<str>>,
}

impl PeerNames {
    /// Learns from now on from answers of DNS, where that is allowed.
    pub fn live(args: &NamesArgs) -> Result<PeerNames, Failure> {
        PeerNames::new(args, || Names::load(true, false).with_reverse(args.resolve()))
    }

    /// Learns from packets of a capture.
    pub fn of_capture(args: &NamesArgs) -> Result<PeerNames, Failure> {
        args.refuse_to_resolve()?;
        PeerNames::new(args, || Names::of_capture(false))
    }

    fn new(args: &NamesArgs, names: impl FnOnce() -> Names) -> Result<PeerNames, Failure> {
        match args.are_shown() {
            true => Ok(PeerNames { names: Some(names()), tables: args.tables()?, asked: BTreeMap::new() }),
            false => Ok(PeerNames::default()),
        }
    }

    /// The user has named a host that has these addresses.
    pub fn asked_for(&mut self, host: &str, addresses: &[IpAddr]) {
        if host.parse::<IpAddr>().is_err() && is_host_name(host) {
            self.asked.extend(addresses.iter().map(|address| (*address, host.into())));
        }
    }

    /// Reads the answers that have come in.
    pub fn read(&mut self) {
        if let Some(names) = &mut self.names {
            names.begin_interval();
        }
    }

    /// Has the names of these peers looked up, if the user asks for that: they are there by the end.
    pub fn resolve(&self, peers: impl IntoIterator<Item = IpAddr>) {
        if let Some(names) = self.names.as_ref().filter(|names| names.resolves()) {
            let is_unnamed = |peer: &IpAddr| !self.asked.contains_key(peer);
            let peers: BTreeSet<IpAddr> = peers.into_iter().filter(is_unnamed).collect();
            for peer in peers {
                names.host(peer);
            }
        }
    }

    /// Learns from a packet of a capture.
    pub fn observe(&mut self, packet: &Observation<'_>) {
        if let Some(names) = &mut self.names {
            names.observe(packet);
        }
    }

    /// Adds the names of the peers, or leaves all names out.
    pub fn name(mut self, evidence: &mut Evidence) {
        self.read();
        let Some(names) = &self.names else {
            evidence.known = dwell_engine::why::Names::default();
            return;
        };
        let of_groups = evidence.groups.iter().map(|group| group.key.peer);
        let unopened = evidence.unopened.iter().map(|unopened| unopened.server.address);
        for peer in of_groups.chain(unopened).chain(evidence.target.peer) {
            let host = self.asked.get(&peer).cloned().or_else(|| names.host(peer));
            let network = self.tables.as_ref().and_then(|tables| tables.of(peer));
            if host.is_some() || network.is_some() {
                evidence.known.peers.insert(peer, EndNames { host, network, ..EndNames::default() });
            }
        }
    }
}
