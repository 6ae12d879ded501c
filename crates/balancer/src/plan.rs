//! From what runs and what is wanted to what has to change: pure, all or nothing.
//!
//! A VIP keeps its number as long as its address, protocol and port stay; a backend as long as its VIP,
//! its address and how packets go to it stay. What is no longer wanted *leaves*: no new connection
//! goes there, those that are there stay, and only when none is left is the number free again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

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
        "there is no room for {needed} {what}{}, only for {limit}: {}raise limits.{key} and start anew",
        not_wanted(*.leaving, *.ending), remedy(*.ending)
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
        /// How many of them end, and have their room until all that is new has its own.
        ending: usize,
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
    /// Connections of a backend would go nowhere, and later perhaps to another.
    #[error(
        "vip.backend.server_id: backend '{backend}' of {vip} has {had}, and is to have {id}: its connections are \
         known by {had}; write that again, or leave '{backend}' out until it has left (`dwell lb status` tells)"
    )]
    ServerIdChanged {
        /// Which ID it is to have.
        id: u64,
        /// Which it has.
        had: u64,
        /// Whose.
        backend: String,
        /// Its VIP.
        vip: VipKey,
    },
}

fn not_wanted(leaving: usize, ending: usize) -> String {
    let words = |count: usize, words: &str| match count {
        0 => String::new(),
        some => format!(" ({some} of them {words})"),
    };
    let leaving = words(leaving, "leaving: they wait for their last connections");
    leaving + &words(ending, "ending: their room is free afterwards")
}

fn remedy(ending: usize) -> &'static str {
    match ending {
        0 => "",
        _ => "reload without what is new first, or ",
    }
}

