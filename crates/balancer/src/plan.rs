//! From what runs and what is wanted to what has to change: pure, all or nothing.
//!
//! A VIP keeps its number as long as its address, protocol and port stay; a backend as long as its VIP,
//! its address and how packets go to it stay. What is no longer wanted *leaves*: no new connection
//! goes there, those that are there stay, and only when none is left is the number free again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dwell_engine::steer::zero_rtt::MOST_SERVERS;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Forward, Limits, Vip, VipKey};

/// What runs: what the kernel's maps have numbers for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// By number, from 1.
    pub vips: BTreeMap<u32, VipKey>,
    /// By number, from 1. With those that are leaving.
    pub reals: BTreeMap<u32, Real>,
    /// VIPs that go by connection ID, by slot, from 1.
    #[serde(default)]
    pub zero_slots: BTreeMap<u32, VipKey>,
}

impl State {
    /// The slot of a VIP, if it goes by connection ID.
    pub fn zero_slot(&self, key: &VipKey) -> Option<u16> {
        let mut slots = self.zero_slots.iter();
        let (slot, _) = slots.find(|(_, other)| *other == key)?;
        (*slot).try_into().ok()
    }
}

/// A backend of a VIP that has a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Real {
    /// Whose it is, or was.
    pub vip: Option<VipKey>,
    /// By which it is told.
    pub name: String,
    /// Where its packets go.
    pub address: IpAddr,
    /// How.
    pub forward: Forward,
    /// Whether new connections may go there.
    pub phase: Phase,
    /// By which connection IDs name it, if they do.
    #[serde(default)]
    pub server_id: Option<u64>,
}

/// Whether new connections may go to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// They may.
    Serving,
    /// An operator said that they may not, and it stays.
    Draining,
    /// It is no longer wanted, and goes with its last connection.
    Leaving,
}

/// What has to change, in the order in which it may: nobody refers to what is not there yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What runs afterwards.
    pub next: State,
    /// The number of each VIP that is wanted, and of its backends, in their order.
    pub numbers: Vec<(u32, Vec<u32>)>,
    /// Backends to tell of first.
    pub new_reals: Vec<u32>,
    /// VIPs that begin.
    pub new_vips: Vec<u32>,
    /// VIPs that go on, some of them with other backends.
    pub kept_vips: Vec<u32>,
    /// VIPs that end, last.
    pub gone_vips: Vec<(u32, VipKey)>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too many.
    #[error(
        "there is no room for {needed} {what}{}, only for {limit}: raise limits.{key} and start anew",
        leaving_words(*.leaving)
    )]
    NoRoom {
        /// What there is no room for.
        what: &'static str,
        /// Its key in the configuration.
        key: &'static str,
        /// How many there would be.
        needed: usize,
        /// How many of them only wait for their last connections.
        leaving: usize,
        /// How many there may be.
        limit: u32,
    },
    /// More servers than connection IDs of one VIP are looked up among.
    #[error(
        "{vip} would have {needed} servers with connection IDs, and can have {MOST_SERVERS}, with those that \
         leave: take some away, or give them to another VIP"
    )]
    ManyServers {
        /// The VIP.
        vip: VipKey,
        /// How many there would be.
        needed: usize,
    },
    /// Connections of one backend would go to another.
    #[error(
        "vip.backend.server_id: {id} of backend '{backend}' is still that of '{former}' ({address}), which leaves \
         {vip}: connections there are known by it; write another, or leave '{backend}' out until '{former}' has \
         left (`dwell lb status` tells)"
    )]
    ServerIdTaken {
        /// Which ID.
        id: u64,
        /// Who is to have it.
        backend: String,
        /// Whose it is.
        former: String,
        /// The address of that one.
        address: IpAddr,
        /// The VIP of both.
        vip: VipKey,
    },
}

fn leaving_words(leaving: usize) -> String {
    match leaving {
        0 => String::new(),
        some => format!(" ({some} of them leaving: they wait for their last connections)"),
    }
}

