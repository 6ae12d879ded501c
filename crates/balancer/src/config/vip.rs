//! VIPs, their backends, and how these are checked and weighed.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_engine::{
    balance::{Forward, Protocol, VipKey},
    steer::{IntervalsConfig, LatencyConfig, maglev},
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde::{Deserialize, Serialize};
use toml::de::DeValue;

use super::{
    DAY, MILLISECOND, MINUTE, Places, VipPlace,
    table::{Table, Wrong},
    value::{choice, flag, host, kind, number, text, time, whole},
    zero_rtt::{self, ZeroRtt},
};

/// A virtual address, and who stands behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Vip {
    /// By which it is told.
    pub name: String,
    /// What packets are to.
    pub key: VipKey,
    /// How weights are found.
    pub policy: PolicyName,
    /// How packets go to backends.
    pub forward: Forward,
    /// Places in its Maglev table: a prime.
    pub table_size: u32,
    /// New connections are placed by the client's address alone.
    pub by_source: bool,
    /// Its packets are QUIC.
    pub quic: bool,
    /// Response latency is estimated.
    pub measure: bool,
    /// How backends are checked; none if they are not.
    pub check: Option<Check>,
    /// Constants of the policy `latency`.
    pub latency: Latency,
    /// How packets are routed by the policy `zero-rtt`.
    pub zero_rtt: Option<ZeroRtt>,
    /// Who stands behind it, in the order of the file.
    pub backends: Vec<Backend>,
}

/// A server behind a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// By which it is told; its address unless named.
    pub name: String,
    /// Where packets for it go, and where it is checked.
    pub address: IpAddr,
    /// Its part of new connections, beside those of others. 0 gets none.
    pub weight: f64,
    /// By which connection IDs name it, if they do.
    #[serde(default)]
    pub server_id: Option<u64>,
}

/// How weights are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Those of the configuration.
    Maglev,
    /// Those of the configuration, and less for backends that answer late.
    Latency,
    /// Those that `dwell lb weight` last set.
    Weights,
    /// Those of the configuration; packets of QUIC go by connection ID, and new connections go where
    /// their client's 0-RTT works.
    ZeroRtt,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyName::Maglev => "maglev",
            PolicyName::Latency => "latency",
            PolicyName::Weights => "weights",
            PolicyName::ZeroRtt => "zero-rtt",
        })
    }
}

/// Constants of the policy `latency` (Appendix C of arXiv 2505.14358).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latency {
    /// How weights follow from latencies.
    pub steering: LatencyConfig,
    /// How latencies follow from connections.
    pub intervals: IntervalsConfig,
}

impl Latency {
    /// Reads `[latency]` of a table over what holds without it.
    pub(super) fn read(parent: &mut Table<'_>, defaults: &Latency) -> Latency {
        let mut latency = defaults.clone();
        let Some(mut table) = parent.table("latency") else {
            return latency;
        };
        let steering = &mut latency.steering;
        for (key, to, range) in [
            ("alpha_high", &mut steering.alpha_high, 1.0..=100.0),
            ("alpha_low", &mut steering.alpha_low, 1.0..=100.0),
            ("rate", &mut steering.rate, 0.0001..=1.0),
            ("cap", &mut steering.cap, 0.0001..=10.0),
            ("floor", &mut steering.floor, 0.0001..=1.0),
            ("unchanged", &mut steering.unchanged, 0.0..=10.0),
            ("regress", &mut steering.regress, 0.0..=1.0),
            ("freshness", &mut steering.freshness, 0.0..=1.0),
            ("doubt", &mut steering.doubt, 0.0..=10.0),
        ] {
            *to = table.get(key, number(range)).unwrap_or(*to);
        }
        let intervals = &mut latency.intervals;
        for (key, to, range) in [
            ("k", &mut steering.k, 1..=1000),
            ("forget", &mut steering.forget, 0..=1_000_000),
            ("min_connections", &mut intervals.min_connections, 2..=1000),
            ("look_back", &mut intervals.look_back, 1..=1000),
            ("most_responses", &mut intervals.most_responses, 1..=1_000_000),
        ] {
            *to = table.get(key, whole(range)).unwrap_or(*to);
        }
        let (low, high) = (steering.alpha_low, steering.alpha_high);
        if low > high {
            let wrong = Wrong::new(
                format!("alpha_low ({low}) is above alpha_high ({high})"),
                "a backend would both lose and gain: write a lower alpha_low",
            );
            table.fault(wrong, "alpha_low");
        } else if let Err(error) = steering.check().and_then(|()| intervals.check()) {
            table.fault(Wrong::new(error.to_string(), "write another value"), error.name);
        }
        table.finish();
        latency
    }
}

