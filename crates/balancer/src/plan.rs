//! Planning a change: from what runs and what is wanted follows everything that has to change. The planner is pure, and
//! a plan is carried out completely or not at all.
//!
//! A VIP keeps its number as long as its address, protocol and port stay the same; a backend as long as its VIP, its
//! address and its forwarding stay the same. A backend that is no longer wanted *leaves*: it gets no new connections,
//! keeps its open ones, and its number becomes free when the last one ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use dwell_engine::{
    balance::{Forward, Sampling, VipKey},
    steer::zero_rtt::MOST_SERVERS,
};
use dwell_records::counted;
use serde::{Deserialize, Serialize};

use crate::config::{Backend, Config, Limits, Vip};

/// What runs: the VIPs and backends that have numbers in the kernel's maps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// VIPs by number, from 1.
    pub vips: BTreeMap<u32, VipKey>,
    /// Backends by number, from 1, including those that are leaving.
    pub reals: BTreeMap<u32, NumberedBackend>,
    /// VIPs that route by connection ID, by slot, from 1.
    #[serde(default)]
    pub zero_slots: BTreeMap<u32, VipKey>,
    /// Removed VIPs, by the number under which packets of their open connections still count.
    #[serde(default)]
    pub removed_vips: BTreeMap<u32, VipKey>,
}

impl State {
    /// Returns the slot of a VIP that routes by connection ID.
    pub fn zero_slot(&self, key: &VipKey) -> Option<u16> {
        let mut slots = self.zero_slots.iter();
        let (slot, _) = slots.find(|(_, other)| *other == key)?;
        (*slot).try_into().ok()
    }

    /// Returns the removed VIPs whose connections may still be open.
    fn still_counted(&self) -> BTreeMap<u32, VipKey> {
        let keys: BTreeSet<VipKey> = self.reals.values().filter_map(|real| real.vip).collect();
        let is_counted = |(number, key): &(&u32, &VipKey)| !self.vips.contains_key(number) && keys.contains(key);
        self.removed_vips.iter().filter(is_counted).map(|(number, key)| (*number, *key)).collect()
    }
}

/// A backend that has a number in the kernel's maps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumberedBackend {
    /// The VIP that the backend belongs to, or belonged to; none if it is not known.
    pub vip: Option<VipKey>,
    /// The name in output and requests.
    pub name: String,
    /// The server's own address.
    pub address: IpAddr,
    /// How packets are forwarded to it.
    pub forward: Forward,
    /// Whether new connections may be sent to it.
    pub phase: Phase,
    /// The server ID that connection IDs carry, if the VIP routes by them.
    #[serde(default)]
    pub server_id: Option<u64>,
}

/// Whether new connections may be sent to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "lb-phase")]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It gets new connections.
    Serving,
    /// It gets no new connections because an operator drained it.
    Draining,
    /// It is no longer wanted, and is removed when its last connection ends.
    Leaving,
}

/// What has to change. The kernel is updated so that nothing ever refers to an entry that does not exist yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What runs afterwards.
    pub next: State,
    /// The number of each wanted VIP and the numbers of its backends, in the order of the configuration.
    pub numbers: Vec<(u32, Vec<u32>)>,
    /// The numbers of new backends, which are written first.
    pub new_reals: Vec<u32>,
    /// The numbers of new VIPs.
    pub new_vips: Vec<u32>,
    /// The numbers of VIPs that stay, some of them with other backends.
    pub kept_vips: Vec<u32>,
    /// The VIPs that are removed, after everything else.
    pub gone_vips: Vec<(u32, VipKey)>,
}