/// What has to change so that these VIPs run.
///
/// # Errors
///
/// If there is no room, or a server ID is not free yet; then nothing is to change.
pub fn plan(state: &State, wanted: &[Vip], limits: Limits) -> Result<Plan, PlanError> {
    let mut plan = Plan {
        next: state.clone(),
        ..Plan::default()
    };
    let keys: BTreeSet<VipKey> = wanted.iter().map(|vip| vip.key).collect();
    let is_wanted = |key: &VipKey| keys.contains(key);
    plan.gone_vips = state
        .vips
        .iter()
        .filter(|(_, key)| !is_wanted(key))
        .map(|(number, key)| (*number, *key))
        .collect();
    for (number, _) in &plan.gone_vips {
        plan.next.vips.remove(number);
    }
    let numbers: BTreeMap<VipKey, u32> = state.vips.iter().map(|(n, key)| (*key, *n)).collect();
    // Numbers of VIPs that end are not given out again at once: packets may be on their way.
    let mut free_vips = Free::new(state.vips.keys().copied());
    for vip in wanted {
        match numbers.get(&vip.key) {
            Some(number) => {
                plan.kept_vips.push(*number);
                plan.numbers.push((*number, Vec::new()));
            }
            None => {
                let number = free_vips.take();
                plan.next.vips.insert(number, vip.key);
                plan.new_vips.push(number);
                plan.numbers.push((number, Vec::new()));
            }
        }
    }
    reals(state, wanted, &mut plan);
    slots(state, wanted, &mut plan);
    server_ids(state, wanted, &plan)?;
    room(state, &plan, limits)?;
    Ok(plan)
}

/// What tells a backend from all others.
type Identity = (Option<VipKey>, IpAddr, Forward);

fn reals(state: &State, wanted: &[Vip], plan: &mut Plan) {
    let mut there: BTreeMap<Identity, u32> = BTreeMap::new();
    for (number, real) in &state.reals {
        there.insert((real.vip, real.address, real.forward), *number);
    }
    let mut stay: Vec<u32> = Vec::new();
    let mut free = Free::new(state.reals.keys().copied());
    for (vip, (_, numbers)) in wanted.iter().zip(&mut plan.numbers) {
        for backend in &vip.backends {
            let identity = (Some(vip.key), backend.address, vip.forward);
            let real = |phase| Real {
                vip: Some(vip.key),
                name: backend.name.clone(),
                address: backend.address,
                forward: vip.forward,
                phase,
                server_id: backend.server_id,
            };
            match there.get(&identity) {
                Some(number) => {
                    let was = state.reals.get(number).map(|real| real.phase);
                    let phase = match was {
                        Some(Phase::Draining) => Phase::Draining,
                        _ => Phase::Serving,
                    };
                    stay.push(*number);
                    numbers.push(*number);
                    plan.next.reals.insert(*number, real(phase));
                }
                None => {
                    let number = free.take();
                    stay.push(number);
                    numbers.push(number);
                    plan.next.reals.insert(number, real(Phase::Serving));
                    plan.new_reals.push(number);
                }
            }
        }
    }
    stay.sort_unstable();
    for (number, real) in &mut plan.next.reals {
        if stay.binary_search(number).is_err() {
            real.phase = Phase::Leaving;
        }
    }
}

/// Slots that end are not given out again at once: packets may be on their way.
fn slots(state: &State, wanted: &[Vip], plan: &mut Plan) {
    let mut free = Free::new(state.zero_slots.keys().copied());
    plan.next.zero_slots.clear();
    for vip in wanted.iter().filter(|vip| vip.zero_rtt.is_some()) {
        let slot = state.zero_slot(&vip.key).map(u32::from);
        let slot = slot.unwrap_or_else(|| free.take());
        plan.next.zero_slots.insert(slot, vip.key);
    }
}

