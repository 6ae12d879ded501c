//! Bounds what one network of clients can make of a backend's latency.
//!
//! A balancer that sees clients' packets only cannot tell a client from somebody who sends what a client would send.
//! What it believes must therefore not hang on few senders: addresses of one network are cheap, many networks are not.

use std::{collections::HashMap, net::IpAddr};

/// With fewer networks, each counts as it is: there are too few to judge one by the others.
const FEWEST: usize = 8;
/// The most that a network weighs, relative to the median network. With more, ten of 110 could make one backend seem slow and
/// another one fast, which together is enough to move weight.
const MOST_WEIGHT: f64 = 1.0;
/// The longest latency that a network counts with, relative to the median network.
const MOST_LATENCY: f64 = 4.0;
/// The part of the networks with answers that must have clients who wait in vain, so that these count.
const LEAST_WAITING: f64 = 0.25;

/// A network of clients: the first 24 bits of an address of IPv4, or the first 48 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Network(u64);

impl Network {
    pub(super) fn of(client: IpAddr) -> Network {
        Network(super::native::network(client))
    }
}

/// A set of networks in 64 bits, so that the kernel can keep one per backend and age. Of many networks some fall
/// together, in all sets alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Networks(pub(super) u64);

impl Networks {
    pub(super) fn add(&mut self, network: Network) {
        self.0 |= 1 << (network.0 >> 58);
    }

    /// Adds the network of a client.
    pub fn add_client(&mut self, client: IpAddr) {
        self.add(Network::of(client));
    }

    fn count(self) -> f64 {
        self.0.count_ones().into()
    }

    /// Returns whether clients who wait in vain come from enough networks, given those whose clients are answered.
    pub(super) fn are_many_of(self, answered: Networks) -> bool {
        self.count() >= LEAST_WAITING * answered.count()
    }
}

/// The mean of a connection's responses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weighted {
    pub network: Network,
    pub ns: f64,
    pub weight: f64,
}

/// Reduces the weight and the latency of networks that stand out.
pub(super) fn bound(means: &mut [Weighted]) {
    let mut sums: HashMap<Network, (f64, f64)> = HashMap::new();
    for mean in means.iter() {
        let (weight, ns) = sums.entry(mean.network).or_default();
        *weight += mean.weight;
        *ns += mean.weight * mean.ns;
    }
    if sums.len() < FEWEST {
        return;
    }
    let most_weight = MOST_WEIGHT * median(sums.values().map(|(weight, _)| *weight));
    let most_ns = MOST_LATENCY * median(sums.values().map(|(weight, ns)| ns / weight));
    for mean in means {
        let (weight, ns) = sums[&mean.network];
        mean.ns *= (most_ns * weight / ns).min(1.0);
        mean.weight *= (most_weight / weight).min(1.0);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_the_first_bits_of_an_address() {
        let of = |text: &str| Network::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:ffff::2"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
    }

    #[test]
    fn few_networks_count_as_they_are() {
        let mean = |network: u64, ns: f64| Weighted { network: Network(network), ns, weight: 1.0 };
        let mut few: Vec<Weighted> = (0..7).map(|network| mean(network, 10f64.powi(network as i32))).collect();
        let before = few.clone();
        bound(&mut few);
        assert_eq!(few, before);
        few.push(mean(8, 1e9));
        bound(&mut few);
        assert_eq!(few[7], Weighted { ns: 4e4, ..mean(8, 0.0) });
    }
}
