//! `[[vip]]`: a virtual address, its policy and its backends.

use std::{fmt, net::IpAddr, path::Path};

use dwell_engine::{
    balance::{Forward, Protocol, Sampling, VipKey},
    steer::maglev,
};
use serde::{Deserialize, Serialize};
use toml::de::DeValue;

use super::{
    backend::{Backend, BackendLines},
    check::Check,
    latency::Latency,
    table::{Problem, Table},
    value::{choice, flag, host, kind_problem, plain_name, whole},
    zero_rtt::ZeroRtt,
};

/// How many backends a new TCP connection may go to: of these the one with the fewest open connections, for its weight,
/// gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choices {
    /// So many that the table names, 1 to 4.
    Of(u8),
    /// All; as of four where the VIP has more backends than a list holds ([`members`](dwell_engine::balance::members)), 127.
    All,
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choices::Of(choices) => write!(f, "{choices}"),
            Choices::All => f.write_str("\"all\""),
        }
    }
}

/// A virtual address, and how its connections are balanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Vip {
    /// The name in output and requests.
    pub name: String,
    /// The address, protocol and port that clients send to.
    pub key: VipKey,
    /// How the weights of backends are set.
    pub policy: PolicyName,
    /// How packets are forwarded to backends.
    pub forward: Forward,
    /// The number of entries in the Maglev table: a prime.
    pub table_size: u32,
    /// Whether a new connection's backend follows from the client's address alone, not from the whole connection.
    pub by_source: bool,
    /// Among how many backends a new TCP connection chooses.
    pub choices: Choices,
    /// Whether a connection that arrives here and began at another balancer gets a second chance at the backend that the
    /// table had for it before.
    pub second_chance: bool,
    /// Whether the packets are QUIC.
    pub quic: bool,
    /// The connections whose response latency is estimated; none if it is not.
    pub measure: Option<Sampling>,
    /// How backends are checked; none if they are not.
    pub check: Option<Check>,
    /// Constants of the policy `latency`.
    pub latency: Latency,
    /// How the policy `zero-rtt` routes packets; none with other policies.
    pub zero_rtt: Option<ZeroRtt>,
    /// The backends, in the order of the file.
    pub backends: Vec<Backend>,
}

/// How the weights of a VIP's backends are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "lb-policy")]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// By the configuration.
    Maglev,
    /// By the configuration, reduced for backends that respond slowly.
    Latency,
    /// By `dwell lb weight`.
    Weights,
    /// By the configuration. QUIC packets are routed by connection ID, and new connections go to the server that
    /// accepts their client's 0-RTT data.
    ZeroRtt,
}

impl PolicyName {
    /// The policies with their names, in the order of the enum.
    const ALL: &[(&str, PolicyName)] = &[
        ("maglev", PolicyName::Maglev),
        ("latency", PolicyName::Latency),
        ("weights", PolicyName::Weights),
        ("zero-rtt", PolicyName::ZeroRtt),
    ];
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PolicyName::ALL[*self as usize].0)
    }
}

/// The lines of a VIP's keys, for faults that follow from several tables.
#[derive(Debug)]
pub(super) struct VipLines {
    pub name: usize,
    pub address: usize,
    pub table_size: usize,
    pub backends: Vec<BackendLines>,
}

/// Generic UDP Encapsulation's port at IANA.
const GUE_PORT: u16 = 6080;

#[derive(Debug, Clone, Copy)]
enum ForwardName {
    L2,
    Ipip,
    Gue,
}

/// What VIPs have that do not say otherwise.
#[derive(Debug)]
pub(super) struct VipDefaults<'a> {
    pub latency: &'a Latency,
    /// Another balancer may get packets of a connection, and does not know how many each backend has here.
    pub is_one_of_several: bool,
}

impl Vip {
    /// Returns which connections stand for all where latency is measured.
    pub fn sampling(&self) -> Sampling {
        self.measure.unwrap_or_default()
    }

    /// Reads all VIPs. Files that they name are looked up next to the configuration at `path`.
    pub(super) fn read_all(root: &mut Table<'_>, path: &Path, defaults: &VipDefaults<'_>) -> (Vec<Vip>, Vec<VipLines>) {
        root.tables("vip").into_iter().filter_map(|table| Vip::read(table, path, defaults)).unzip()
    }