/// Why a change cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A map of the kernel is too small.
    #[error(
        "there is no room for {needed} {what}{}, only for {limit}: {}raise limits.{key} and restart",
        unwanted(*.leaving, *.ending), remedy(*.ending)
    )]
    NoRoom {
        /// The kind of entry, in the plural.
        what: &'static str,
        /// The key of `limits` in the configuration.
        key: &'static str,
        /// The number of entries needed.
        needed: usize,
        /// How many of those are backends that wait for their last connections.
        leaving: usize,
        /// How many of those are removed, but keep their room until the additions have theirs.
        ending: usize,
        /// The limit.
        limit: u32,
    },
    /// A VIP has more servers than can be told apart by connection ID.
    #[error(
        "{vip} would have {needed} servers with connection IDs, including those that are leaving, and can have \
         {MOST_SERVERS}: remove some, or move them to another VIP"
    )]
    TooManyServers {
        /// The VIP.
        vip: VipKey,
        /// The number of servers needed.
        needed: usize,
    },
    /// Connections of one backend would be sent to another.
    #[error(
        "vip.backend.server_id: {id} of backend '{backend}' still belongs to '{former}' ({address}), which is leaving \
         {vip}: its connections are routed by that ID; write another one, or leave '{backend}' out until '{former}' \
         has left (see `dwell lb status`)"
    )]
    ServerIdInUse {
        /// The server ID.
        id: u64,
        /// The name of the backend that wants it.
        backend: String,
        /// The name of the backend that has it.
        former: String,
        /// The address of the backend that has it.
        address: IpAddr,
        /// The VIP of both backends.
        vip: VipKey,
    },
    /// Connections of a backend would be dropped, and later perhaps sent to another.
    #[error(
        "vip.backend.server_id: backend '{backend}' of {vip} has {had} and cannot change to {id}: its connections are \
         routed by {had}; write {had} again, or leave '{backend}' out until it has left (see `dwell lb status`)"
    )]
    ServerIdChanged {
        /// The configured server ID.
        id: u64,
        /// The server ID that it has.
        had: u64,
        /// The name of the backend.
        backend: String,
        /// The VIP of the backend.
        vip: VipKey,
    },
}

fn unwanted(leaving: usize, ending: usize) -> String {
    let words = |count: usize, words: &str| match count {
        0 => String::new(),
        some => format!(" ({some} of them {words})"),
    };
    let leaving = words(leaving, "leaving: they wait for their last connections");
    leaving + &words(ending, "ending: their room becomes free afterwards")
}

fn remedy(ending: usize) -> &'static str {
    match ending {
        0 => "",
        _ => "first reload without the additions, or ",
    }
}

/// Plans how to get from `state` to the wanted VIPs.
///
/// # Errors
///
/// If there is no room, if a server ID is still in use, or if a backend would get another server ID. Then nothing
/// changes.
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
    let mut removed = state.still_counted();
    removed.retain(|number, _| *number <= limits.vips);
    // The number of a VIP that ends now is not free at once either: packets may be in flight.
    let mut free_vips = FreeNumbers::new(state.vips.keys().chain(removed.keys()).copied());
    let returning: BTreeMap<VipKey, u32> = removed.iter().map(|(n, key)| (*key, *n)).collect();
    removed.retain(|_, key| !is_wanted(key));
    for vip in wanted {
        match numbers.get(&vip.key) {
            Some(number) => {
                plan.kept_vips.push(*number);
                plan.numbers.push((*number, Vec::new()));
            }
            None => {
                let number = returning.get(&vip.key).copied().unwrap_or_else(|| match free_vips.next() {
                    // Wrong counts are better than no VIP.
                    number if number > limits.vips => removed.pop_first().map_or(number, |(number, _)| number),
                    number => number,
                });
                plan.next.vips.insert(number, vip.key);
                plan.new_vips.push(number);
                plan.numbers.push((number, Vec::new()));
            }
        }
    }
    removed.extend(plan.gone_vips.iter().copied());
    plan.next.removed_vips = removed;
    number_backends(state, wanted, &mut plan);
    plan.next.removed_vips = plan.next.still_counted();
    assign_slots(state, wanted, &mut plan);
    check_server_ids(state, wanted, &plan)?;
    check_room(state, &plan, limits)?;
    Ok(plan)
}

/// What identifies a backend: its VIP, its address and its forwarding.
type Identity = (Option<VipKey>, IpAddr, Forward);

