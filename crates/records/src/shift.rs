//! What has shifted since an earlier run: the record of `--baseline`, the same for all verbs.

use std::{fmt, net::IpAddr};

use dwell_engine::{
    baseline::{Comparison, Figure},
    layers::Segment,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Verb;

/// Latencies of a run compared with their baseline.
#[derive(Debug, Clone, Copy)]
pub struct Shift<'a> {
    /// The verb that measured them.
    pub verb: Verb,
    /// The time of the comparison on the source's clock.
    pub end_ns: u64,
    /// The length of the intervals that are compared.
    pub interval_ns: u64,
    /// One comparison per key, in the order of the keys; segments in the order in which bytes pass them.
    pub compared: &'a [Comparison<ShiftKey>],
}

impl Shift<'_> {
    /// Returns the names of what is compared, in the singular and the plural, and of what is measured of it.
    pub fn nouns(verb: Verb) -> ((&'static str, &'static str), &'static str) {
        match verb {
            Verb::Stack => (("segment", "segments"), "bytes"),
            Verb::Response => (("group", "groups"), "responses"),
            _ => (("group", "groups"), "round trips"),
        }
    }
}

/// What is compared: the latencies of a segment, a group or a server are one distribution in each interval. Keys are kept
/// in files, so they hold names, which survive a restart of the host, and not numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShiftKey {
    /// A segment of the host, of `dwell stack`.
    Segment(Segment),
    /// A group of `dwell rtt`.
    RoundTrips(RoundTripKey),
    /// A server or a prefix of servers, of `dwell response`.
    Responses(ResponseKey),
}

/// A group of round trips.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct RoundTripKey {
    /// The addresses that answered, as in "192.0.2.0/24".
    pub prefix: String,
    /// The name of the prefix, from `--prefixes`.
    pub name: Option<String>,
    /// How the round trips were measured.
    pub method: String,
    /// The interface of the group: a name, or else a number. Null where a capture does not record it.
    pub interface: Option<String>,
    /// What encloses the packets, as in "vlan 7". Null if nothing does.
    pub tunnel: Option<String>,
}

/// A server or a prefix of servers. One of `server` and `prefix` is null.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ResponseKey {
    /// The server's address.
    pub server: Option<IpAddr>,
    /// The server's port. Null for a prefix, and where the key of its flows has no ports.
    pub port: Option<u16>,
    /// The transport protocol. Null for a prefix.
    pub proto: Option<String>,
    /// The addresses of the servers, as in "192.0.2.0/24", with `--summary=prefix`.
    pub prefix: Option<String>,
    /// How the responses were estimated.
    pub method: String,
}

impl fmt::Display for ShiftKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShiftKey::Segment(segment) => write!(f, "{} {}", segment.direction().name(), segment.name()),
            ShiftKey::RoundTrips(key) => key.fmt(f),
            ShiftKey::Responses(key) => key.fmt(f),
        }
    }
}

impl fmt::Display for RoundTripKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        write!(f, " {}", self.method)?;
        if let Some(interface) = &self.interface {
            write!(f, " on {interface}")?;
        }
        self.tunnel.as_ref().map_or(Ok(()), |tunnel| write!(f, " {tunnel}"))
    }
}

impl fmt::Display for ResponseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(proto) = &self.proto {
            write!(f, "{proto} ")?;
        }
        match (self.server, self.port) {
            (Some(server), Some(port)) => write!(f, "{}", std::net::SocketAddr::new(server, port))?,
            (Some(server), None) => write!(f, "{server}")?,
            (None, _) => f.write_str(self.prefix.as_deref().unwrap_or_default())?,
        }
        write!(f, " {}", self.method)
    }
}

/// The name of a compared figure in outputs.
pub(crate) fn figure_name(figure: Figure) -> &'static str {
    match figure {
        Figure::Median => "p50",
        Figure::P99 => "p99",
        Figure::Mean => "mean",
    }
}