    fn read(mut table: Table<'_>, path: &Path, defaults: &VipDefaults<'_>) -> Option<(Vip, VipLines)> {
        let name = table.require("name", "\"web\"", plain_name);
        let address = table.require("address", "\"192.0.2.10\"", host);
        let protocol =
            table.get("protocol", choice(&[("tcp", Protocol::Tcp), ("udp", Protocol::Udp)])).unwrap_or(Protocol::Tcp);
        let port = table.require("port", "443, or \"any\"", port_or_any);
        let policy = table.get("policy", choice(PolicyName::ALL));
        let policy = policy.unwrap_or(PolicyName::Maglev);
        let forward = table.require(
            "forward",
            "\"ipip\", \"gue\" or \"l2\"",
            choice(&[("l2", ForwardName::L2), ("ipip", ForwardName::Ipip), ("gue", ForwardName::Gue)]),
        );
        let gue_port = table.get("gue_port", whole(1..=65_535)).unwrap_or(GUE_PORT);
        if !matches!(forward, None | Some(ForwardName::Gue)) {
            table.warn_of_no_effect("gue_port", "forward is not \"gue\"");
        }
        let second_chance = table.get("second_chance", flag).unwrap_or(false);
        if second_chance {
            check_second_chance(&mut table, protocol, forward);
        }
        let latency = Latency::read(&mut table, defaults.latency);
        let (measure, quic) = read_measure(&mut table, policy, protocol);
        let is_zero_rtt = policy == PolicyName::ZeroRtt;
        let by_source = table.get("hash", choice(&[("connection", false), ("source", true)])).unwrap_or(false);
        let may_choose = protocol == Protocol::Tcp && !by_source;
        let choices = read_choices(&mut table, may_choose, second_chance);
        let has_choices = policy == PolicyName::Latency && may_choose && !defaults.is_one_of_several && !second_chance;
        let may_tunnel =
            protocol == Protocol::Tcp && port.flatten().is_some() && !matches!(forward, Some(ForwardName::L2));
        let check = table.table("health").and_then(|health| Check::read(health, path, port.flatten(), may_tunnel));
        let (backends, backend_lines): (Vec<Backend>, Vec<_>) =
            table.tables("backend").into_iter().filter_map(|table| Backend::read(table, is_zero_rtt)).unzip();
        let zero_rtt = match is_zero_rtt {
            true => ZeroRtt::read(&mut table, path, (protocol, port.flatten()), &backends),
            false => {
                if table.table("zero_rtt").is_some() {
                    let problem =
                        Problem::new("the policy is not \"zero-rtt\"", "write policy = \"zero-rtt\", or remove it");
                    table.fault(problem, "zero_rtt");
                }
                None
            }
        };
        let lines = VipLines {
            name: table.line_of("name"),
            address: table.line_of("address"),
            table_size: table.line_of("table_size"),
            backends: backend_lines,
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
            by_source,
            choices: choices.unwrap_or(if has_choices { Choices::All } else { Choices::Of(1) }),
            second_chance,
            quic,
            measure,
            check,
            latency,
            zero_rtt,
            backends,
            name: name.clone().unwrap_or_default(),
        };
        table.finish();
        (name.is_some() && address.is_some() && port.is_some()).then_some((vip, lines))
    }
}

/// Checks that a VIP can have a second chance.
fn check_second_chance(table: &mut Table<'_>, protocol: Protocol, forward: Option<ForwardName>) {
    if protocol != Protocol::Tcp || matches!(forward, Some(ForwardName::L2)) {
        let problem = Problem::new(
            "`dwell lb decap` on the backend gives it, to TCP connections alone",
            "write forward = \"ipip\" or \"gue\", or remove it",
        );
        table.fault(problem, "second_chance");
    }
}