fn number_backends(state: &State, wanted: &[Vip], plan: &mut Plan) {
    let mut existing: BTreeMap<Identity, u32> = BTreeMap::new();
    for (number, real) in &state.reals {
        existing.insert((real.vip, real.address, real.forward), *number);
    }
    // A drain stays where only the forwarding changes.
    let drained = state.reals.values().filter(|real| real.phase == Phase::Draining);
    let draining: BTreeSet<_> = drained.map(|real| (real.vip, real.address)).collect();
    let mut stay: Vec<u32> = Vec::new();
    let mut free = FreeNumbers::new(state.reals.keys().copied());
    for (vip, (_, numbers)) in wanted.iter().zip(&mut plan.numbers) {
        for backend in &vip.backends {
            let identity = (Some(vip.key), backend.address, vip.forward);
            let numbered = |phase| NumberedBackend {
                vip: Some(vip.key),
                name: backend.name.clone(),
                address: backend.address,
                forward: vip.forward,
                phase,
                server_id: backend.server_id,
            };
            let is_draining = draining.contains(&(Some(vip.key), backend.address));
            let phase = if is_draining { Phase::Draining } else { Phase::Serving };
            let number = existing.get(&identity).copied().unwrap_or_else(|| {
                let number = free.next();
                plan.new_reals.push(number);
                number
            });
            stay.push(number);
            numbers.push(number);
            plan.next.reals.insert(number, numbered(phase));
        }
    }
    stay.sort_unstable();
    for (number, real) in &mut plan.next.reals {
        if stay.binary_search(number).is_err() {
            real.phase = Phase::Leaving;
        }
    }
}

/// Assigns slots to the VIPs that route by connection ID. Slots that end are not reused at once: packets may be in
/// flight.
fn assign_slots(state: &State, wanted: &[Vip], plan: &mut Plan) {
    let mut free = FreeNumbers::new(state.zero_slots.keys().copied());
    plan.next.zero_slots.clear();
    for vip in wanted.iter().filter(|vip| vip.zero_rtt.is_some()) {
        let slot = state.zero_slot(&vip.key).map(u32::from);
        let slot = slot.unwrap_or_else(|| free.next());
        plan.next.zero_slots.insert(slot, vip.key);
    }
}