/// How backends are checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Check {
    /// What is asked.
    pub kind: Kind,
    /// At which port; 0 for ICMP.
    pub port: u16,
    /// Time from one check to the next.
    pub interval: Duration,
    /// Later answers are none.
    pub timeout: Duration,
    /// Good checks in a row that bring a backend back.
    pub rise: u32,
    /// Bad checks in a row that take it out.
    pub fall: u32,
}

/// What is asked of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To take a TCP connection.
    Tcp,
    /// To answer GET with a status.
    Http {
        /// What is asked for.
        path: String,
        /// The field Host; the backend's address without it.
        host: Option<String>,
        /// The status that is wanted.
        status: u16,
        /// By TLS, and whom to trust.
        tls: Option<Tls>,
    },
    /// To answer a datagram.
    Udp {
        /// What is sent.
        send: String,
    },
    /// To answer a ping.
    Icmp,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tcp => "tcp",
            Kind::Http { tls: None, .. } => "http",
            Kind::Http { .. } => "https",
            Kind::Udp { .. } => "udp",
            Kind::Icmp => "icmp",
        })
    }
}

/// Whom to trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Certificates of authorities, in DER; none if any certificate is taken.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// The name that the certificate must be for; the backend's address without it.
    pub name: Option<String>,
}

pub(super) fn read_all(root: &mut Table<'_>, path: &Path, latency: &Latency) -> (Vec<Vip>, Places) {
    let mut places = Places::default();
    let vips = root.tables("vip").into_iter().filter_map(|table| {
        let (vip, place) = read_vip(table, path, latency)?;
        places.vips.push(place);
        Some(vip)
    });
    (vips.collect(), places)
}

#[derive(Debug, Clone, Copy)]
enum ForwardName {
    L2,
    Ipip,
    Gue,
}

fn read_vip(mut table: Table<'_>, path: &Path, latency: &Latency) -> Option<(Vip, VipPlace)> {
    let name = table.require("name", "\"web\"", plain_name);
    let address = table.require("address", "\"192.0.2.10\"", host);
    let protocol =
        table.get("protocol", choice(&[("tcp", Protocol::Tcp), ("udp", Protocol::Udp)])).unwrap_or(Protocol::Tcp);
    let port = table.require("port", "443, or \"any\"", port_or_any);
    let policy = table.get(
        "policy",
        choice(&[
            ("maglev", PolicyName::Maglev),
            ("latency", PolicyName::Latency),
            ("weights", PolicyName::Weights),
            ("zero-rtt", PolicyName::ZeroRtt),
        ]),
    );
    let policy = policy.unwrap_or(PolicyName::Maglev);
    let forward = table.require(
        "forward",
        "\"ipip\", \"gue\" or \"l2\"",
        choice(&[("l2", ForwardName::L2), ("ipip", ForwardName::Ipip), ("gue", ForwardName::Gue)]),
    );
    // The port that IANA has for it.
    let gue_port = table.get("gue_port", whole(1..=65_535)).unwrap_or(6080);
    let latency = Latency::read(&mut table, latency);
    let is_latency = policy == PolicyName::Latency;
    let measure = table.get("measure", flag);
    if is_latency && measure == Some(false) {
        let wrong = Wrong::new(
            "the policy \"latency\" has nothing to go by without it",
            "write measure = true, or another policy",
        );
        table.fault(wrong, "measure");
    }
    let is_zero_rtt = policy == PolicyName::ZeroRtt;
    if is_zero_rtt && measure == Some(true) {
        let wrong = Wrong::new(
            "packets that go by connection ID are not measured: servers tell their load themselves",
            "take it out",
        );
        table.fault(wrong, "measure");
    }
    let quic = table.get("quic", flag).unwrap_or(is_zero_rtt);
    if quic && protocol == Protocol::Tcp {
        let wrong = Wrong::new("QUIC is no TCP", "write protocol = \"udp\"");
        table.fault(wrong, "quic");
    }
    let check = table.table("health").and_then(|health| read_check(health, path, port.flatten()));
    let (backends, backend_places): (Vec<Backend>, Vec<_>) =
        table.tables("backend").into_iter().filter_map(read_backend).unzip();
    let zero_rtt =
        is_zero_rtt.then(|| zero_rtt::read(&mut table, path, (protocol, port.flatten()), &backends)).flatten();
    let place = VipPlace {
        name: table.line_of("name"),
        address: table.line_of("address"),
        table_size: table.line_of("table_size"),
        backends: backend_places,
    };
    let vip = Vip {
        key: VipKey { address: address.unwrap_or(IpAddr::V4([0; 4].into())), protocol, port: port.flatten() },
        policy,
        forward: match forward {
            Some(ForwardName::Ipip) => Forward::Ipip,
            Some(ForwardName::Gue) => Forward::Gue(gue_port),
            _ => Forward::L2,
        },
        table_size: table.get("table_size", table_size).unwrap_or(65_537),
        by_source: table.get("hash", choice(&[("connection", false), ("source", true)])).unwrap_or(false),
        quic,
        measure: measure.unwrap_or(is_latency),
        check,
        latency,
        zero_rtt,
        backends,
        name: name.clone().unwrap_or_default(),
    };
    table.finish();
    (name.is_some() && address.is_some() && port.is_some()).then_some((vip, place))
}

