//! The rules of `--filter`: which flows to follow.

use std::{
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use thiserror::Error;

use crate::abi;

/// An address range and a port range to include or exclude. A flow matches if one of its endpoints lies in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRule {
    /// Matching flows are excluded, whatever the other rules say.
    pub exclude: bool,
    /// The address range; `None` for any address.
    pub prefix: Option<IpNet>,
    /// The first and the last port.
    pub ports: (u16, u16),
}

/// A filter rule is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "filter '{text}': {what}; write [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', '[2001:db8::/32]:443', ':8000-8099'"
)]
pub struct FilterError {
    /// The invalid rule.
    pub text: String,
    /// The reason.
    pub what: String,
}

impl FilterRule {
    /// Parses a list of rules, at most 16.
    pub fn parse_all<S: AsRef<str>>(rules: &[S]) -> Result<Vec<FilterRule>, FilterError> {
        if rules.len() > abi::DWELL_FILTER_RULES as usize {
            return Err(FilterError {
                text: rules[abi::DWELL_FILTER_RULES as usize].as_ref().into(),
                what: format!("there is room for {} rules, and {} were given", abi::DWELL_FILTER_RULES, rules.len()),
            });
        }
        rules.iter().map(|rule| rule.as_ref().parse()).collect()
    }

    /// Converts rules to the core's format.
    pub(crate) fn all_to_core(rules: &[FilterRule]) -> abi::dwell_filter {
        let mut core = abi::dwell_filter {
            rules: rules.len() as u32,
            includes: rules.iter().any(|rule| !rule.exclude).into(),
            ..Default::default()
        };
        for (slot, rule) in core.rule.iter_mut().zip(rules) {
            *slot = rule.to_core();
        }
        core
    }

    fn to_core(&self) -> abi::dwell_filter_rule {
        let (family, address, mask) = match self.prefix {
            None => (0, Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
            Some(IpNet::V6(net)) => {
                let mapped = net.prefix_len() >= 96 && net.network().to_ipv4_mapped().is_some();
                (if mapped { 4 } else { 6 }, net.network(), net.netmask())
            }
            Some(IpNet::V4(net)) => {
                (4, net.network().to_ipv6_mapped(), Ipv6Addr::from(u128::MAX << (32 - net.prefix_len())))
            }
        };
        abi::dwell_filter_rule {
            address: core_address(address),
            mask: core_address(mask),
            port_low: self.ports.0,
            port_high: self.ports.1,
            exclude: self.exclude.into(),
            family,
            ..Default::default()
        }
    }
}

fn core_address(address: Ipv6Addr) -> abi::dwell_address {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes of sixteen"));
    let bytes = address.octets();
    abi::dwell_address { high: word(&bytes[..8]), low: word(&bytes[8..]) }
}

impl FromStr for FilterRule {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<FilterRule, FilterError> {
        let fail = |what: &str| FilterError { text: text.into(), what: what.into() };
        let (exclude, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (prefix, ports) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (prefix, after) = bracketed.split_once(']').ok_or_else(|| fail("the '[' is not closed"))?;
                match after.strip_prefix(':') {
                    Some(ports) => (prefix, Some(ports)),
                    None if after.is_empty() => (prefix, None),
                    None => return Err(fail("only ':PORT' may follow ']'")),
                }
            }
            // More than one colon can only be an IPv6 prefix.
            None if rest.matches(':').count() > 1 => (rest, None),
            None => match rest.split_once(':') {
                Some((prefix, ports)) => (prefix, Some(ports)),
                None => (rest, None),
            },
        };
        let prefix = match prefix {
            "" if ports.is_some() => None,
            "" => return Err(fail("it names neither prefix nor port")),
            prefix => Some(
                prefix
                    .parse::<IpNet>()
                    .or_else(|_| prefix.parse::<IpAddr>().map(IpNet::from))
                    .map_err(|_| fail("the prefix is no IP address or network"))?,
            ),
        };
        let port = |text: &str| {
            // `parse` would accept "+80" too.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| digits).ok_or_else(|| fail("a port is a number from 0 to 65535"))
        };
        let ports = match ports {
            None => (0, u16::MAX),
            Some(range) => match range.split_once('-') {
                Some((low, high)) => (port(low)?, port(high)?),
                None => (port(range)?, port(range)?),
            },
        };
        if ports.0 > ports.1 {
            return Err(fail("the port range runs backwards"));
        }
        Ok(FilterRule { exclude, prefix, ports })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_written() {
        let rule = |text: &str| text.parse::<FilterRule>().unwrap();
        let net = |text: &str| Some(text.parse().unwrap());
        assert_eq!(rule("10.0.0.0/8"), FilterRule { exclude: false, prefix: net("10.0.0.0/8"), ports: (0, 65535) });
        assert_eq!(rule("!10.1.2.3:53"), FilterRule { exclude: true, prefix: net("10.1.2.3/32"), ports: (53, 53) });
        assert_eq!(rule(":8000-8099"), FilterRule { exclude: false, prefix: None, ports: (8000, 8099) });
        assert_eq!(
            rule("[2001:db8::/32]:443"),
            FilterRule { exclude: false, prefix: net("2001:db8::/32"), ports: (443, 443) }
        );
        assert_eq!(
            rule("2001:db8::1"),
            FilterRule { exclude: false, prefix: net("2001:db8::1/128"), ports: (0, 65535) }
        );
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, what) in [
            ("", "neither"),
            ("!", "neither"),
            ("10.0.0.0/33", "no IP address"),
            (":99999", "0 to 65535"),
            (":+80", "0 to 65535"),
            (":20-10", "backwards"),
            ("[2001:db8::/32", "not closed"),
            ("[::1]443", "may follow"),
        ] {
            let error = text.parse::<FilterRule>().unwrap_err();
            assert!(error.what.contains(what), "{text}: {error}");
        }
        assert!(FilterRule::parse_all(&[":1"; 17]).unwrap_err().what.contains("16"));
    }
}
