//! Which flows are followed: rules, and expressions in the syntax of tcpdump.

mod expression;

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

use crate::{
    abi,
    measure::{self, Endpoint},
};

/// How many terms a filter may have.
pub const MAX_TERMS: usize = abi::DWELL_FILTER_RULES as usize;

const ALL_PORTS: (u16, u16) = (0, u16::MAX);

/// The flows to follow: those that match a clause that does not exclude, or all if there is none, but never those that
/// match one that excludes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// At most [`MAX_TERMS`] terms in all.
    pub clauses: Vec<Clause>,
}

/// Holds if all of its terms do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// Matching flows are excluded, whatever the other clauses say.
    pub excludes: bool,
    /// One at least.
    pub terms: Vec<Term>,
}

/// Holds for flows of a protocol of which one end lies in a range of addresses and of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// It holds for all other flows instead.
    pub negated: bool,
    /// The transport.
    pub protocol: Protocol,
    /// The address range; `None` for any address.
    pub prefix: Option<IpNet>,
    /// The first and the last port. The identifier of an ICMP echo counts as one.
    pub ports: (u16, u16),
}

/// The protocol of a [`Term`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// Every protocol.
    Any = 0,
    /// ICMP of IPv4.
    Icmp = 1,
    /// TCP.
    Tcp = 6,
    /// UDP, QUIC included.
    Udp = 17,
    /// ICMP of IPv6.
    Icmpv6 = 58,
    /// Either of those that have ports.
    TcpOrUdp = abi::DWELL_RULE_PORTS as u8,
}

impl Default for Term {
    fn default() -> Term {
        Term { negated: false, protocol: Protocol::Any, prefix: None, ports: ALL_PORTS }
    }
}

/// A filter is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("filter '{text}': {what}; {remedy}")]
pub struct FilterError {
    /// The invalid rule or expression.
    pub text: String,
    /// The reason.
    pub what: String,
    /// What may be written.
    pub remedy: &'static str,
}

const SYNTAX: &str = "write a rule, [!]PREFIX[:PORT[-PORT]] or [!]:PORT[-PORT], as in '10.0.0.0/8', '!10.1.0.0/16:53', \
                      '[2001:db8::/32]:443', ':8000-8099', or an expression as for tcpdump, as in \
                      'tcp port 443 and not net 10.0.0.0/8'";

