//! The sets of weights that balancers agree on. All balancers build their tables from the same set, and from nothing else,
//! so that the tables are equal.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::config::{MAX_WEIGHT, MOST_BACKENDS, PolicyName, Vip, is_same_part};

/// What balancers must have in common to read each other's messages, and to build the same table from the same weights.
pub const FORMAT: u32 = 1;

/// Weights of all VIPs that the leading balancer knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightSet {
    /// The format of the set and of tables.
    pub format: u32,
    /// The number: each set has the next one.
    pub number: u64,
    /// The name of the balancer that has made it.
    pub by: String,
    /// The Unix time in milliseconds from which it counts.
    pub from_ms: u64,
    /// The weights by address, port and protocol of the VIP.
    pub vips: BTreeMap<String, VipWeights>,
}

/// Weights of the backends of a VIP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VipWeights {
    /// What [`digest`] makes of the VIP that they are for.
    #[serde(rename = "for")]
    pub digest: String,
    /// Whether all backends fail their checks, so that all are kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_down: bool,
    /// The weights by address of the backend.
    pub of: BTreeMap<IpAddr, BackendWeight>,
    /// The names of the balancers at which a backend is drained, by its address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained_by: BTreeMap<IpAddr, Vec<String>>,
}

/// The weight of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendWeight {
    /// The weight in the table: 0 for a backend that gets no new connections.
    #[serde(rename = "t")]
    pub table: f64,
    /// The weight that the policy has set, with which the next leader goes on.
    #[serde(rename = "p")]
    pub policy: f64,
    /// Whether its checks fail, as most balancers see it.
    #[serde(rename = "d", default, skip_serializing_if = "is_false")]
    pub is_down: bool,
    /// Whether it drains at any balancer.
    #[serde(rename = "q", default, skip_serializing_if = "is_false")]
    pub is_draining: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl WeightSet {
    /// Reads a set. `None` if it is not one, or has weights that no balancer sets.
    pub fn parse(bytes: &[u8]) -> Option<WeightSet> {
        let set: WeightSet = serde_json::from_slice(bytes).ok()?;
        let weights = set.vips.values().flat_map(|vip| vip.of.values());
        let are_weights = weights.flat_map(|weight| [weight.table, weight.policy]).all(is_weight);
        let is_good = set.format == FORMAT && set.number < u64::MAX && are_weights;
        (is_good && are_few(set.vips.values().map(|vip| vip.of.len()))).then_some(set)
    }
}

/// Whether there are no more VIPs and backends than balancers agree on, by the number of backends of each VIP.
pub(super) fn are_few(vips: impl ExactSizeIterator<Item = usize>) -> bool {
    vips.len() <= MOST_BACKENDS && vips.sum::<usize>() <= MOST_BACKENDS
}

/// Whether a policy can set this weight: it moves weight between backends, so that one may have that of all.
fn is_weight(weight: f64) -> bool {
    (0.0..=MAX_WEIGHT * 1e6).contains(&weight)
}

impl VipWeights {
    /// Whether a set with these weights would change too little to be worth one: nothing, or with a policy that measures,
    /// no part by more than no table can show.
    pub fn is_near(&self, other: &VipWeights, policy: PolicyName) -> bool {
        if policy != PolicyName::Latency {
            return self == other;
        }
        let is_alike = (&self.digest, self.all_down, &self.drained_by)
            == (&other.digest, other.all_down, &other.drained_by)
            && self.of.len() == other.of.len();
        let total = |vip: &VipWeights| vip.of.values().map(|weight| weight.table).sum::<f64>().max(f64::MIN_POSITIVE);
        let (total, other_total) = (total(self), total(other));
        is_alike
            && self.of.iter().zip(&other.of).all(|((address, weight), (other_address, other))| {
                let (part, other_part) = (weight.table / total, other.table / other_total);
                address == other_address
                    && weight.is_down == other.is_down
                    && (part > 0.0) == (other_part > 0.0)
                    && is_same_part(part, other_part)
            })
    }
}

