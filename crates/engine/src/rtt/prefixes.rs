//! A list of prefixes with names, of which the longest that contains an address counts.

use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use thiserror::Error;
use zerocopy::FromBytes;

use super::Prefix;
use crate::abi;

/// Prefixes and their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefixes {
    names: BTreeMap<Prefix, String>,
}

/// A line of a list is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}; write a prefix and a name, as in '10.1.0.0/16 customer A', or a comment after #")]
pub struct PrefixesError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub what: String,
}

impl Prefixes {
    /// Parses a list: per line a prefix or an address, and after a space its name. Without a name a prefix is its own.
    /// IPv4 addresses that are mapped to IPv6 (::ffff:a.b.c.d) count as IPv4. Empty lines and what follows a # are
    /// left out.
    pub fn parse(text: &str) -> Result<Prefixes, PrefixesError> {
        let mut names = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(line, _)| line).trim();
            if line.is_empty() {
                continue;
            }
            let fail = |what: String| PrefixesError { line: number + 1, what };
            let (prefix, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let prefix: Prefix = prefix.parse().map_err(fail)?;
            let name = if name.is_empty() { prefix.to_string() } else { name.trim().to_owned() };
            if name.chars().any(char::is_control) {
                return Err(fail("the name has a control character".into()));
            }
            if names.insert(prefix, name).is_some() {
                return Err(fail(format!("the prefix {prefix} is listed twice")));
            }
        }
        Ok(Prefixes { names })
    }

    /// Returns the longest prefix that contains the address.
    pub fn of(&self, address: IpAddr) -> Option<Prefix> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (0..=most).rev().map(|bits| Prefix::of(address, bits)).find(|prefix| self.names.contains_key(prefix))
    }

    /// Returns the name of a prefix of the list.
    pub fn name(&self, prefix: &Prefix) -> Option<&str> {
        self.names.get(prefix).map(String::as_str)
    }

    /// Iterates over the prefixes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Prefix> {
        self.names.keys()
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// Parses a network, or an address as a prefix of all its bits.
    fn from_str(text: &str) -> Result<Prefix, String> {
        let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        net.map(Prefix::canonical).map_err(|_| format!("'{text}' is not an IP address or network"))
    }
}

impl Prefix {
    /// Returns the prefix of a network, as one of IPv4 if all its addresses are IPv4 addresses mapped to IPv6.
    fn canonical(net: IpNet) -> Prefix {
        let (address, bits) = (net.network().to_canonical(), net.prefix_len());
        Prefix { address, bits: bits - (net.max_prefix_len() - if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// Converts to the core's format, where IPv4 is ::ffff:a.b.c.d: the key of a trie, and what it leads to.
    pub fn to_core(&self) -> (abi::dwell_prefix_key, abi::dwell_prefix) {
        let (address, bits) = match self.address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), self.bits + 96),
            IpAddr::V6(v6) => (v6.octets(), self.bits),
        };
        let key = abi::dwell_prefix_key { bits: bits.into(), address };
        let address = abi::dwell_address::read_from_bytes(&address).expect("16 bytes");
        (key, abi::dwell_prefix { address, bits: bits.into(), reserved: 0 })
    }
}