impl Filter {
    /// Parses rules and expressions, any of which may hold.
    ///
    /// # Errors
    ///
    /// If one is invalid, or if they have more than [`MAX_TERMS`] terms.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Filter, FilterError> {
        let mut filter = Filter::default();
        for text in texts.iter().map(AsRef::as_ref) {
            let fail = |what| FilterError { text: text.into(), what, remedy: SYNTAX };
            if expression::is_expression(text) {
                let alternatives = expression::parse(text).map_err(fail)?;
                filter.clauses.extend(alternatives.into_iter().map(|terms| Clause { excludes: false, terms }));
            } else {
                filter.clauses.push(rule(text).map_err(fail)?);
            }
            if filter.terms() > MAX_TERMS {
                return Err(fail(format!(
                    "with it there are {} terms, and there is room for {MAX_TERMS}",
                    filter.terms()
                )));
            }
        }
        Ok(filter)
    }

    /// Follows only flows of which one end has this port, in addition to what the filter says.
    ///
    /// # Errors
    ///
    /// If there is no room for the terms that it takes: one for each clause that does not exclude, or one.
    pub fn require_port(&mut self, port: u16) -> Result<(), FilterError> {
        let term = Term { ports: (port, port), ..Term::default() };
        if self.clauses.iter().all(|clause| clause.excludes) {
            self.clauses.push(Clause { excludes: false, terms: vec![term] });
        } else {
            let including = self.clauses.iter_mut().filter(|clause| !clause.excludes);
            including.for_each(|clause| clause.terms.push(term.clone()));
        }
        if self.terms() > MAX_TERMS {
            return Err(FilterError {
                text: format!(":{port}"),
                what: format!("with it there are {} terms, and there is room for {MAX_TERMS}", self.terms()),
                remedy: "give fewer filters with the port, or name the port in them",
            });
        }
        Ok(())
    }

    /// Parses rules that name servers.
    ///
    /// # Errors
    ///
    /// As [`parse`](Filter::parse), and if one is an expression or excludes.
    pub fn parse_servers<S: AsRef<str>>(rules: &[S]) -> Result<Filter, FilterError> {
        for text in rules.iter().map(AsRef::as_ref) {
            if text.starts_with('!') || expression::is_expression(text) {
                return Err(FilterError {
                    text: text.into(),
                    what: "servers are named by address and port, without !".into(),
                    remedy: "write PREFIX[:PORT[-PORT]] or :PORT[-PORT]; --filter leaves flows out",
                });
            }
        }
        Filter::parse(rules)
    }

    /// The number of terms, at most [`MAX_TERMS`].
    pub fn terms(&self) -> usize {
        self.clauses.iter().map(|clause| clause.terms.len()).sum()
    }

    /// Excludes the flows of a port. The filter must have room for one term more.
    pub fn exclude_port(&mut self, port: u16) {
        let terms = vec![Term { ports: (port, port), ..Term::default() }];
        self.clauses.push(Clause { excludes: true, terms });
    }

    /// Returns whether a flow is followed, as the core decides it per packet.
    pub fn admits(&self, src: &Endpoint, dst: &Endpoint, protocol: measure::Protocol) -> bool {
        let holds = |clause: &&Clause| clause.terms.iter().all(|term| term.holds(src, dst, protocol));
        let (excluding, including): (Vec<_>, Vec<_>) = self.clauses.iter().partition(|clause| clause.excludes);
        let is_included = including.is_empty() || including.iter().any(holds);
        is_included && !excluding.iter().any(holds)
    }

    /// Converts to the core's format.
    pub(crate) fn to_core(&self) -> abi::dwell_filter {
        let mut core = abi::dwell_filter {
            rules: self.terms() as u32,
            includes: self.clauses.iter().any(|clause| !clause.excludes).into(),
            ..Default::default()
        };
        let terms = self.clauses.iter().flat_map(|clause| {
            let last = clause.terms.len() - 1;
            clause.terms.iter().enumerate().map(move |(at, term)| (term, clause.excludes, at < last))
        });
        for (slot, (term, excludes, is_joined)) in core.rule.iter_mut().zip(terms) {
            *slot = term.to_core();
            slot.flags |= if excludes { abi::DWELL_RULE_EXCLUDES } else { 0 } as u8;
            slot.flags |= if is_joined { abi::DWELL_RULE_JOINED } else { 0 } as u8;
        }
        core
    }
}

impl Term {
    fn holds(&self, src: &Endpoint, dst: &Endpoint, protocol: measure::Protocol) -> bool {
        let is_of = match self.protocol {
            Protocol::Any => true,
            Protocol::TcpOrUdp => [Protocol::Tcp as u8, Protocol::Udp as u8].contains(&protocol.0),
            one => one as u8 == protocol.0,
        };
        (is_of && (self.covers(src) || self.covers(dst))) != self.negated
    }

    fn covers(&self, end: &Endpoint) -> bool {
        let is_within = match (self.prefix, end.address) {
            (None, _) => true,
            (Some(IpNet::V6(net)), IpAddr::V4(address)) => {
                let is_mapped = net.prefix_len() >= 96 && net.network().to_ipv4_mapped().is_some();
                is_mapped && net.contains(&address.to_ipv6_mapped())
            }
            (Some(net), address) => net.contains(&address),
        };
        is_within && (self.ports.0..=self.ports.1).contains(&end.port)
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
            flags: if self.negated { abi::DWELL_RULE_NEGATED as u8 } else { 0 },
            family,
            proto: self.protocol as u8,
            ..Default::default()
        }
    }
}

fn core_address(address: Ipv6Addr) -> abi::dwell_address {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes of sixteen"));
    let bytes = address.octets();
    abi::dwell_address { high: word(&bytes[..8]), low: word(&bytes[8..]) }
}

fn rule(text: &str) -> Result<Clause, String> {
    let (excludes, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (prefix, ports) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (prefix, after) = bracketed.split_once(']').ok_or("the '[' is not closed")?;
            match after.strip_prefix(':') {
                Some(ports) => (prefix, Some(ports)),
                None if after.is_empty() => (prefix, None),
                None => return Err("only ':PORT' may follow ']'".into()),
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
        "" => return Err("it names neither prefix nor port".into()),
        prefix => {
            let net = prefix.parse::<IpNet>().or_else(|_| prefix.parse::<IpAddr>().map(IpNet::from));
            Some(net.map_err(|_| unknown_prefix(prefix))?)
        }
    };
    let ports = ports.map_or(Ok(ALL_PORTS), port_range)?;
    Ok(Clause { excludes, terms: vec![Term { prefix, ports, ..Term::default() }] })
}

/// Why a text is not a prefix.
fn unknown_prefix(text: &str) -> String {
    let protocols = match text.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        true => ", nor one of the protocols tcp, udp, icmp, icmp6, ip and ip6",
        false => "",
    };
    format!("the prefix is not an IP address or network{protocols}; names are not looked up")
}