/// What has to change so that these VIPs run.
///
/// # Errors
///
/// If there is no room, or a server ID is not free yet, or a backend is to have another; then nothing is to change.
pub fn plan(state: &State, wanted: &[Vip], limits: Limits) -> Result<Plan, PlanError> {
    let mut plan = Plan { next: state.clone(), ..Plan::default() };
    let keys: BTreeSet<VipKey> = wanted.iter().map(|vip| vip.key).collect();
    let is_wanted = |key: &VipKey| keys.contains(key);
    plan.gone_vips =
        state.vips.iter().filter(|(_, key)| !is_wanted(key)).map(|(number, key)| (*number, *key)).collect();
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
/// to whom they are unknown. So one that stays keeps its own.
fn server_ids(state: &State, wanted: &[Vip], plan: &Plan) -> Result<(), PlanError> {
    let by_id = wanted.iter().zip(&plan.numbers);
    for (vip, (_, numbers)) in by_id.filter(|(vip, _)| vip.zero_rtt.is_some()) {
        let leaving: BTreeMap<u64, &Real> =
            of_vip_by_id(&plan.next, vip.key).filter(|(_, real)| is_leaving(real)).collect();
        let is_known = state.zero_slot(&vip.key).is_some();
        for (backend, number) in vip.backends.iter().zip(numbers) {
            let had = state.reals.get(number).and_then(|real| real.server_id);
            let Some(id) = backend.server_id.filter(|id| had != Some(*id)) else {
                continue;
            };
            if let Some(had) = had.filter(|_| is_known) {
                return Err(PlanError::ServerIdChanged { id, had, backend: backend.name.clone(), vip: vip.key });
            }
            let former = leaving.get(&id).copied();
            if let Some(former) = former.filter(|real| real.address != backend.address) {
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
fn of_vip_by_id(state: &State, vip: VipKey) -> impl Iterator<Item = (u64, &Real)> {
    let reals = state.reals.values().filter(move |real| real.vip == Some(vip));
    reals.filter_map(|real| Some((real.server_id?, real)))
}

fn room(state: &State, plan: &Plan, limits: Limits) -> Result<(), PlanError> {
    let next = &plan.next;
    let leaving = next.reals.values().filter(|real| is_leaving(real)).count();
    let is_there = |slot: &&u32| next.zero_slots.contains_key(slot);
    let slots_ending = state.zero_slots.keys().filter(|slot| !is_there(slot));
    let servers = servers(state, next)?;
    let highest = |number: Option<&u32>| number.map_or(0, |number| *number as usize);
    // All that there will be, those of them that leave, and what ends beside them.
    let most = [
        (("VIPs", "vips", limits.vips), [next.vips.len(), 0, plan.gone_vips.len()], highest(next.vips.keys().last())),
        (("backends", "reals", limits.reals), [next.reals.len(), leaving, 0], highest(next.reals.keys().last())),
        (
            ("VIPs with the policy zero-rtt", "zero_rtt_vips", limits.zero_rtt_vips.into()),
            [next.zero_slots.len(), 0, slots_ending.count()],
            highest(next.zero_slots.keys().last()),
        ),
        (
            ("backends of VIPs with the policy zero-rtt", "zero_rtt_servers", limits.zero_rtt_servers),
            servers,
            servers[0] + servers[2],
        ),
    ];
    for ((what, key, limit), [all, leaving, ending], highest) in most {
        if highest > limit as usize {
            // Where all is too much, it does not help that something ends.
            let (needed, ending) = match all > limit as usize {
                true => (all, 0),
                false => (highest, ending),
            };
            return Err(PlanError::NoRoom { what, key, needed, leaving, ending, limit });
        }
    }
    Ok(())
}

fn is_leaving(real: &Real) -> bool {
    real.phase == Phase::Leaving
}

/// Backends that connection IDs name: all, those of them that leave, and those of slots that end. The
/// latter have their room until all has been given to the kernel.
fn servers(state: &State, next: &State) -> Result<[usize; 3], PlanError> {
    // Who is reached otherwise than before takes over the place.
    let ids = |state: &State, vip: VipKey, is_counted: fn(&Real) -> bool| {
        let named = of_vip_by_id(state, vip).filter(|(_, real)| is_counted(real));
        let ids: BTreeSet<u64> = named.map(|(id, _)| id).collect();
        ids.len()
    };
    let (mut all, mut leaving, mut ending) = (0, 0, 0);
    for vip in next.zero_slots.values() {
        let needed = ids(next, *vip, |_| true);
        if needed > MOST_SERVERS {
            return Err(PlanError::ManyServers { vip: *vip, needed });
        }
        all += needed;
        leaving += needed - ids(next, *vip, |real| !is_leaving(real));
    }
    for (slot, vip) in &state.zero_slots {
        if !next.zero_slots.contains_key(slot) {
            ending += ids(state, *vip, |_| true);
        }
    }
    Ok([all, leaving, ending])
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
        say(format!("packets go by {}, no longer by {}; open connections stay as they are", new.forward, old.forward));
    }
    if old.table_size != new.table_size {
        say(format!("table of {}, not {}", new.table_size, old.table_size));
    }
    let flags = |vip: &Vip| (vip.by_source, vip.quic, vip.measure);
    if flags(old) != flags(new) {
        let hash = if new.by_source { "source" } else { "connection" };
        say(format!("hash = {hash}, quic = {}, measure = {}", new.quic, new.measure));
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
            Some(check) => format!("health is checked by {} each {:?}", check.kind, check.interval),
        });
    }
    for backend in &old.backends {
        if !new.backends.iter().any(|other| other.address == backend.address) {
            say(format!(
                "backend '{}' ({}) leaves; its connections stay until they end",
                backend.name, backend.address
            ));
        }
    }
    for backend in &new.backends {
        let name = &backend.name;
        match old.backends.iter().find(|other| other.address == backend.address) {
            None => say(format!("backend '{name}' ({}) joins with weight {}", backend.address, backend.weight)),
            Some(was) => {
                if was.name != *name {
                    say(format!("backend '{}' is named '{name}'", was.name));
                }
                if was.server_id != backend.server_id {
                    say(format!("backend '{name}' has another server_id"));
                }
                if was.weight != backend.weight {
                    say(format!("backend '{name}' has weight {}, not {}", backend.weight, was.weight));
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
        ("health.threads", old.checking.threads != new.checking.threads),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}