/// Reads which connections are measured, and whether the packets are QUIC, which cannot be.
fn read_measure(table: &mut Table<'_>, policy: PolicyName, protocol: Protocol) -> (Option<Sampling>, bool) {
    let measure = table.get("measure", measured);
    let (is_latency, is_zero_rtt) = (policy == PolicyName::Latency, policy == PolicyName::ZeroRtt);
    if is_latency && measure == Some(None) {
        let problem = Problem::new(
            "the policy \"latency\" works on measured latencies",
            "write measure = true or \"1/8\", or another policy",
        );
        table.fault(problem, "measure");
    }
    let is_measured = measure.flatten().is_some();
    if !is_latency && !is_measured {
        table.warn_of_no_effect("latency", "the policy is not \"latency\", and nothing is measured");
    }
    if is_zero_rtt && is_measured {
        let problem = Problem::new(
            "packets that are routed by connection ID are not measured: servers report their load themselves",
            "remove it",
        );
        table.fault(problem, "measure");
    }
    let quic = table.get("quic", flag).unwrap_or(is_zero_rtt);
    if quic && protocol == Protocol::Tcp {
        let problem = Problem::new("QUIC does not run over TCP", "write protocol = \"udp\"");
        table.fault(problem, "quic");
    }
    if is_latency && protocol == Protocol::Udp {
        let problem = Problem::new(
            "nothing in a datagram shows whether it asks or only acknowledges, so latencies of UDP are not known",
            "write policy = \"zero-rtt\" for QUIC, or \"maglev\" or \"weights\"",
        );
        table.fault(problem, "policy");
    } else if quic && is_measured && !is_zero_rtt {
        let problem =
            Problem::new("datagrams of QUIC that only acknowledge would count as requests", "remove it, or quic");
        table.fault(problem, "measure");
    }
    (measure.unwrap_or(is_latency.then(Sampling::default)), quic)
}

/// Reads among how many backends a new connection chooses, if it may. `None` if the file does not say it.
fn read_choices(table: &mut Table<'_>, may_choose: bool, second_chance: bool) -> Option<Choices> {
    let choices = table.get("choices", choices);
    let chooses = choices.is_some_and(|choices| choices != Choices::Of(1));
    if chooses && !may_choose {
        let problem = Problem::new(
            "only a TCP connection says when it begins, and with hash = \"source\" a client stays at one backend",
            "remove it",
        );
        table.fault(problem, "choices");
    }
    if chooses && second_chance {
        let problem =
            Problem::new("with second_chance, where a connection is must follow from the table alone", "remove it");
        table.fault(problem, "choices");
    }
    choices
}

/// Reads which connections are measured: all, none, or one of so many.
fn measured(value: &DeValue<'_>) -> Result<Option<Sampling>, Problem> {
    let text = match value {
        DeValue::Boolean(is_measured) => return Ok(is_measured.then(Sampling::default)),
        DeValue::String(text) => text,
        other => return Err(kind_problem(other, "a boolean or a share", "true, false, or a share as in \"1/8\"")),
    };
    let connections = text.strip_prefix("1/").and_then(|connections| connections.parse().ok());
    connections.and_then(Sampling::one_of).map(Some).ok_or_else(|| {
        Problem::new(
            format!("\"{text}\" is not one of a number of connections that is a power of two"),
            format!("write true, false, or a share from \"1/2\" to \"1/{}\", as in \"1/8\"", Sampling::MOST),
        )
    })
}

fn choices(value: &DeValue<'_>) -> Result<Choices, Problem> {
    match value {
        DeValue::String(word) if word == "all" => Ok(Choices::All),
        DeValue::Integer(_) => whole(1..=4)(value).map(Choices::Of),
        other => Err(kind_problem(other, "a number of backends", "1 to 4, or \"all\"")),
    }
}

fn port_or_any(value: &DeValue<'_>) -> Result<Option<u16>, Problem> {
    match value {
        DeValue::String(word) if word == "any" => Ok(None),
        DeValue::Integer(_) => whole(1..=65_535)(value).map(Some),
        other => Err(kind_problem(other, "a port", "a number, or \"any\"")),
    }
}

fn table_size(value: &DeValue<'_>) -> Result<u32, Problem> {
    let size: u32 = whole(3..=5_000_011)(value)?;
    if maglev::is_prime(size) {
        return Ok(size);
    }
    let above = (size..).find(|number| maglev::is_prime(*number)).unwrap_or(65_537);
    Err(Problem::new(format!("{size} is not prime"), format!("write {above}: Maglev's permutations need a prime")))
}
