//! Groups samples by interface, method and prefix in a replay. The kernel does the same in its maps.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{
    Figures, Prefixes,
    native::{Counter, Counters},
};
use crate::measure::{Method, Sample, Tunnel};

/// An IP prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The first address.
    pub address: IpAddr,
    /// The length in bits.
    pub bits: u8,
}

impl Prefix {
    /// Returns the prefix of `bits` bits that contains the address.
    pub fn of(address: IpAddr, bits: u8) -> Prefix {
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        };
        Prefix { address, bits }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// How samples are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// The prefix length of IPv4 groups, 0 to 32.
    pub prefix4: u8,
    /// The prefix length of IPv6 groups, 0 to 128.
    pub prefix6: u8,
    /// Prefixes that are groups of their own; the longest that contains an address counts.
    pub prefixes: Prefixes,
    /// The greatest number of groups, including the one for all other samples; at least 1.
    pub max_groups: u32,
    /// A group without samples for this time makes room for others.
    pub idle_ns: u64,
}

impl Default for Aggregate {
    fn default() -> Aggregate {
        let prefixes = Prefixes::default();
        Aggregate { prefix4: 24, prefix6: 48, prefixes, max_groups: 512, idle_ns: 300_000_000_000 }
    }
}

impl Aggregate {
    /// Returns the prefix that samples of an address are grouped by.
    pub fn prefix(&self, address: IpAddr) -> Prefix {
        let bits = if address.is_ipv4() { self.prefix4 } else { self.prefix6 };
        self.prefixes.of(address).unwrap_or_else(|| Prefix::of(address, bits))
    }
}

/// What the samples of a group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The source's number of the interface.
    pub interface: u32,
    /// What encloses the packets.
    pub tunnel: Tunnel,
    /// The method that measured them.
    pub method: Method,
    /// The prefix of the side that answered.
    pub prefix: Prefix,
}

/// The samples of one group in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The key; `None` for the samples that found no group of their own.
    pub key: Option<GroupKey>,
    /// What its samples add up to.
    pub figures: Figures,
}

/// Groups samples as the kernel does.
#[derive(Debug, Clone)]
pub struct Groups {
    aggregate: Aggregate,
    /// The figures of each group in this interval, and the time of its last sample.
    groups: BTreeMap<GroupKey, (Figures, u64)>,
    other: Figures,
    /// The samples in `other` since the start, over all intervals.
    other_samples: u64,
    /// The groups that made room since the start.
    freed: u64,
}

impl Groups {
    /// Creates an empty set of groups.
    pub fn new(aggregate: Aggregate) -> Groups {
        Groups { aggregate, groups: BTreeMap::new(), other: Figures::default(), other_samples: 0, freed: 0 }
    }

    /// Adds a sample to the group of the side that answered.
    pub fn add(&mut self, sample: &Sample) {
        let prefix = self.aggregate.prefix(sample.dst.address);
        let key = GroupKey { interface: sample.interface, tunnel: sample.tunnel, method: sample.method, prefix };
        let full = self.groups.len() + 1 >= self.aggregate.max_groups as usize;
        if full && !self.groups.contains_key(&key) {
            self.other.add(sample);
            self.other_samples += 1;
            return;
        }
        let (figures, last_ns) = self.groups.entry(key).or_default();
        figures.add(sample);
        *last_ns = sample.time_ns;
    }

    /// Adds what is counted here to the counters of a replay: samples that found no group, groups that made room.
    pub fn count(&self, counters: Counters) -> Counters {
        counters.plus(Counter::AggregateOther, self.other_samples).plus(Counter::GroupsFreed, self.freed)
    }

    /// Ends an interval. Returns the groups that had samples in it, with the group of all other samples last. The others
    /// stay known for the next interval, unless they were without samples for too long.
    pub fn take(&mut self, now_ns: u64) -> Vec<Group> {
        let mut taken = Vec::new();
        for (key, (figures, _)) in &mut self.groups {
            if figures.histogram.count() > 0 {
                taken.push(Group { key: Some(*key), figures: std::mem::take(figures) });
            }
        }
        let known = self.groups.len();
        self.groups.retain(|_, (_, last_ns)| now_ns.saturating_sub(*last_ns) < self.aggregate.idle_ns);
        self.freed += (known - self.groups.len()) as u64;
        if self.other.histogram.count() > 0 {
            taken.push(Group { key: None, figures: std::mem::take(&mut self.other) });
        }
        taken
    }
}
