//! The state that a process saves for the next one. The kernel's maps know numbers and addresses; names, drains and
//! weights are saved in a file next to the socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use dwell_engine::balance::VipKey;
use dwell_probes::{Error, balancer::Plane};
use serde::{Deserialize, Serialize};

use super::backend::scaled;
use crate::{
    config::{Limits, PolicyName, Vip},
    plan::{NumberedBackend, Phase, Plan, State},
    shared::set::WeightSet,
};

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedState {
    /// The folder where the data plane is pinned.
    #[serde(default)]
    pub pin: Option<PathBuf>,
    /// The seed of connection hashes that was drawn, which stays the same as long as there is this file.
    #[serde(default)]
    pub hash_seed: Option<u64>,
    pub state: State,
    /// The weights by the number of the backend.
    #[serde(default, rename = "weighed")]
    pub weights: BTreeMap<u32, SavedWeight>,
    /// The numbers of backends that waited for their first check. The kernel does not know that they get nothing yet.
    #[serde(default)]
    pub pending: BTreeSet<u32>,
    /// The set of weights that balancers have agreed on.
    #[serde(default)]
    pub set: Option<WeightSet>,
}

/// The weight of a backend, and where it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedWeight {
    pub weight: f64,
    /// The configured weight, from the file or from an operator's later request.
    pub configured: f64,
    /// The weight in the configuration file; none if the file did not have the backend.
    #[serde(rename = "written")]
    pub in_file: Option<f64>,
    pub policy: PolicyName,
}

/// Returns the path of the state, next to the socket. Each socket has a file of its own.
pub(super) fn path(socket: &Path) -> PathBuf {
    with_suffix(socket, ".state")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(suffix);
    whole.into()
}

/// A saved state that could not be read. Backends get new numbers, the old ones leave, and what operators changed is lost.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub path: PathBuf,
    /// Why it could not be read, and what became of the file.
    pub reason: String,
}

/// Reads the saved state, which is empty if there is none.
///
/// # Errors
///
/// The file cannot be read or is damaged. It is kept under another name, ".bad" added, as the next save replaces it.
pub(super) fn read(socket: &Path) -> Result<SavedState, Unreadable> {
    let path = path(socket);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SavedState::default()),
        read => read.map_err(|error| error.to_string()),
    };
    let parsed = text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    parsed.map_err(|error| {
        let bad = with_suffix(&path, ".bad");
        let fate = match fs::rename(&path, &bad) {
            Ok(()) => format!("kept as {}", bad.display()),
            Err(error) => format!("not kept: {error}"),
        };
        Unreadable { path, reason: format!("{error}; {fate}") }
    })
}

/// Returns the folder where the balancer of a socket has pinned its data plane, if it has left word of it.
pub(super) fn pin(socket: &Path) -> Option<PathBuf> {
    let saved: SavedState = serde_json::from_slice(&fs::read(path(socket)).ok()?).ok()?;
    saved.pin
}

/// Saves the state atomically, readable by its owner alone.
pub(super) fn write(socket: &Path, saved: &SavedState) -> io::Result<()> {
    let path = path(socket);
    let new = with_suffix(&path, ".new");
    // A file left there by another process may be open to others.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(saved)?)?;
    fs::rename(new, path)
}

impl SavedState {
    /// Returns the initial weights by number. A weight that an operator configured is restored into `wanted` if the
    /// file still says what it said then; an edit of the file takes precedence.
    pub(super) fn carry_weights(&self, wanted: &mut [Vip], planned: &Plan) -> BTreeMap<u32, f64> {
        let mut weights = BTreeMap::new();
        for (vip, (_, reals)) in wanted.iter_mut().zip(&planned.numbers) {
            for (backend, real) in vip.backends.iter_mut().zip(reals) {
                let saved = self.weights.get(real);
                let Some(was) = saved.filter(|was| was.policy == vip.policy) else {
                    continue;
                };
                if was.in_file == Some(backend.weight) {
                    backend.weight = was.configured;
                }
                let weight = scaled(was.weight, was.configured, backend.weight);
                weights.insert(*real, weight);
            }
        }
        weights
    }

    /// Keeps what agrees with the kernel's maps. Backends that only the kernel knows are leaving; the server IDs of
    /// those that connection IDs refer to are read from the kernel.
    pub(super) fn reconcile(mut self, plane: &mut Plane, limits: Limits) -> Result<SavedState, Error> {
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
        self.state.reals.retain(|number, backend| {
            let real = plane.real(*number);
            real.is_some_and(|real| (real.address, real.forward) == (backend.address, backend.forward))
        });
        for (number, real) in plane.reals() {
            let named = named.get(&number);
            self.state.reals.entry(number).or_insert_with(|| NumberedBackend {
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

    fn saved(weight: f64) -> SavedWeight {
        SavedWeight { weight, configured: 1.0, in_file: None, policy: PolicyName::Latency }
    }

    #[test]
    fn each_socket_has_a_file_of_its_own_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("there is room");
        let sockets = ["lb.eth0", "lb.eth1", "lb"].map(|name| folder.path().join(name));
        let of = |weight: f64| SavedState { weights: BTreeMap::from([(1, saved(weight))]), ..SavedState::default() };
        let left = folder.path().join("lb.state.new");
        fs::write(left, "half").expect("there is room");
        for (weight, socket) in (1u8..).zip(&sockets) {
            write(socket, &of(weight.into())).expect("there is room");
        }
        for (weight, socket) in (1u8..).zip(&sockets) {
            assert_eq!(read(socket).expect("it is whole"), of(weight.into()));
            let there = fs::metadata(path(socket)).expect("it is there");
            assert_eq!(there.permissions().mode() & 0o777, 0o600);
        }
        let files = fs::read_dir(folder.path()).expect("it is there");
        assert_eq!(files.count(), 3);
    }

    #[test]
    fn a_damaged_file_is_kept_and_told() {
        let folder = tempfile::tempdir().expect("there is room");
        let socket = folder.path().join("lb");
        assert_eq!(read(&socket).expect("there is none"), SavedState::default());
        write(&socket, &SavedState { hash_seed: Some(7), ..SavedState::default() }).expect("there is room");
        let whole = fs::read(path(&socket)).expect("it is there");
        fs::write(path(&socket), &whole[..whole.len() / 2]).expect("there is room");
        let told = read(&socket).expect_err("it is cut");
        assert!(told.reason.contains("kept as"), "{told:?}");
        let kept = fs::read(with_suffix(&path(&socket), ".bad")).expect("it is kept");
        assert_eq!(kept, whole[..whole.len() / 2]);
        assert_eq!(read(&socket).expect("there is none now"), SavedState::default());
    }
}
