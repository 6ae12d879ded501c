//! What a control process leaves for the next one: which number is whose. The kernel's maps know
//! numbers and addresses; names, drains and weights are here, beside the socket.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use dwell_probes::{Error, balancer::Plane};
use serde::{Deserialize, Serialize};

use super::vip::scaled;
use crate::{
    config::{Limits, PolicyName, Vip, VipKey},
    plan::{Phase, Plan, Real, State},
};

/// As it is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub state: State,
    /// By the number of the backend.
    #[serde(default)]
    pub weighed: BTreeMap<u32, Weighed>,
}

/// The weight of a backend, and what it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Weighed {
    pub weight: f64,
    /// What it was configured, by the file or an operator since.
    pub configured: f64,
    /// What the file said; none if it did not name the backend.
    pub written: Option<f64>,
    pub policy: PolicyName,
}

/// Beside the socket: each has its own, whatever its name.
pub(super) fn path(socket: &Path) -> PathBuf {
    with(socket, ".state")
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(end);
    whole.into()
}

/// What was saved. If that is lost, backends get new numbers, and the old ones leave.
pub(super) fn read(socket: &Path) -> Saved {
    let text = fs::read(path(socket)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Saves it, whole or not at all, for its owner's eyes.
pub(super) fn write(socket: &Path, saved: &Saved) -> io::Result<()> {
    let path = path(socket);
    let beside = with(&path, ".new");
    // One that was left there may be open to others.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec(saved)?)?;
    fs::rename(beside, path)
}

impl Saved {
    /// The weights to begin with, by number. What an operator configured stays `wanted` where the file
    /// says what it said then; where it was edited, the edit holds.
    pub(super) fn carry(&self, wanted: &mut [Vip], planned: &Plan) -> BTreeMap<u32, f64> {
        let mut weights = BTreeMap::new();
        for (vip, (_, reals)) in wanted.iter_mut().zip(&planned.numbers) {
            for (backend, real) in vip.backends.iter_mut().zip(reals) {
                let same = self.weighed.get(real);
                let Some(was) = same.filter(|was| was.policy == vip.policy) else {
                    continue;
                };
                if was.written == Some(backend.weight) {
                    backend.weight = was.configured;
                }
                let weight = scaled(was.weight, was.configured, backend.weight);
                weights.insert(*real, weight);
            }
        }
        weights
    }

    /// As far as the kernel agrees. Whoever only the kernel knows leaves; who connection IDs name is known
    /// by them.
    pub(super) fn matching(mut self, plane: &mut Plane, limits: Limits) -> Result<Saved, Error> {
        let slots: BTreeMap<u16, VipKey> = plane
            .vips()
            .filter_map(|(key, vip)| Some((vip.zero_slot?, *key)))
            .filter(|(slot, _)| *slot <= limits.zero_rtt_vips)
            .collect();
        let mut named = BTreeMap::new();
        for (slot, key) in &slots {
            for (number, id) in plane.server_ids(*slot)? {
                named.insert(number, (*key, id));
            }
        }
        let there: BTreeMap<u32, _> = plane.reals().collect();
        self.state.reals.retain(|number, real| {
            there.get(number).is_some_and(|there| there.address == real.address && there.forward == real.forward)
        });
        for (number, real) in there {
            let named = named.get(&number);
            self.state.reals.entry(number).or_insert_with(|| Real {
                vip: named.map(|(key, _)| *key),
                name: real.address.to_string(),
                address: real.address,
                forward: real.forward,
                phase: Phase::Leaving,
                server_id: named.and_then(|(_, id)| id.0.try_into().ok()),
            });
        }
        let slots = slots.into_iter().map(|(slot, key)| (slot.into(), key));
        self.state.zero_slots = slots.collect();
        self.state.vips = plane.vips().map(|(key, vip)| (vip.number, *key)).collect();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn weighed(weight: f64) -> Weighed {
        Weighed { weight, configured: 1.0, written: None, policy: PolicyName::Latency }
    }

    #[test]
    fn each_socket_has_its_own_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("there is room");
        let sockets = ["lb.eth0", "lb.eth1", "lb"].map(|name| folder.path().join(name));
        let of = |weight: f64| Saved { weighed: BTreeMap::from([(1, weighed(weight))]), ..Saved::default() };
        let left = folder.path().join("lb.state.new");
        fs::write(left, "half").expect("there is room");
        for (weight, socket) in (1u8..).zip(&sockets) {
            write(socket, &of(weight.into())).expect("there is room");
        }
        for (weight, socket) in (1u8..).zip(&sockets) {
            assert_eq!(read(socket), of(weight.into()));
            let there = fs::metadata(path(socket)).expect("it is there");
            assert_eq!(there.permissions().mode() & 0o777, 0o600);
        }
        let files = fs::read_dir(folder.path()).expect("it is there");
        assert_eq!(files.count(), 3);
    }
}