fn read_backend(mut table: Table<'_>) -> Option<(Backend, (usize, usize))> {
    let address = table.require("address", "\"10.0.0.2\"", host);
    let name = table.get("name", plain_name);
    let weight = table.get("weight", number(0.0..=1_000_000.0)).unwrap_or(1.0);
    let server_id = table.get("server_id", whole(0..=i64::MAX));
    let places = (table.line_of("name"), table.line_of("address"));
    table.finish();
    let address = address?;
    let backend = Backend {
        name: name.unwrap_or_else(|| address.to_string()),
        address,
        weight,
        server_id: server_id.map(|id| id as u64),
    };
    Some((backend, places))
}

#[derive(Debug, Clone, Copy)]
enum KindName {
    Tcp,
    Http,
    Https,
    Udp,
    Icmp,
}

fn read_check(mut table: Table<'_>, path: &Path, vip_port: Option<u16>) -> Option<Check> {
    let kind = table.require(
        "kind",
        "\"tcp\", \"http\", \"https\", \"udp\" or \"icmp\"",
        choice(&[
            ("tcp", KindName::Tcp),
            ("http", KindName::Http),
            ("https", KindName::Https),
            ("udp", KindName::Udp),
            ("icmp", KindName::Icmp),
        ]),
    );
    let port = table.get("port", whole(1..=65_535)).or(vip_port);
    if port.is_none() && !matches!(kind, None | Some(KindName::Icmp)) {
        let wrong = Wrong::new("the VIP has any port, so none follows from it", "write port = and the port to check");
        table.fault(wrong, "port");
    }
    let interval = table.get("interval", time(100 * MILLISECOND..=DAY));
    let interval = interval.unwrap_or(Duration::from_secs(2));
    let timeout = table.get("timeout", time(10 * MILLISECOND..=MINUTE));
    let timeout = timeout.unwrap_or(interval.min(Duration::from_secs(1)));
    if timeout > interval {
        let wrong = Wrong::new(
            format!("{timeout:?} is longer than the interval, {interval:?}"),
            "write a shorter timeout or a longer interval",
        );
        table.fault(wrong, "timeout");
    }
    let kind = match kind {
        Some(KindName::Http) => Some(read_http(&mut table, None)),
        Some(KindName::Https) => {
            let tls = read_tls(&mut table, path);
            Some(read_http(&mut table, Some(tls)))
        }
        Some(KindName::Udp) => Some(Kind::Udp { send: table.get("send", text).unwrap_or_else(|| "dwell".into()) }),
        Some(KindName::Tcp) => Some(Kind::Tcp),
        Some(KindName::Icmp) => Some(Kind::Icmp),
        None => None,
    };
    let check = Check {
        kind: kind?,
        port: port.unwrap_or(0),
        interval,
        timeout,
        rise: table.get("rise", whole(1..=1000)).unwrap_or(2),
        fall: table.get("fall", whole(1..=1000)).unwrap_or(2),
    };
    table.finish();
    Some(check)
}

