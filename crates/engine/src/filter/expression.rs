//! Expressions in the syntax of tcpdump (pcap-filter(7)), as far as they select whole flows.

use std::{
    iter::Peekable,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::{FromStr, SplitWhitespace},
};

use ipnet::{IpNet, Ipv4Net};

use super::{MAX_TERMS, Protocol, Term, port, port_range};

/// Alternatives, each of which holds if all of its terms do.
pub(super) type Alternatives = Vec<Vec<Term>>;

/// How deep parentheses and negations may nest.
const MAX_DEPTH: u32 = 64;

/// Returns whether a text is an expression rather than a rule: several words, or one that is a protocol.
pub(super) fn is_expression(text: &str) -> bool {
    let text = text.trim();
    let word = text.trim_start_matches(['!', '(']).trim_end_matches(')');
    text.contains([' ', '\t', '\n', '(']) || word.parse::<Network>().is_ok()
}

/// Parses an expression. Fails with a reason.
pub(super) fn parse(text: &str) -> Result<Alternatives, String> {
    let spaced = ["(", ")", "!", "&&", "||"]
        .iter()
        .fold(text.to_owned(), |text, operator| text.replace(operator, &format!(" {operator} ")));
    let mut parser = Parser { tokens: spaced.split_whitespace().peekable(), usual: Qualifiers::default(), depth: 0 };
    let parsed = parser.expression()?;
    match parser.tokens.next() {
        None => Ok(parsed),
        Some(token) => Err(format!("'{token}' is where 'and' or 'or' is expected")),
    }
}

/// The first qualifier of a primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Ipv4,
    Ipv6,
    Protocol(Protocol),
}

impl FromStr for Network {
    type Err = ();

    fn from_str(word: &str) -> Result<Network, ()> {
        Ok(match word {
            "ip" => Network::Ipv4,
            "ip6" => Network::Ipv6,
            "tcp" => Network::Protocol(Protocol::Tcp),
            "udp" => Network::Protocol(Protocol::Udp),
            "icmp" => Network::Protocol(Protocol::Icmp),
            "icmp6" => Network::Protocol(Protocol::Icmpv6),
            _ => return Err(()),
        })
    }
}

/// What a number or an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(word: &str) -> Result<Kind, ()> {
        Ok(match word {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            _ => return Err(()),
        })
    }
}

/// What stands before a number or an address; a bare one has those of the one before it.
#[derive(Debug, Clone, Copy, Default)]
struct Qualifiers {
    network: Option<Network>,
    kind: Option<Kind>,
}

struct Parser<'a> {
    /// Words, parentheses and operators.
    tokens: Peekable<SplitWhitespace<'a>>,
    usual: Qualifiers,
    depth: u32,
}

impl Parser<'_> {
    /// Operands joined by `and` and `or`, which bind alike, from left to right.
    fn expression(&mut self) -> Result<Alternatives, String> {
        let mut left = self.operand()?;
        while let Some(token) = self.tokens.peek() {
            let join = match *token {
                "and" | "&&" => both,
                "or" | "||" => either,
                _ => break,
            };
            self.tokens.next();
            left = join(&left, &self.operand()?)?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Alternatives, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        let operand = if self.take(&["not", "!"]) {
            negation(self.operand()?)
        } else if self.take(&["("]) {
            let inner = self.expression()?;
            if self.take(&[")"]) { Ok(inner) } else { Err("a '(' is not closed".into()) }
        } else {
            self.primitive().map(|term| vec![vec![term]])
        };
        self.depth -= 1;
        operand
    }

    fn primitive(&mut self) -> Result<Term, String> {
        let network = self.qualifier();
        self.either_direction();
        if let Some(direction) = self.tokens.next_if(|token| matches!(*token, "src" | "dst")) {
            return Err(format!("a flow has packets of both directions, so leave out '{direction}'"));
        }
        let mut given = Qualifiers { network, kind: self.qualifier() };
        if given.network.is_none() && given.kind.is_none() {
            given = self.usual;
        } else if let (Some(network), None) = (given.network, given.kind) {
            return Ok(Term::anywhere(network));
        }
        self.usual = given;
        let word = match self.tokens.next() {
            Some(word) if !matches!(word, ")" | "and" | "&&" | "or" | "||") => word,
            Some(token) => return Err(format!("there is nothing before '{token}'")),
            None => return Err("it ends where an address, a port or a protocol is expected".into()),
        };
        match given.kind {
            Some(Kind::Port) => Term::ports(given.network, (port(word)?, port(word)?)),
            Some(Kind::PortRange) => Term::ports(given.network, port_range(word)?),
            Some(Kind::Host) => Term::within(given.network, host(word)?),
            None if !word.contains('/') => Term::within(given.network, host(word)?),
            Some(Kind::Net) | None => Term::within(given.network, self.net(word)?),
        }
    }

    /// The next word, if it is a qualifier of this kind.
    fn qualifier<Q: FromStr>(&mut self) -> Option<Q> {
        let qualifier = self.tokens.peek()?.parse().ok()?;
        self.tokens.next();
        Some(qualifier)
    }

    /// `src or dst` is what flows are selected by anyway.
    fn either_direction(&mut self) {
        let mut ahead = self.tokens.clone();
        let words = [ahead.next(), ahead.next(), ahead.next()];
        if words.map(|word| word.unwrap_or_default()) == ["src", "or", "dst"] {
            self.tokens = ahead;
        }
    }

    fn take(&mut self, words: &[&str]) -> bool {
        self.tokens.next_if(|token| words.contains(token)).is_some()
    }

    /// `10.0.0.0/8`, `10.0.0.0 mask 255.0.0.0`, or the first bytes of an IPv4 network.
    fn net(&mut self, word: &str) -> Result<IpNet, String> {
        if self.take(&["mask"]) {
            let mask = self.tokens.next().and_then(|mask| mask.parse::<Ipv4Addr>().ok());
            let net = word.parse().ok().zip(mask).and_then(|(address, mask)| Ipv4Net::with_netmask(address, mask).ok());
            return net.map(IpNet::V4).ok_or_else(|| "'net ADDRESS mask MASK' takes IPv4 in dotted form".into());
        }
        let bytes: Option<Vec<u8>> = word.split('.').map(|byte| byte.parse().ok()).collect();
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() < 4) {
            let mut address = [0; 4];
            address[..bytes.len()].copy_from_slice(&bytes);
            return Ok(IpNet::V4(Ipv4Net::new_assert(address.into(), 8 * bytes.len() as u8)));
        }
        word.parse().or_else(|_| host(word))
    }
}