/// A server ID that one takes over who is reached elsewhere takes along the connections of the one before,
/// to whom they are unknown.
fn server_ids(state: &State, wanted: &[Vip], plan: &Plan) -> Result<(), PlanError> {
    let by_id = wanted.iter().zip(&plan.numbers);
    for (vip, (_, numbers)) in by_id.filter(|(vip, _)| vip.zero_rtt.is_some()) {
        let leaving: BTreeMap<u64, &Real> = of_vip_by_id(&plan.next, vip.key)
            .filter(|(_, real)| real.phase == Phase::Leaving)
            .collect();
        for (backend, number) in vip.backends.iter().zip(numbers) {
            let had = state.reals.get(number).and_then(|real| real.server_id);
            let taken = backend.server_id.filter(|id| had != Some(*id));
            let former = taken.and_then(|id| Some((id, *leaving.get(&id)?)));
            if let Some((id, former)) = former.filter(|(_, real)| real.address != backend.address) {
                return Err(PlanError::ServerIdTaken {
                    id,
                    backend: backend.name.clone(),
                    former: former.name.clone(),
                    address: former.address,
                    vip: vip.key,
                });
            }
        }
    }
    Ok(())
}

/// The backends of a VIP that connection IDs name, with those that leave.
pub(crate) fn of_vip_by_id(state: &State, vip: VipKey) -> impl Iterator<Item = (u64, &Real)> {
    let reals = state
        .reals
        .values()
        .filter(move |real| real.vip == Some(vip));
    reals.filter_map(|real| Some((real.server_id?, real)))
}

fn room(state: &State, plan: &Plan, limits: Limits) -> Result<(), PlanError> {
    let is_leaving = |real: &&Real| real.phase == Phase::Leaving;
    let leaving = plan.next.reals.values().filter(is_leaving).count();
    let highest = |number: Option<&u32>| number.copied().unwrap_or(0);
    let (mut servers, mut servers_leaving) = (0, 0);
    // Those of slots that end have their room until all has been given to the kernel.
    let slots: BTreeMap<u32, VipKey> = [&state.zero_slots, &plan.next.zero_slots]
        .into_iter()
        .flat_map(|slots| slots.iter().map(|(slot, key)| (*slot, *key)))
        .collect();
    for vip in slots.into_values() {
        // Who is reached otherwise than before takes over the place.
        let serving = of_vip_by_id(&plan.next, vip).filter(|(_, real)| !is_leaving(real));
        let serving: BTreeSet<u64> = serving.map(|(id, _)| id).collect();
        let all: BTreeSet<u64> = of_vip_by_id(&plan.next, vip).map(|(id, _)| id).collect();
        if all.len() > MOST_SERVERS {
            let needed = all.len();
            return Err(PlanError::ManyServers { vip, needed });
        }
        servers += all.len();
        servers_leaving += all.len() - serving.len();
    }
    let most = [
        (
            "VIPs",
            "vips",
            plan.next.vips.len(),
            0,
            highest(plan.next.vips.keys().last()),
            limits.vips,
        ),
        (
            "backends",
            "reals",
            plan.next.reals.len(),
            leaving,
            highest(plan.next.reals.keys().last()),
            limits.reals,
        ),
        (
            "VIPs with the policy zero-rtt",
            "zero_rtt_vips",
            plan.next.zero_slots.len(),
            0,
            highest(plan.next.zero_slots.keys().last()),
            limits.zero_rtt_vips.into(),
        ),
        (
            "backends of VIPs with the policy zero-rtt",
            "zero_rtt_servers",
            servers,
            servers_leaving,
            u32::try_from(servers).unwrap_or(u32::MAX),
            limits.zero_rtt_servers,
        ),
    ];
    for (what, key, needed, leaving, highest, limit) in most {
        if highest > limit {
            let needed = needed.max(highest as usize);
            return Err(PlanError::NoRoom {
                what,
                key,
                needed,
                leaving,
                limit,
            });
        }
    }
    Ok(())
}

/// The least numbers that nobody has.
struct Free {
    taken: Vec<u32>,
    next: u32,
}

impl Free {
    fn new(taken: impl Iterator<Item = u32>) -> Free {
        let mut taken: Vec<u32> = taken.collect();
        taken.sort_unstable();
        Free { taken, next: 1 }
    }

