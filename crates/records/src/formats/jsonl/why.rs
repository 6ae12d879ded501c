//! Objects of `dwell why`.

use std::net::IpAddr;

use dwell_engine::why::{Cause, Certainty, Outcome, Part, Silences, Value};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Object, Objects,
    flow::{FlowObject, PodObject},
    object::{names, names_or_null},
    rounded,
};
use crate::{Cost, Why};

/// Labels of requests that are written.
const SLOWEST_REQUESTS: usize = 10;
/// One outcome of each kind.
const OUTCOMES: [Outcome; 4] = [Outcome::Slow(Cause::ALL[0]), Outcome::Healthy, Outcome::NoTraffic, Outcome::NotEnough];
const CERTAINTIES: [Certainty; 3] = [Certainty::Sure, Certainty::Likely, Certainty::Possible];

/// Why the connections of a target are slow. Times are sums over all connections.
#[derive(Serialize, JsonSchema)]
pub(super) struct VerdictObject<'a> {
    /// The target as the user named it.
    target: &'a str,
    /// What became of the question.
    #[schemars(extend("enum" = names(OUTCOMES, outcome_name)))]
    outcome: &'a str,
    /// The cause. Null unless the outcome is "slow".
    #[schemars(extend("enum" = names_or_null(Cause::ALL, Cause::name)))]
    cause: Option<&'a str>,
    /// How sure the verdict is. Null without a verdict.
    #[schemars(extend("enum" = names_or_null(CERTAINTIES, Certainty::name)))]
    certainty: Option<&'a str>,
    /// The verdict in one sentence.
    sentence: &'a str,
    /// All causes that hold, the one that explains most first.
    causes: Vec<CauseObject<'a>>,
    /// How long dwell looked.
    observed_ns: u64,
    /// The number of connections.
    connections: u64,
    /// The mean time between two polls of a connection: shorter waits cannot be distinguished. 0 for a capture.
    poll_interval_ns: u64,
    /// Time in which at least one end waited.
    active_ns: u64,
    /// Time in which neither end waited.
    idle_ns: u64,
    /// What the active time was spent on. The parts add up to it.
    parts: Vec<PartObject<'a>>,
    /// The evidence for and against the verdict.
    facts: Vec<FactObject<'a>>,
    /// What the connections have in common that waited for the cause, and not all connections share. Null if nothing.
    common: Option<CommonObject>,
    /// The worst of several connections: the one on which most time was spent on the cause. Null if there is one alone, or the time
    /// is that of no connection.
    worst: Option<WorstObject>,
    /// What the verdict is about: the connections on which most time was spent on the cause, or at all.
    about: AboutObject<'a>,
    /// The requests that were waited for longest in the mean, by label, the slowest first. Empty where no request was in
    /// clear, and without labels.
    requests: Vec<RequestsObject<'a>>,
    /// What could not be seen.
    unseen: Vec<UnseenObject<'a>>,
    /// What to do, the best first.
    remedies: Vec<RemedyObject<'a>>,
    /// What dwell itself used.
    cost: Cost,
}

/// A cause that holds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-cause")]
struct CauseObject<'a> {
    /// The cause.
    #[schemars(extend("enum" = names(Cause::ALL, Cause::name)))]
    cause: &'a str,
    /// The share of the active time that it explains.
    share: f64,
}

/// A part of the active time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-part")]
struct PartObject<'a> {
    /// The part.
    #[schemars(extend("enum" = names(Part::ALL, Part::name)))]
    part: &'a str,
    /// Its time.
    ns: u64,
    /// Its share of the active time.
    share: f64,
}

/// A fact. One of the figures is not null; all are where the fact is not known.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-fact")]
struct FactObject<'a> {
    /// What the figure is of.
    what: &'a str,
    /// A time.
    ns: Option<u64>,
    /// A share, from 0 to 1.
    share: Option<f64>,
    /// A number of things.
    count: Option<u64>,
    /// A number of bytes.
    bytes: Option<u64>,
    /// How it was measured.
    method: &'a str,
    /// Whether it speaks for the verdict; false if it speaks against it.
    speaks_for: bool,
}

/// What most of the connections that waited have in common.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-common")]
struct CommonObject {
    /// "peer", "prefix", "port" (of the server) or "pid".
    what: &'static str,
    /// The address, prefix, port or process.
    value: String,
    /// The name of the process with its unit or pod, as "nginx, nginx.service", or of the peer. Null where it is not known, and with
    /// `--no-names`.
    name: Option<String>,
    /// Their share of the time that was spent on the cause.
    share: f64,
}

/// The connection on which most time was spent on the cause.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-worst")]
struct WorstObject {
    /// The flow, from this host's end to the other; of a capture, from the end that is called local.
    flow: FlowObject,
    /// The part on which most of that time was spent.
    #[schemars(extend("enum" = names(Part::ALL, Part::name)))]
    part: &'static str,
    /// Its share of the time that was spent on the cause on all connections.
    share: f64,
}