fn host(word: &str) -> Result<IpNet, String> {
    word.parse::<IpAddr>().map(IpNet::from).map_err(|_| match word {
        _ if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            format!("'{word}' is not understood: there are tcp, udp, icmp, icmp6, ip, ip6, host, net, port, portrange, and names are not looked up")
        }
        _ => format!("'{word}' is not an IP address or network"),
    })
}

impl Term {
    /// All of a protocol.
    fn anywhere(network: Network) -> Term {
        let all = |any: IpAddr| Some(IpNet::new_assert(any, 0));
        match network {
            Network::Ipv4 => Term { prefix: all(Ipv4Addr::UNSPECIFIED.into()), ..Term::default() },
            Network::Ipv6 => Term { prefix: all(Ipv6Addr::UNSPECIFIED.into()), ..Term::default() },
            Network::Protocol(protocol) => Term { protocol, ..Term::default() },
        }
    }

    fn within(network: Option<Network>, net: IpNet) -> Result<Term, String> {
        let is_ipv6 = matches!(net, IpNet::V6(_));
        match network {
            Some(Network::Ipv4) if is_ipv6 => Err(format!("'{net}' is not of IPv4, as 'ip' demands")),
            Some(Network::Ipv6) if !is_ipv6 => Err(format!("'{net}' is not of IPv6, as 'ip6' demands")),
            Some(Network::Protocol(protocol)) => Ok(Term { protocol, prefix: Some(net), ..Term::default() }),
            _ => Ok(Term { prefix: Some(net), ..Term::default() }),
        }
    }

    fn ports(network: Option<Network>, ports: (u16, u16)) -> Result<Term, String> {
        let term = match network {
            None => Term::default(),
            Some(Network::Protocol(Protocol::Icmp | Protocol::Icmpv6)) => return Err("ICMP has no ports".into()),
            Some(network) => Term::anywhere(network),
        };
        let protocol = if term.protocol == Protocol::Any { Protocol::TcpOrUdp } else { term.protocol };
        Ok(Term { protocol, ports, ..term })
    }
}

fn either(left: &[Vec<Term>], right: &[Vec<Term>]) -> Result<Alternatives, String> {
    bounded(left.iter().chain(right).cloned().collect())
}

fn both(left: &[Vec<Term>], right: &[Vec<Term>]) -> Result<Alternatives, String> {
    let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    bounded(
        pairs
            .map(|(left, right)| {
                let added = right.iter().filter(|term| !left.contains(term));
                left.iter().chain(added).cloned().collect()
            })
            .collect(),
    )
}

fn negation(alternatives: Alternatives) -> Result<Alternatives, String> {
    alternatives
        .into_iter()
        .map(|terms| Ok(terms.into_iter().map(|term| vec![Term { negated: !term.negated, ..term }]).collect()))
        .reduce(|left: Result<Alternatives, String>, right| both(&left?, &right?))
        .unwrap_or_else(|| Ok(Vec::new()))
}

fn bounded(alternatives: Alternatives) -> Result<Alternatives, String> {
    let terms: usize = alternatives.iter().map(Vec::len).sum();
    if terms > MAX_TERMS {
        return Err(format!(
            "written as alternatives it has more than {MAX_TERMS} terms, which is what there is room for"
        ));
    }
    Ok(alternatives)
}
