//! What a control process leaves for the next one: which number is whose. The kernel's maps know
//! numbers and addresses; names, drains and weights are here, beside the socket.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use dwell_probes::balancer::Plane;
use serde::{Deserialize, Serialize};

use crate::{
    config::{Forward, VipKey},
    plan::{Phase, Real, State},
};

/// As it is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub state: State,
    /// Weights by the number of the backend.
    pub weights: BTreeMap<u32, f64>,
}

fn path(socket: &Path) -> PathBuf {
    socket.with_extension("state")
}

/// What was saved. If that is lost, backends get new numbers, and the old ones leave.
pub(super) fn read(socket: &Path) -> Saved {
    let text = fs::read(path(socket)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Saves it, whole or not at all.
pub(super) fn write(socket: &Path, saved: &Saved) -> io::Result<()> {
    let path = path(socket);
    let beside = path.with_extension("state.new");
    fs::write(&beside, serde_json::to_vec(saved)?)?;
    fs::rename(beside, path)
}

impl Saved {
    /// As far as the kernel agrees. Whoever only the kernel knows leaves.
    pub(super) fn matching(mut self, plane: &Plane) -> Saved {
        let there: BTreeMap<u32, _> = plane.reals().collect();
        self.state.reals.retain(|number, real| {
            there.get(number).is_some_and(|there| {
                there.address == real.address
                    && forward(there.forward, there.gue_port) == real.forward
            })
        });
        for (number, real) in there {
            self.state.reals.entry(number).or_insert_with(|| Real {
                vip: None,
                name: real.address.to_string(),
                address: real.address,
                forward: forward(real.forward, real.gue_port),
                phase: Phase::Leaving,
            });
        }
        self.state.vips = plane
            .vips()
            .map(|(key, vip)| (vip.number, from_plane(key)))
            .collect();
        self
    }
}

fn forward(forward: dwell_probes::balancer::Forward, gue_port: u16) -> Forward {
    use dwell_probes::balancer::Forward as Theirs;
    match forward {
        Theirs::L2 => Forward::L2,
        Theirs::Ipip => Forward::Ipip,
        Theirs::Gue => Forward::Gue(gue_port),
    }
}

pub(super) fn from_plane(key: &dwell_probes::balancer::VipKey) -> VipKey {
    use dwell_probes::balancer::Proto;
    VipKey {
        address: key.address,
        protocol: match key.proto {
            Proto::Tcp => crate::config::Protocol::Tcp,
            Proto::Udp => crate::config::Protocol::Udp,
        },
        port: key.port,
    }
}