/// Whose the connections are. Null is what is not known. With `--no-names` there are no names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-about")]
struct AboutObject<'a> {
    /// The address of the peer.
    peer: Option<IpAddr>,
    /// The name of the peer, and its network, as "db.example AS64496".
    peer_name: Option<String>,
    /// The port of the server.
    port: Option<u16>,
    /// The process of this host.
    pid: Option<u32>,
    /// The name of the process, at most 15 characters long.
    process: Option<&'a str>,
    /// The unit of systemd of the process, or the first 12 digits of its container's ID.
    unit: Option<&'a str>,
    /// The pod of Kubernetes of the process. The key is missing where it is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<PodObject>,
}

/// Requests that asked for the same.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-requests")]
struct RequestsObject<'a> {
    /// What they asked for, as "GET /index.html".
    label: &'a str,
    /// Their number.
    count: u64,
    /// The mean time from the last byte of a request to the first byte of its answer.
    mean_ns: u64,
    /// The longest such time.
    longest_ns: u64,
}

/// Something that could not be seen.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-unseen")]
struct UnseenObject<'a> {
    /// What.
    what: &'a str,
    /// The command or privilege that would show it.
    remedy: &'a str,
}

/// Something to do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "why-remedy")]
struct RemedyObject<'a> {
    /// The command.
    command: &'a str,
    /// What it does.
    effect: &'a str,
}

impl Object for VerdictObject<'_> {
    const KINDS: &'static [&'static str] = &["why.verdict"];
}

/// Writes the object of a verdict.
pub(super) fn verdict(why: &Why<'_>, objects: &mut Objects<'_>) {
    let (evidence, verdict) = (why.evidence, why.verdict);
    let cause = match verdict.outcome {
        Outcome::Slow(cause) => Some(cause.name()),
        Outcome::Healthy | Outcome::NoTraffic | Outcome::NotEnough => None,
    };
    let active = evidence.sums.times.total();
    let body = VerdictObject {
        target: &evidence.target.name,
        outcome: outcome_name(verdict.outcome),
        cause,
        certainty: verdict.certainty.map(|certainty| certainty.name()),
        sentence: &verdict.sentence,
        causes: verdict
            .ranked
            .iter()
            .map(|ranked| CauseObject { cause: ranked.cause.name(), share: rounded(ranked.share) })
            .collect(),
        observed_ns: evidence.observed_ns,
        connections: evidence.connections,
        poll_interval_ns: evidence.poll_interval_ns() as u64,
        active_ns: active as u64,
        idle_ns: evidence.sums.idle_ns as u64,
        parts: verdict
            .parts
            .iter()
            .map(|(part, ns)| PartObject { part: part.name(), ns: *ns as u64, share: rounded(ns / active) })
            .collect(),
        facts: verdict.facts.iter().map(fact).collect(),
        common: verdict.common.map(|common| CommonObject {
            what: common.what.kind(),
            value: common.what.to_string(),
            name: evidence.known.of(&common.what),
            share: rounded(common.share),
        }),
        worst: verdict.worst.map(|worst| WorstObject {
            flow: objects.tcp(&worst.ends),
            part: worst.part.name(),
            share: rounded(worst.share),
        }),
        about: about(why),
        requests: evidence.requests.slowest(SLOWEST_REQUESTS).into_iter().map(requests).collect(),
        unseen: verdict
            .unseen
            .iter()
            .map(|unseen| UnseenObject { what: &unseen.what, remedy: &unseen.remedy })
            .collect(),
        remedies: verdict
            .remedies
            .iter()
            .map(|remedy| RemedyObject { command: &remedy.command, effect: remedy.effect })
            .collect(),
        cost: why.cost,
    };
    objects.write(Some(why.end_ns), &body);
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Slow(_) => "slow",
        Outcome::Healthy => "healthy",
        Outcome::NoTraffic => "no-traffic",
        Outcome::NotEnough => "not-enough",
    }
}

fn about<'a>(why: &Why<'a>) -> AboutObject<'a> {
    let (about, names) = (&why.verdict.about, &why.evidence.known);
    let process = about.pid.and_then(|pid| names.processes.get(&pid));
    AboutObject {
        peer: about.peer,
        peer_name: about.peer.and_then(|peer| names.peer(peer)),
        port: about.port,
        pid: about.pid,
        process: process.and_then(|names| names.process.as_deref()),
        unit: process.and_then(|names| names.unit.as_deref()),
        pod: process.and_then(|names| names.pod.as_deref()).map(PodObject::from),
    }
}

fn requests<'a>((label, waits): (&'a str, Silences)) -> RequestsObject<'a> {
    let mean_ns = waits.mean_ns().unwrap_or(0.0) as u64;
    RequestsObject { label, count: waits.count, mean_ns, longest_ns: waits.longest_ns }
}

fn fact(fact: &dwell_engine::why::Fact) -> FactObject<'static> {
    let mut object = FactObject {
        what: fact.what,
        ns: None,
        share: None,
        count: None,
        bytes: None,
        method: fact.method,
        speaks_for: fact.speaks_for,
    };
    match fact.value {
        Some(Value::Time(ns)) => object.ns = Some(ns as u64),
        Some(Value::Share(share)) => object.share = Some(rounded(share)),
        Some(Value::Count(count)) => object.count = Some(count),
        Some(Value::Bytes(bytes)) => object.bytes = Some(bytes),
        None => {}
    }
    object
}
