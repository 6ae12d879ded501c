//! Groups samples by interface, method and prefix in a replay. The kernel does the same in its maps.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::native::{Counter, Counters};
use crate::{
    histogram::Histogram,
    measure::{Method, Sample},
};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    /// The prefix length of IPv4 groups, 0 to 32.
    pub prefix4: u8,
    /// The prefix length of IPv6 groups, 0 to 128.
    pub prefix6: u8,
    /// The greatest number of groups, including the one for all other samples; at least 1.
    pub max_groups: u32,
}

/// What the samples of a group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The source's number of the interface.
    pub interface: u32,
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
    /// The distribution of the samples.
    pub histogram: Histogram,
}

/// Groups samples as the kernel does.
#[derive(Debug, Clone)]
pub struct Groups {
    aggregate: Aggregate,
    histograms: BTreeMap<GroupKey, Histogram>,
    other: Histogram,
    /// The samples in `other` since the start, over all intervals.
    other_samples: u64,
}

impl Groups {
    /// Creates an empty set of groups.
    pub fn new(aggregate: Aggregate) -> Groups {
        Groups { aggregate, histograms: BTreeMap::new(), other: Histogram::default(), other_samples: 0 }
    }

    /// Adds a sample to the group of the side that answered.
    pub fn add(&mut self, sample: &Sample) {
        let address = sample.dst.address;
        let bits = if address.is_ipv4() { self.aggregate.prefix4 } else { self.aggregate.prefix6 };
        let key = GroupKey { interface: sample.interface, method: sample.method, prefix: Prefix::of(address, bits) };
        let full = self.histograms.len() + 1 >= self.aggregate.max_groups as usize;
        match self.histograms.get_mut(&key) {
            Some(histogram) => histogram.record(sample.rtt_ns),
            None if full => {
                self.other.record(sample.rtt_ns);
                self.other_samples += 1;
            }
            None => self.histograms.entry(key).or_default().record(sample.rtt_ns),
        }
    }

    /// Adds the samples that found no group of their own to the counters of a replay. The kernel counts them itself.
    pub fn count(&self, mut counters: Counters) -> Counters {
        counters.0[Counter::AggregateOther as usize] += self.other_samples;
        counters
    }

    /// Ends an interval. Returns the groups that had samples in it, with the group of all other samples last. Keys stay
    /// known for the next interval.
    pub fn take(&mut self) -> Vec<Group> {
        let mut taken = Vec::new();
        for (key, histogram) in &mut self.histograms {
            if histogram.count() > 0 {
                taken.push(Group { key: Some(*key), histogram: std::mem::take(histogram) });
            }
        }
        if self.other.count() > 0 {
            taken.push(Group { key: None, histogram: std::mem::take(&mut self.other) });
        }
        taken
    }
}
