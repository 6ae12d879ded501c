//! What balancers share of QUIC servers: the loads that these have reported, and which of their clients are heavy. The
//! connections of one client may come by several balancers, and so may those that tell a server's load.

use std::{collections::BTreeMap, net::IpAddr};

use dwell_engine::{
    measure::Endpoint,
    steer::zero_rtt::{Heavy, HeavyConfig, HeavyHitters},
};
use dwell_probes::balancer::HeavyScope;

use super::super::{Balancer, ControlError, vip::RunningVip};
use crate::shared::{
    quic::{QuicReport, ServerReport, heaviest},
    set::FORMAT,
};

impl Balancer {
    /// Tells the other balancers what is known here, and takes over what they know.
    pub(in crate::control) fn share_quic(&mut self) -> Result<(), ControlError> {
        let Some(sharing) = &self.sharing else { return Ok(()) };
        let others: Vec<_> = sharing.quic.values().cloned().collect();
        let reals = &self.state.reals;
        self.zero.heavy_elsewhere.retain(|real, _| reals.contains_key(real));
        let mut own = QuicReport { format: FORMAT, vips: BTreeMap::new() };
        for at in 0..self.vips.len() {
            let key = self.vips[at].vip.key;
            let Some(slot) = self.state.zero_slot(&key) else { continue };
            let key = key.to_string();
            own.vips.insert(key.clone(), self.known_servers(at, slot)?);
            let others: Vec<_> = others.iter().filter_map(|report| report.vips.get(&key)).collect();
            self.take_servers(at, slot, &others)?;
        }
        if let Some(sharing) = &self.sharing {
            sharing.link.report_quic(own);
        }
        Ok(())
    }

    /// Returns what this balancer knows of the servers of a VIP.
    fn known_servers(&mut self, at: usize, slot: u16) -> Result<BTreeMap<IpAddr, ServerReport>, ControlError> {
        let run = &self.vips[at];
        let tables: BTreeMap<u32, Vec<Heavy>> = match heavy_of(run) {
            Some((_, HeavyScope::Own | HeavyScope::Any)) => self.plane.heavy_tables(slot)?.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        let top = heavy_of(run).map_or(0, |(config, _)| config.top as usize);
        let servers = run.backends.iter().map(|backend| {
            let heavy = tables.get(&backend.real).into_iter().flatten().take(top);
            let heavy = heavy.map(|heavy| (heavy.client.address, heavy.packets)).collect();
            (backend.backend.address, ServerReport { load: self.zero.load_word(backend.real), heavy })
        });
        Ok(servers.collect())
    }

    /// Takes over what the other balancers know of the servers of a VIP.
    fn take_servers(
        &mut self,
        at: usize,
        slot: u16,
        others: &[&BTreeMap<IpAddr, ServerReport>],
    ) -> Result<(), ControlError> {
        let run = &self.vips[at];
        let Some((config, _)) = heavy_of(run) else { return Ok(()) };
        let known = run.backends.iter().map(|backend| {
            let servers: Vec<_> = others.iter().filter_map(|of| of.get(&backend.backend.address)).collect();
            (backend.real, servers)
        });
        let known: Vec<_> = known.collect();
        let stamps = known.iter().flat_map(|(real, servers)| servers.iter().map(|server| (*real, server.stamp())));
        let stamps: Vec<_> = stamps.filter_map(|(real, stamp)| Some((real, stamp?))).collect();
        if !stamps.is_empty() {
            self.plane.take_loads(slot, &stamps)?;
        }
        let (mut tables, mut changed) = (Vec::new(), Vec::new());
        for (real, servers) in known {
            let heaviest = heaviest(&servers);
            let written = self.zero.heavy_elsewhere.get(&real);
            if written.map_or(!heaviest.is_empty(), |written| *written != heaviest) {
                let heavy = heaviest.iter().map(|(address, packets)| Heavy {
                    client: Endpoint { address: *address, port: 0 },
                    packets: *packets,
                });
                let heavy: Vec<Heavy> = heavy.collect();
                // Constants are checked with the configuration.
                let Ok(table) = HeavyHitters::of(&heavy, config) else { continue };
                tables.push((real, table));
                changed.push((real, heaviest));
            }
        }
        if !tables.is_empty() {
            self.plane.set_other_heavies(slot, &tables)?;
            self.zero.heavy_elsewhere.extend(changed);
        }
        Ok(())
    }
}

/// Returns which connections of a VIP's servers are heavy, and where they have to be.
fn heavy_of(run: &RunningVip) -> Option<(HeavyConfig, HeavyScope)> {
    let zero = run.vip.zero_rtt.as_ref()?;
    Some((run.current_heavy(zero.heavy), zero.heavy_scope))
}