    fn take(&mut self) -> u32 {
        while self.taken.binary_search(&self.next).is_ok() {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }
}

/// What differs between two configurations, a line each, in words.
pub fn difference(old: &[Vip], new: &[Vip]) -> Vec<String> {
    let mut words = Vec::new();
    for vip in old {
        if !new.iter().any(|other| other.key == vip.key) {
            words.push(format!(
                "VIP '{}' ({}) ends, with its {}; connections stay until they end",
                vip.name,
                vip.key,
                backends(vip.backends.len())
            ));
        }
    }
    for vip in new {
        match old.iter().find(|other| other.key == vip.key) {
            None => words.push(format!(
                "VIP '{}' ({}) begins: {}, policy {}, by {}",
                vip.name,
                vip.key,
                backends(vip.backends.len()),
                vip.policy,
                vip.forward
            )),
            Some(old) => of_vip(old, vip, &mut words),
        }
    }
    words
}

fn backends(count: usize) -> String {
    match count {
        1 => "1 backend".into(),
        count => format!("{count} backends"),
    }
}

fn of_vip(old: &Vip, new: &Vip, words: &mut Vec<String>) {
    let mut say = |text: String| words.push(format!("VIP '{}': {text}", new.name));
    if old.name != new.name {
        say(format!("was named '{}'", old.name));
    }
    if old.policy != new.policy {
        say(format!("policy {} becomes {}", old.policy, new.policy));
    }
    if old.forward != new.forward {
        say(format!(
            "packets go by {}, no longer by {}; open connections stay as they are",
            new.forward, old.forward
        ));
    }
    if old.table_size != new.table_size {
        say(format!(
            "table of {}, not {}",
            new.table_size, old.table_size
        ));
    }
    let flags = |vip: &Vip| (vip.by_source, vip.quic, vip.measure);
    if flags(old) != flags(new) {
        let hash = if new.by_source {
            "source"
        } else {
            "connection"
        };
        say(format!(
            "hash = {hash}, quic = {}, measure = {}",
            new.quic, new.measure
        ));
    }
    if old.latency != new.latency {
        say("other constants of latency".into());
    }
    if old.zero_rtt != new.zero_rtt {
        say("other keys or constants of zero-rtt".into());
    }
    if old.check != new.check {
        say(match &new.check {
            None => "health is no longer checked".into(),
            Some(check) => format!(
                "health is checked by {} each {:?}",
                check.kind, check.interval
            ),
        });
    }
    for backend in &old.backends {
        if !new
            .backends
            .iter()
            .any(|other| other.address == backend.address)
        {
            say(format!(
                "backend '{}' ({}) leaves; its connections stay until they end",
                backend.name, backend.address
            ));
        }
    }
    for backend in &new.backends {
        let name = &backend.name;
        match old
            .backends
            .iter()
            .find(|other| other.address == backend.address)
        {
            None => say(format!(
                "backend '{name}' ({}) joins with weight {}",
                backend.address, backend.weight
            )),
            Some(was) => {
                if was.name != *name {
                    say(format!("backend '{}' is named '{name}'", was.name));
                }
                if was.server_id != backend.server_id {
                    say(format!(
                        "backend '{name}' has another server_id: connection IDs with the old one lead nowhere"
                    ));
                }
                if was.weight != backend.weight {
                    say(format!(
                        "backend '{name}' has weight {}, not {}",
                        backend.weight, was.weight
                    ));
                }
            }
        }
    }
}

/// Keys that differ and cannot change while it runs.
pub fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let differ = [
        ("interface", old.interface != new.interface),
        ("interval", old.interval != new.interval),
        ("idle_timeout", old.idle_timeout != new.idle_timeout),
        ("active_timeout", old.active_timeout != new.active_timeout),
        ("hash_seed", old.hash_seed != new.hash_seed),
        ("pin", old.pin != new.pin),
        ("chain", old.chain != new.chain),
        ("limits", old.limits != new.limits),
        ("tunnel", old.tunnel != new.tunnel),
        ("api.socket", old.socket != new.socket),
        ("metrics.listen", old.metrics != new.metrics),
        (
            "health.threads",
            old.checking.threads != new.checking.threads,
        ),
    ];
    differ
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| key)
        .collect()
}
