//! The Maglev table of a VIP: what it was built from, and how much of it has changed.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use dwell_engine::{
    hash::mix,
    steer::maglev::{self, Member},
};

use crate::config::{PolicyName, Vip, is_same_part};

/// A backend's part in a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TableWeight {
    /// The backend's number.
    pub real: u32,
    pub address: IpAddr,
    /// 0 if the backend is left out.
    pub weight: f64,
}

/// A Maglev table, and the weights that it was built from. A clone shares its entries.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    built: Arc<BuiltTable>,
    /// The numbers and weights of the backends in the table.
    weights: Vec<(u32, f64)>,
    churn: Churn,
}

/// The entries of a table, and what follows from them.
#[derive(Debug, Default)]
struct BuiltTable {
    /// The number of a backend in each entry.
    entries: Vec<u32>,
    /// The part of the entries that each number has.
    shares: HashMap<u32, f64>,
    /// The identities of the backends in the table.
    ids: Vec<(u32, u64)>,
    /// The hash of the table, once it was asked for.
    hash: OnceLock<u64>,
}

/// How much of a table changes, as parts of its entries.
#[derive(Debug, Clone, Copy, Default)]
struct Churn {
    /// The last change; none before the first table of this process has changed.
    last: Option<f64>,
    /// The sum of the current interval's changes.
    current: Option<f64>,
    /// The sum of the previous interval's changes.
    previous: Option<f64>,
}

impl Table {
    /// The number of a backend in each entry.
    pub(super) fn entries(&self) -> &[u32] {
        &self.built.entries
    }

    /// The part of the entries that a backend has, from 0 to 1.
    pub(super) fn share(&self, real: u32) -> f64 {
        self.built.shares.get(&real).copied().unwrap_or(0.0)
    }

    /// A hash of the addresses of the backends in all entries: unlike numbers, these are the same at all balancers. `None` if
    /// the table is empty.
    pub(super) fn hash(&self) -> Option<String> {
        let built = &self.built;
        let hash = built.hash.get_or_init(|| hash(&built.entries, &built.ids));
        (!built.entries.is_empty()).then(|| format!("{hash:016x}"))
    }

    /// The part of the entries that the last change changed. None for the first table of this process.
    pub(super) fn last_change(&self) -> Option<f64> {
        self.churn.last
    }

    /// The part of the entries that the previous interval changed, at most 1; none before the first interval has ended.
    pub(super) fn disruption(&self) -> Option<f64> {
        self.churn.previous
    }

    /// Ends the interval that changes are summed over.
    pub(super) fn end_interval(&mut self) {
        self.churn.previous = Some(self.churn.current.take().unwrap_or(0.0).min(1.0));
    }

    /// Rebuilds the table if the weights or the size of the VIP have changed: with `is_exact` by anything, otherwise by
    /// more than is worth it. True if its entries have changed.
    pub(super) fn build(&mut self, vip: &Vip, backends: &[TableWeight], is_exact: bool) -> bool {
        let used = backends.iter().filter(|backend| backend.weight > 0.0);
        let weights: Vec<(u32, f64)> = used.map(|backend| (backend.real, backend.weight)).collect();
        let is_resized = self.entries().len() != vip.table_size as usize && !weights.is_empty();
        if !is_resized && self.fits(vip.policy, &weights, is_exact) {
            return false;
        }
        let entries = entries(vip, backends);
        self.weights = weights;
        if entries == self.entries() {
            return false;
        }
        self.churn.add(&self.built.entries, &entries);
        self.built = Arc::new(BuiltTable {
            shares: shares(&entries),
            ids: backends.iter().map(|backend| (backend.real, member_id(backend.address))).collect(),
            hash: OnceLock::new(),
            entries,
        });
        true
    }

    /// Whether the table was built from these weights, or under a policy that measures, from similar ones.
    fn fits(&self, policy: PolicyName, weights: &[(u32, f64)], is_exact: bool) -> bool {
        if is_exact || policy != PolicyName::Latency || weights.len() != self.weights.len() {
            return weights == self.weights;
        }
        let total = |weights: &[(u32, f64)]| weights.iter().map(|(_, weight)| weight).sum::<f64>();
        let (total, old_total) = (total(weights), total(&self.weights));
        let is_near = |((real, weight), (old_real, old_weight)): (&(u32, f64), &(u32, f64))| {
            let (part, old_part) = (weight / total, old_weight / old_total);
            real == old_real && is_same_part(part, old_part)
        };
        weights.iter().zip(&self.weights).all(is_near)
    }
}

impl Churn {
    fn add(&mut self, old: &[u32], new: &[u32]) {
        let is_first = old.is_empty() && self.current.or(self.previous).is_none();
        self.last = match new.len() == old.len() {
            true => Some(maglev::disruption(old, new)),
            false => (!is_first).then_some(1.0),
        };
        self.current = Some(self.current.unwrap_or(0.0) + self.last.unwrap_or(0.0));
    }
}

/// Returns the numbers of backends in the table that weights make; none if no backend has weight.
pub(super) fn entries(vip: &Vip, backends: &[TableWeight]) -> Vec<u32> {
    let members = backends.iter().map(|backend| Member {
        id: member_id(backend.address),
        weight: backend.weight,
        real: backend.real,
    });
    match backends.iter().any(|backend| backend.weight > 0.0) {
        true => maglev::table(vip.table_size, &members.collect::<Vec<_>>()),
        false => Vec::new(),
    }
}

/// The part of the entries that each number has.
fn shares(entries: &[u32]) -> HashMap<u32, f64> {
    if entries.is_empty() {
        return HashMap::new();
    }
    // The numbers of a VIP are mostly adjacent: counting in a vector is much faster than in a map.
    let (least, most) = bounds(entries);
    let mut counts = vec![0u32; (most - least) as usize + 1];
    for real in entries {
        counts[(real - least) as usize] += 1;
    }
    let total = entries.len() as f64;
    let counted = (least..).zip(counts).filter(|(_, count)| *count > 0);
    counted.map(|(real, count)| (real, f64::from(count) / total)).collect()
}

/// Hashes the identities of the backends in all entries.
fn hash(entries: &[u32], ids: &[(u32, u64)]) -> u64 {
    let (least, most) = bounds(entries);
    let mut by_number = vec![0; most.saturating_sub(least) as usize + 1];
    for (real, id) in ids.iter().filter(|(real, _)| (least..=most).contains(real)) {
        by_number[(real - least) as usize] = *id;
    }
    entries.iter().fold(0, |hash, real| mix(hash ^ by_number[(real - least) as usize]))
}

/// The least and the greatest number in a table.
fn bounds(entries: &[u32]) -> (u32, u32) {
    entries.iter().fold((u32::MAX, 0), |(least, most), real| (least.min(*real), most.max(*real)))
}

/// The identity of a backend in Maglev's permutations (FNV-1a). It depends on the address alone, so that all balancers
/// build the same table, whatever the names.
fn member_id(address: IpAddr) -> u64 {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    v6.octets()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