/// Rejects server IDs that would take over the connections of another backend. The new owner of an ID gets the
/// connections of its former owner, which it knows nothing about; so an ID must be free, and a backend that stays keeps
/// its own.
fn check_server_ids(state: &State, wanted: &[Vip], plan: &Plan) -> Result<(), PlanError> {
    let by_id = wanted.iter().zip(&plan.numbers);
    for (vip, (_, numbers)) in by_id.filter(|(vip, _)| vip.zero_rtt.is_some()) {
        let leaving: BTreeMap<u64, &NumberedBackend> =
            servers_of(&plan.next, vip.key).filter(|(_, real)| is_leaving(real)).collect();
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
                return Err(PlanError::ServerIdInUse {
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

/// Returns the backends of a VIP with their server IDs, including those that are leaving.
fn servers_of(state: &State, vip: VipKey) -> impl Iterator<Item = (u64, &NumberedBackend)> {
    let reals = state.reals.values().filter(move |real| real.vip == Some(vip));
    reals.filter_map(|real| Some((real.server_id?, real)))
}

fn check_room(state: &State, plan: &Plan, limits: Limits) -> Result<(), PlanError> {
    let next = &plan.next;
    let leaving = next.reals.values().filter(|real| is_leaving(real)).count();
    let is_there = |slot: &&u32| next.zero_slots.contains_key(slot);
    let slots_ending = state.zero_slots.keys().filter(|slot| !is_there(slot));
    let servers = count_servers(state, next)?;
    let highest = |number: Option<&u32>| number.map_or(0, |number| *number as usize);
    // For each kind: the total, how many of the total are leaving, and how many others are ending.
    let counts = [
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
    for ((what, key, limit), [all, leaving, ending], highest) in counts {
        if highest > limit as usize {
            // If even the total is too much, it does not matter that something ends.
            let (needed, ending) = match all > limit as usize {
                true => (all, 0),
                false => (highest, ending),
            };
            return Err(PlanError::NoRoom { what, key, needed, leaving, ending, limit });
        }
    }
    Ok(())
}

fn is_leaving(real: &NumberedBackend) -> bool {
    real.phase == Phase::Leaving
}

/// Counts the servers that connection IDs refer to: all, how many of those are leaving, and how many belong to slots
/// that end. The latter keep their room until the kernel has been updated completely.
fn count_servers(state: &State, next: &State) -> Result<[usize; 3], PlanError> {
    // A backend whose forwarding changes keeps its server ID, so IDs are counted, not backends.
    let ids = |state: &State, vip: VipKey, is_counted: fn(&NumberedBackend) -> bool| {
        let named = servers_of(state, vip).filter(|(_, real)| is_counted(real));
        let ids: BTreeSet<u64> = named.map(|(id, _)| id).collect();
        ids.len()
    };
    let (mut all, mut leaving, mut ending) = (0, 0, 0);
    for vip in next.zero_slots.values() {
        let needed = ids(next, *vip, |_| true);
        if needed > MOST_SERVERS {
            return Err(PlanError::TooManyServers { vip: *vip, needed });
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

/// The smallest numbers that are not in use.
struct FreeNumbers {
    used: Vec<u32>,
    candidate: u32,
}

impl FreeNumbers {
    fn new(used: impl Iterator<Item = u32>) -> FreeNumbers {
        let mut used: Vec<u32> = used.collect();
        used.sort_unstable();
        FreeNumbers { used, candidate: 1 }
    }

    fn next(&mut self) -> u32 {
        while self.used.binary_search(&self.candidate).is_ok() {
            self.candidate += 1;
        }
        self.candidate += 1;
        self.candidate - 1
    }
}

/// Describes the differences between two configurations, one line each.
pub fn differences(old: &[Vip], new: &[Vip]) -> Vec<String> {
    let by_key = |vips: &'_ [Vip]| -> BTreeMap<VipKey, usize> { vips.iter().map(|vip| vip.key).zip(0..).collect() };
    let (old_by_key, new_by_key) = (by_key(old), by_key(new));
    let mut lines = Vec::new();
    for vip in old {
        if !new_by_key.contains_key(&vip.key) {
            lines.push(format!(
                "VIP '{}' ({}) is removed, with its {}; open connections continue",
                vip.name,
                vip.key,
                counted(vip.backends.len() as u64, "backend", "backends")
            ));
        }
    }
    for vip in new {
        match old_by_key.get(&vip.key).map(|at| &old[*at]) {
            None => lines.push(format!(
                "VIP '{}' ({}) is added: {}, policy {}, by {}",
                vip.name,
                vip.key,
                counted(vip.backends.len() as u64, "backend", "backends"),
                vip.policy,
                vip.forward
            )),
            Some(old) => vip_differences(old, vip, &mut lines),
        }
    }
    lines
}

fn vip_differences(old: &Vip, new: &Vip, lines: &mut Vec<String>) {
    let mut report = |text: String| lines.push(format!("VIP '{}': {text}", new.name));
    if old.name != new.name {
        report(format!("was named '{}'", old.name));
    }
    if old.policy != new.policy {
        report(format!("policy {} becomes {}", old.policy, new.policy));
    }
    if old.forward != new.forward {
        report(format!(
            "new connections are forwarded by {}, no longer by {}; open connections stay as they are",
            new.forward, old.forward
        ));
    }
    if old.table_size != new.table_size {
        report(format!("table size {}, not {}", new.table_size, old.table_size));
    }
    let flags = |vip: &Vip| (vip.by_source, vip.choices, vip.quic, vip.measure);
    if flags(old) != flags(new) {
        let hash = if new.by_source { "source" } else { "connection" };
        let Vip { choices, quic, .. } = new;
        let measure = match new.measure {
            None => "false".to_owned(),
            Some(sampling) if sampling == Sampling::default() => "true".to_owned(),
            Some(sampling) => sampling.to_string(),
        };
        report(format!("hash = {hash}, choices = {choices}, quic = {quic}, measure = {measure}"));
    }
    if old.second_chance != new.second_chance {
        report(format!("second_chance = {}", new.second_chance));
    }
    if old.latency != new.latency {
        report("the constants of latency change".into());
    }
    if old.zero_rtt != new.zero_rtt {
        report("the keys or constants of zero-rtt change".into());
    }
    if old.check != new.check {
        report(match &new.check {
            None => "health is no longer checked".into(),
            Some(check) => format!("health is checked by {} every {:?}", check.kind, check.interval),
        });
    }
    for (at, backend) in old.backends.iter().enumerate() {
        if same_backend(new, at, backend).is_none() {
            report(format!("backend '{}' ({}) leaves; its open connections continue", backend.name, backend.address));
        }
    }
    for (at, backend) in new.backends.iter().enumerate() {
        let name = &backend.name;
        match same_backend(old, at, backend) {
            None => report(format!("backend '{name}' ({}) joins with weight {}", backend.address, backend.weight)),
            Some(was) => {
                if was.name != *name {
                    report(format!("backend '{}' is renamed '{name}'", was.name));
                }
                if was.server_id != backend.server_id {
                    report(format!("backend '{name}' gets another server_id"));
                }
                if was.weight != backend.weight {
                    report(format!("backend '{name}' has weight {}, not {}", backend.weight, was.weight));
                }
            }
        }
    }
}

/// Returns the backend of a VIP with the address of another, most likely at the same position.
fn same_backend<'a>(vip: &'a Vip, at: usize, backend: &Backend) -> Option<&'a Backend> {
    let is_same = |other: &&Backend| other.address == backend.address;
    vip.backends.get(at).filter(is_same).or_else(|| vip.backends.iter().find(is_same))
}

/// What it takes to change a key that cannot change while the balancer runs, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The next process takes the data plane over, with all that is known.
    Over,
    /// The next process replaces the data plane: connections are forgotten.
    Anew,
    /// What is pinned has to be removed first: nothing is kept.
    Detached,
}

impl Restart {
    /// What to do.
    pub fn remedy(self) -> &'static str {
        match self {
            Restart::Over => "restart it, which keeps connections, weights and drains",
            Restart::Anew => "restart it, which keeps weights and drains, but forgets connections",
            Restart::Detached => {
                "stop it, run `dwell lb detach`, and start it again, which forgets connections, weights and drains"
            }
        }
    }
}

/// Returns the keys that differ between two configurations and cannot change without a restart, and which that is.
pub fn restart_keys(old: &Config, new: &Config) -> Vec<(&'static str, Restart)> {
    let differ = [
        ("interface", Restart::Detached, old.interface != new.interface),
        ("xdp", Restart::Over, old.xdp != new.xdp),
        ("interval", Restart::Over, old.interval != new.interval),
        ("estimator", Restart::Anew, old.estimator != new.estimator),
        ("idle_timeout", Restart::Over, old.idle_timeout != new.idle_timeout),
        ("active_timeout", Restart::Over, old.active_timeout != new.active_timeout),
        ("hash_seed", Restart::Over, old.hash_seed != new.hash_seed),
        ("shared", Restart::Over, old.shared != new.shared),
        ("pin", Restart::Detached, old.pin != new.pin),
        ("chain", Restart::Detached, old.chain != new.chain),
        ("limits", Restart::Anew, old.limits != new.limits),
        ("tunnel", Restart::Over, old.tunnel != new.tunnel),
        ("api.socket", Restart::Over, old.socket != new.socket),
        ("metrics", Restart::Over, old.metrics != new.metrics),
        ("health.threads", Restart::Over, old.health.threads != new.health.threads),
    ];
    differ.into_iter().filter(|(.., differs)| *differs).map(|(key, restart, _)| (key, restart)).collect()
}