fn read_http(table: &mut Table<'_>, tls: Option<Tls>) -> Kind {
    Kind::Http {
        path: table.get("path", http_path).unwrap_or_else(|| "/".into()),
        host: table.get("host", header),
        status: table.get("status", whole(100..=599)).unwrap_or(200),
        tls,
    }
}

fn read_tls(table: &mut Table<'_>, path: &Path) -> Tls {
    let any = table.get("any_certificate", flag).unwrap_or(false);
    let name = table.get("tls_name", tls_name);
    let file = table.get("ca", text);
    if any == file.is_some() {
        let wrong = match any {
            true => Wrong::new("with any_certificate nothing is asked of authorities", "take one of the two out"),
            false => Wrong::new(
                "nothing says whose certificates to trust",
                "write ca = \"ca.pem\", or any_certificate = true",
            ),
        };
        table.fault(wrong, "ca");
    }
    let authorities = file.map(|file| {
        let file = path.parent().unwrap_or(Path::new("")).join(file);
        certificates(&file).unwrap_or_else(|wrong| {
            table.fault(wrong, "ca");
            Vec::new()
        })
    });
    Tls { authorities, name }
}

fn certificates(file: &PathBuf) -> Result<Vec<Vec<u8>>, Wrong> {
    let remedy = "name a file of certificates in PEM";
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Wrong::new(format!("'{}': {error}", file.display()), remedy))?;
    match read.is_empty() {
        true => Err(Wrong::new(format!("'{}' has no certificate", file.display()), remedy)),
        false => Ok(read.iter().map(|der| der.to_vec()).collect()),
    }
}

fn plain_name(value: &DeValue<'_>) -> Result<String, Wrong> {
    let name = text(value)?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
    if name.len() <= 64 && name.chars().all(is_plain) {
        return Ok(name);
    }
    Err(Wrong::new(format!("{name:?} is no name here"), "write up to 64 letters, digits and any of -_.:"))
}

fn http_path(value: &DeValue<'_>) -> Result<String, Wrong> {
    let path = text(value)?;
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(path);
    }
    Err(Wrong::new(format!("{path:?} is no path of HTTP"), "write one from / on, without spaces, as in \"/health\""))
}

fn header(value: &DeValue<'_>) -> Result<String, Wrong> {
    let host = text(value)?;
    if host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(host);
    }
    Err(Wrong::new(format!("{host:?} cannot stand in a header"), "write a name, as in \"www.example.com\""))
}

fn tls_name(value: &DeValue<'_>) -> Result<String, Wrong> {
    let name = text(value)?;
    match ServerName::try_from(name.as_str()) {
        Ok(_) => Ok(name),
        Err(_) => {
            Err(Wrong::new(format!("{name:?} is no name of a host"), "write the name that the certificates are for"))
        }
    }
}

fn port_or_any(value: &DeValue<'_>) -> Result<Option<u16>, Wrong> {
    match value {
        DeValue::String(word) if word == "any" => Ok(None),
        DeValue::Integer(_) => whole(1..=65_535)(value).map(Some),
        other => Err(kind(other, "a port", "a number, or \"any\"")),
    }
}

fn table_size(value: &DeValue<'_>) -> Result<u32, Wrong> {
    let size: u32 = whole(3..=5_000_011)(value)?;
    if maglev::is_prime(size) {
        return Ok(size);
    }
    let above = (size..).find(|number| maglev::is_prime(*number)).unwrap_or(65_537);
    Err(Wrong::new(format!("{size} is no prime"), format!("write {above}; Maglev's permutations need one")))
}