/// `PORT` or `PORT-PORT`.
fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let ports = (port(low)?, port(high)?);
    if ports.0 > ports.1 {
        return Err("the port range runs backwards".into());
    }
    Ok(ports)
}

fn port(text: &str) -> Result<u16, String> {
    // `parse` would accept "+80" too.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| "a port is a number from 0 to 65535".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Clause> {
        Filter::parse(&[text]).unwrap().clauses
    }

    fn within(prefix: &str) -> Term {
        Term { prefix: Some(prefix.parse().unwrap()), ..Term::default() }
    }

    fn ports(protocol: Protocol, low: u16, high: u16) -> Term {
        Term { protocol, ports: (low, high), ..Term::default() }
    }

    fn not(term: &Term) -> Term {
        Term { negated: true, ..term.clone() }
    }

    #[test]
    fn rules_are_read_as_written() {
        let rule = |text| parsed(text).remove(0);
        let includes = |term| Clause { excludes: false, terms: vec![term] };
        assert_eq!(rule("10.0.0.0/8"), includes(within("10.0.0.0/8")));
        assert_eq!(rule(":8000-8099"), includes(ports(Protocol::Any, 8000, 8099)));
        assert_eq!(rule("[2001:db8::/32]:443"), includes(Term { ports: (443, 443), ..within("2001:db8::/32") }));
        assert_eq!(rule("2001:db8::1"), includes(within("2001:db8::1/128")));
        let excluded = Term { ports: (53, 53), ..within("10.1.2.3/32") };
        assert_eq!(rule("!10.1.2.3:53"), Clause { excludes: true, terms: vec![excluded] });
    }

    #[test]
    fn expressions_are_alternatives_of_terms_that_all_hold() {
        use Protocol::{Tcp, TcpOrUdp, Udp};
        let net = || within("10.0.0.0/8");
        let alternatives = |text| parsed(text).into_iter().map(|clause| clause.terms).collect::<Vec<_>>();
        for (text, expected) in [
            ("tcp", vec![vec![ports(Tcp, 0, 65535)]]),
            ("ip6", vec![vec![within("::/0")]]),
            ("tcp port 443 and not net 10.0.0.0/8", vec![vec![ports(Tcp, 443, 443), not(&net())]]),
            ("port 53", vec![vec![ports(TcpOrUdp, 53, 53)]]),
            ("udp portrange 1-2 || net 10", vec![vec![ports(Udp, 1, 2)], vec![net()]]),
            ("tcp port 80 or 443", vec![vec![ports(Tcp, 80, 80)], vec![ports(Tcp, 443, 443)]]),
            ("host 10.0.0.1 and 10.0.0.2", vec![vec![within("10.0.0.1/32"), within("10.0.0.2/32")]]),
            // `and` does not bind closer than `or`
            (
                "tcp or udp and net 10.0.0.0 mask 255.0.0.0",
                vec![vec![ports(Tcp, 0, 65535), net()], vec![ports(Udp, 0, 65535), net()]],
            ),
            ("not (tcp or net 10)", vec![vec![not(&ports(Tcp, 0, 65535)), not(&net())]]),
            ("!(tcp&&net 10.0.0.0/8)", vec![vec![not(&ports(Tcp, 0, 65535))], vec![not(&net())]]),
            ("tcp src or dst port 80", vec![vec![ports(Tcp, 80, 80)]]),
            ("10.0.0.1 or 10.0.0.0/8", vec![vec![within("10.0.0.1/32")], vec![net()]]),
        ] {
            assert_eq!(alternatives(text), expected, "{text}");
        }
    }

    #[test]
    fn flows_are_admitted_as_rules_and_expressions_say() {
        let end = |text: &str| {
            let (address, port) = text.rsplit_once(' ').unwrap();
            Endpoint { address: address.parse().unwrap(), port: port.parse().unwrap() }
        };
        let admits = |texts: &[&str], a: &str, b: &str, protocol| {
            let filter = Filter::parse(texts).unwrap();
            let both = [(end(a), end(b)), (end(b), end(a))];
            let [there, back] = both.map(|(a, b)| filter.admits(&a, &b, measure::Protocol(protocol)));
            assert_eq!(there, back, "{texts:?}");
            there
        };
        let (client, server) = ("10.1.0.5 40000", "192.0.2.1 443");
        for (texts, expected) in [
            (&[][..], true),
            (&["10.0.0.0/8"], true),
            (&["10.0.0.0/8:443"], false),
            (&[":443"], true),
            (&["!:443"], false),
            (&["10.0.0.0/8", "!10.1.0.0/16"], false),
            (&["!10.2.0.0/16"], true),
            (&["udp port 443"], false),
            (&["port 443 and not net 10.1.0.0/16"], false),
            (&["::/0"], false),
            (&["::ffff:192.0.2.0/120"], true),
            (&["2001:db8::/32", ":400-500"], true),
        ] {
            assert_eq!(admits(texts, client, server, 6), expected, "{texts:?}");
        }
        assert!(admits(&["udp port 443"], client, server, 17));
        assert!(admits(&["[2001:db8::/32]:443"], "2001:db8::1 443", "2001:db9::1 5", 6));
        assert!(!admits(&["192.0.2.1"], "2001:db8::1 443", "2001:db9::1 5", 6));
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, what) in [
            ("", "neither"),
            ("!", "neither"),
            ("10.0.0.0/33", "not an IP address"),
            (":99999", "0 to 65535"),
            (":+80", "0 to 65535"),
            (":20-10", "backwards"),
            ("[2001:db8::/32", "not closed"),
            ("[::1]443", "may follow"),
            ("src host 10.0.0.1", "both directions"),
            ("tcp dst port 443", "leave out 'dst'"),
            ("port 80 or src host 10.0.0.1", "leave out 'src'"),
            ("host example.com", "not looked up"),
            ("tcp[13] = 2", "not understood"),
            ("vlan and tcp", "not understood"),
            ("tcp 80", "where 'and' or 'or' is expected"),
            ("tcp and", "it ends where"),
            ("tcp and or udp", "before 'or'"),
            ("(tcp", "not closed"),
            ("tcp)", "')' is where"),
            ("icmp port 80", "ICMP has no ports"),
            ("ip host ::1", "not of IPv4"),
            ("portrange 5-1", "backwards"),
            ("net 10.0.0.0 mask 1.2.3.4", "MASK"),
        ] {
            let error = Filter::parse(&[text]).unwrap_err();
            assert!(error.what.contains(what), "{text}: {error}");
        }
        assert!(Filter::parse(&[":1"; 17]).unwrap_err().what.contains("room for 16"));
        let wide = ["(port 1 or port 2)"; 6].join(" and ");
        assert!(Filter::parse(&[wide]).unwrap_err().what.contains("more than 16 terms"));
        let deep = "(".repeat(100_000) + "tcp";
        assert!(Filter::parse(&[deep]).unwrap_err().what.contains("nested"));
        assert!(Filter::parse_servers(&["!:80"]).unwrap_err().what.contains("without !"));
        assert!(Filter::parse_servers(&["tcp port 80"]).unwrap_err().what.contains("by address and port"));
    }

    #[test]
    fn a_required_port_joins_each_clause_that_includes() {
        let with_port = |texts: &[&str]| {
            let mut filter = Filter::parse(texts).unwrap();
            filter.require_port(443).map(|()| filter.clauses)
        };
        let port = ports(Protocol::Any, 443, 443);
        let includes = |terms: &[Term]| Clause { excludes: false, terms: terms.into() };
        let excluded = Clause { excludes: true, terms: vec![within("10.0.0.0/8")] };
        assert_eq!(with_port(&[]).unwrap(), [includes(std::slice::from_ref(&port))]);
        assert_eq!(with_port(&["!10.0.0.0/8"]).unwrap(), [excluded, includes(std::slice::from_ref(&port))]);
        let both = [includes(&[within("192.0.2.0/24"), port.clone()]), includes(&[within("198.51.100.0/24"), port])];
        assert_eq!(with_port(&["192.0.2.0/24", "198.51.100.0/24"]).unwrap(), both);
        let many: Vec<&str> = vec!["192.0.2.0/24"; 9];
        assert!(with_port(&many).unwrap_err().what.contains("there are 18 terms"));
    }
}