/// Returns what balancers must have in common to agree on the weights of a VIP: its address, what its table follows from,
/// and its backends.
pub fn digest(vip: &Vip) -> String {
    let mut backends: Vec<_> = vip.backends.iter().map(|backend| (backend.address, backend.weight)).collect();
    backends.sort_by_key(|(address, _)| *address);
    let Vip { key, table_size, by_source, policy, latency, .. } = vip;
    let text = format!("{FORMAT} {key} {table_size} {by_source} {policy} {latency:?} {backends:?}");
    format!("{:016x}", fnv(text.as_bytes()))
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::vip_with;

    #[test]
    fn the_digest_is_of_what_tables_follow_from() {
        let (one, two) = ("{ address = \"10.0.0.1\" }", "{ address = \"10.0.0.2\" }");
        let base = digest(&vip_with("", &format!("{one}, {two}")));
        assert_eq!(base, digest(&vip_with("", &format!("{two}, {one}"))), "their order does not matter");
        assert_eq!(base, digest(&vip_with("health.kind = \"tcp\"", &format!("{one}, {two}"))));
        for (keys, backends) in [
            ("", one.to_owned()),
            ("", format!("{one}, {{ address = \"10.0.0.2\", weight = 2 }}")),
            ("table_size = 1009", format!("{one}, {two}")),
            ("policy = \"latency\"", format!("{one}, {two}")),
            ("hash = \"source\"", format!("{one}, {two}")),
        ] {
            assert_ne!(base, digest(&vip_with(keys, &backends)), "{keys} {backends}");
        }
    }

    fn set_of(weights: &[(f64, bool)]) -> VipWeights {
        let weight = |(at, (table, is_down)): (usize, &(f64, bool))| {
            (
                IpAddr::from([10, 0, 0, at as u8]),
                BackendWeight { table: *table, policy: 1.0, is_down: *is_down, is_draining: false },
            )
        };
        VipWeights { of: weights.iter().enumerate().map(weight).collect(), ..VipWeights::default() }
    }

    #[test]
    fn small_differences_of_measured_weights_make_no_set_and_all_others_do() {
        let base = set_of(&[(1.0, false), (1.0, false)]);
        let near = set_of(&[(2.0, false), (2.01, false)]);
        assert!(near.is_near(&base, PolicyName::Latency));
        assert!(!near.is_near(&base, PolicyName::Weights));
        for other in [
            set_of(&[(1.0, false), (1.1, false)]),
            set_of(&[(1.0, false), (1.0, true)]),
            set_of(&[(1.0, false), (0.0, false)]),
            set_of(&[(1.0, false)]),
            VipWeights { all_down: true, ..base.clone() },
            VipWeights { digest: "other".into(), ..base.clone() },
        ] {
            assert!(!other.is_near(&base, PolicyName::Latency), "{other:?}");
        }
    }

    #[test]
    fn sets_survive_the_store_to_the_last_bit_and_what_is_not_one_is_refused() {
        let mut set = WeightSet { format: FORMAT, number: 7, by: "a".into(), ..WeightSet::default() };
        set.vips.insert("web".into(), set_of(&[(1.0 / 3.0, false), (0.1 + 0.2, true)]));
        let bytes = serde_json::to_vec(&set).expect("it can be written");
        let read = WeightSet::parse(&bytes).expect("it is one");
        assert_eq!(read, WeightSet::parse(&bytes).expect("it is one"));
        assert_eq!((read.number, read.vips["web"].of.len()), (7, 2));
        let text = String::from_utf8(bytes).expect("it is JSON");
        for bad in [
            text.replace("\"format\":1", "\"format\":2"),
            text.replace("\"p\":1.0", "\"p\":-1.0"),
            text.replace("\"p\":1.0", "\"p\":1e300"),
            text.replace("\"p\":1.0", "\"p\":null"),
            text[1..].to_owned(),
            String::new(),
        ] {
            assert_eq!(WeightSet::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
