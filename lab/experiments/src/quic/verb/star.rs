//! Four servers behind a balancer.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use dwell_app::{
    Exit,
    args::{duration, positive_duration},
};
use serde::Serialize;

use super::{SCHEMA, ms, nanos, percent};
use crate::{
    failure::Failure,
    quic::{
        self, Balanced, Change, ChangeOptions, Changed, MoveOptions, Moved, Policy, PolicyOptions, ReplayOptions,
        Replayed, Theft,
    },
};
use crate::{
    goal::Goal,
    star::{Common, Scene, save},
};

/// How connections are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Placing {
    /// By connection IDs, then by the address, unless that server has too much to do
    ZeroRtt,
    /// By addresses and ports
    #[value(name = "5-tuple")]
    FiveTuple,
    /// By the client's address
    Source,
}

impl From<Placing> for Policy {
    fn from(placing: Placing) -> Policy {
        match placing {
            Placing::ZeroRtt => Policy::ZeroRtt,
            Placing::FiveTuple => Policy::FiveTuple,
            Placing::Source => Policy::Source,
        }
    }
}

pub(super) fn lab(scene: &Scene) -> quic::Scene<'_> {
    quic::Scene { star: &scene.star, dwell: &scene.programs.dwell, folder: scene.folder.path() }
}

/// Clients that come back to four servers: who is answered as 0-RTT data, by how connections are placed
///
/// Each client has an address of its own, and a new port for each connection. Clients come as Poisson
/// processes, but each has one connection at a time, and keeps it until it has a ticket for the next. A
/// connection is eligible for 0-RTT if its client has been there before and has a ticket. A server has one
/// worker, whose work is a wait.
#[derive(Debug, clap::Args)]
pub struct Policies {
    /// Clients
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..=500))]
    clients: u16,
    /// Connections a second, of all clients together
    #[arg(long, value_name = "N", default_value_t = 150.0)]
    rate: f64,
    /// Exponent of the Zipf distribution of rates over clients; 0: all alike
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    skew: f64,
    /// For how long clients come, with each policy
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = positive_duration)]
    time: Duration,
    /// Mean of the exponential time that a request takes a server
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    work: Duration,
    /// Round trip that is emulated, 0 to 2s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = rtt)]
    rtt: Duration,
    /// Bytes of an answer
    #[arg(long, value_name = "N", default_value_t = 1000)]
    bytes: u64,
    /// Tickets a connection
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    tickets: u8,
    /// Mean round trip that zero-rtt is told (`rtt`): by so much longer must requests wait at a client's server than at the
    /// least loaded one before the client may be sent there; 0 to 30s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = margin)]
    margin: Duration,
    /// How connections are placed, in turns
    #[arg(long, value_enum, value_name = "POLICY,...", value_delimiter = ',', default_values_t = [Placing::ZeroRtt, Placing::FiveTuple, Placing::Source])]
    policies: Vec<Placing>,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep a picture in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// As long as the balancer takes it.
fn margin(text: &str) -> Result<Duration, String> {
    at_most(Duration::from_secs(30), text)
}

/// So that visits do not lose patience.
fn rtt(text: &str) -> Result<Duration, String> {
    at_most(Duration::from_secs(2), text)
}

fn at_most(most: Duration, text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > most => Err(format!("it is {most:?} at most")),
        time => Ok(time),
    }
}

/// What is wanted of eligible connections.
const WANTED: f64 = 0.99;

#[derive(Serialize)]
struct PolicyObject {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    policy: &'static str,
    connections: usize,
    returning: usize,
    eligible: usize,
    early: usize,
    early_ratio: Option<f64>,
    broken: usize,
    first_byte_p50_ns: Option<u64>,
    first_byte_p90_ns: Option<u64>,
    first_byte_p99_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
    imbalance_ratio: Option<f64>,
    answered: Vec<usize>,
}

impl Policies {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(self.keep.as_deref())?;
        let format = self.common.format;
        format.say(&format!(
            "{:<9}{:>7}{:>7}{:>9}{:>8}{:>10}{:>7}{:>9}{:>9}{:>9}{:>9}{:>11}  by server",
            "policy",
            "conns",
            "back",
            "eligible",
            "0-RTT",
            "",
            "broken",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "cpu ms",
            "imbalance"
        ))?;
        let mut all = Vec::new();
        for policy in self.policies.iter().map(|policy| Policy::from(*policy)) {
            let options = PolicyOptions {
                clients: self.clients.into(),
                rate: self.rate,
                skew: self.skew,
                time: self.time,
                work: self.work,
                bytes: self.bytes,
                tickets: self.tickets.into(),
                rtt: self.rtt,
                margin: self.margin,
                seed: self.seed,
            };
            let run = quic::policies(lab(&scene), policy, &options)?;
            format.print(&object(policy, &run), || line(policy, &run))?;
            if let Some(why) = &run.why {
                format.say(&format!("          first: {why}"))?;
            }
            all.push((policy, run));
        }
        let heading = format!(
            "{} clients, {} connections a second, four servers, round trip {:?}",
            self.clients, self.rate, self.rtt
        );
        save(self.keep.as_deref(), "policies.svg", &quic::by_policy(&heading, &all))?;
        self.common.judge(&checks(&all))
    }
}

fn object(policy: Policy, run: &Balanced) -> PolicyObject {
    PolicyObject {
        kind: "lab_quic_policy",
        schema: SCHEMA,
        policy: policy.name(),
        connections: run.visits,
        returning: run.returning,
        eligible: run.eligible,
        early: run.early,
        early_ratio: run.share(),
        broken: run.broken,
        first_byte_p50_ns: nanos(run.quantile(0.5)),
        first_byte_p90_ns: nanos(run.quantile(0.9)),
        first_byte_p99_ns: nanos(run.quantile(0.99)),
        server_cpu_ns: nanos(run.cpu_each()),
        imbalance_ratio: run.imbalance(),
        answered: run.answered.clone(),
    }
}

fn line(policy: Policy, run: &Balanced) -> String {
    let answered: Vec<String> = run.answered.iter().map(usize::to_string).collect();
    format!(
        "{:<9}{:>7}{:>7}{:>9}{:>8}{:>10}{:>7}{:>9}{:>9}{:>9}{:>9}{:>11}  {}",
        policy.name(),
        run.visits,
        run.returning,
        run.eligible,
        run.early,
        percent(run.share()),
        run.broken,
        ms(run.quantile(0.5)),
        ms(run.quantile(0.9)),
        ms(run.quantile(0.99)),
        ms(run.cpu_each()),
        run.imbalance().map_or_else(|| "-".to_owned(), |times| format!("{times:.2}")),
        answered.join(" ")
    )
}

fn checks(all: &[(Policy, Balanced)]) -> Vec<Goal> {
    let mut checks = Vec::new();
    for (policy, run) in all {
        if *policy == Policy::ZeroRtt {
            checks.push(Goal {
                holds: run.share().map(|share| share >= WANTED),
                what: format!("zero-rtt: {} of eligible connections used 0-RTT, wanted: 99 %", percent(run.share())),
            });
        }
        checks.push(Goal {
            holds: Some(run.broken == 0),
            what: format!("{}: {} connections broke, wanted: none", policy.name(), run.broken),
        });
    }
    checks
}

/// Clients that get another address and port in the middle of an answer, again and again
///
/// Under `zero-rtt`, by connection IDs, and under the address hash, which loses them: so that what is seen of
/// the one means something.
#[derive(Debug, clap::Args)]
pub struct Moves {
    /// Connections side by side
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(2..=200))]
    connections: u16,
    /// Moves of each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    moves: u16,
    /// How connections are placed, in turns
    #[arg(long, value_enum, value_name = "POLICY,...", value_delimiter = ',', default_values_t = [Placing::ZeroRtt, Placing::Source])]
    policies: Vec<Placing>,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct MoveObject {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    policy: &'static str,
    survived: usize,
    broken: usize,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
}

impl Moves {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let format = self.common.format;
        format.say(&format!(
            "{:<9}{:>9}{:>8}{:>9}{:>9}{:>9}",
            "policy", "survived", "broken", "p50 ms", "p99 ms", "max ms"
        ))?;
        let mut checks = Vec::new();
        for policy in self.policies.iter().map(|policy| Policy::from(*policy)) {
            let options =
                MoveOptions { connections: self.connections.into(), moves: self.moves.into(), seed: self.seed };
            let moved = quic::moves(lab(&scene), policy, &options)?;
            let object = move_object(policy, &moved);
            format.print(&object, || move_line(policy, &moved))?;
            let wanted = usize::from(self.connections) * usize::from(self.moves);
            checks.push(match policy {
                Policy::ZeroRtt => Goal {
                    holds: Some(moved.survived == wanted),
                    what: format!("zero-rtt: {} of {wanted} moves survived, wanted: all", moved.survived),
                },
                _ => Goal {
                    holds: Some(moved.broken > 0),
                    what: format!(
                        "{}: {} connections broke, wanted: some, as moves are real",
                        policy.name(),
                        moved.broken
                    ),
                },
            });
        }
        self.common.judge(&checks)
    }
}

fn move_object(policy: Policy, moved: &Moved) -> MoveObject {
    MoveObject {
        kind: "lab_quic_moves",
        schema: SCHEMA,
        policy: policy.name(),
        survived: moved.survived,
        broken: moved.broken,
        p50_ns: nanos(moved.quantile(0.5)),
        p99_ns: nanos(moved.quantile(0.99)),
        max_ns: nanos(moved.quantile(1.0)),
    }
}

fn move_line(policy: Policy, moved: &Moved) -> String {
    format!(
        "{:<9}{:>9}{:>8}{:>9}{:>9}{:>9}",
        policy.name(),
        moved.survived,
        moved.broken,
        ms(moved.quantile(0.5)),
        ms(moved.quantile(0.99)),
        ms(moved.quantile(1.0))
    )
}

/// First flights with 0-RTT data, recorded on their way and sent again from other addresses
///
/// In the end, a thief takes the sessions that each server still has, and tries to read what was recorded.
/// With a copy of what servers had before, he can.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// 0-RTT requests that are recorded
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    requests: u16,
    /// How often each is sent again
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    times: u16,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct ReplayObject {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    recorded: usize,
    tries: usize,
    looked_for: u64,
    repeated: usize,
    elsewhere: usize,
}

#[derive(Serialize)]
struct TheftObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    sessions_of: &'a str,
    sessions: usize,
    requests: usize,
    found: u64,
    read: usize,
}

impl Replay {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let options = ReplayOptions { requests: self.requests.into(), times: self.times.into() };
        let Replayed { recorded, tries, missed, repeated, elsewhere, copied, stolen } =
            quic::replay(lab(&scene), &options)?;
        let object = ReplayObject {
            kind: "lab_quic_replay",
            schema: SCHEMA,
            recorded,
            tries,
            looked_for: missed,
            repeated,
            elsewhere,
        };
        self.common.format.print(&object, || {
            format!(
                "{recorded} requests recorded, {tries} first flights sent again; servers looked for {missed} of their \
                 tickets in vain; {repeated} requests were done again"
            )
        })?;
        self.tell_of_thefts(&copied, &stolen)?;
        let found: u64 = stolen.iter().map(|theft| theft.found).sum();
        self.common.judge(&[
            Goal {
                holds: Some(repeated == 0 && elsewhere == 0),
                what: format!("{repeated} requests were done again, wanted: none"),
            },
            Goal {
                holds: Some(missed > 0),
                what: format!("{missed} tries came as far as a look for their ticket, wanted: some"),
            },
            Goal {
                holds: Some(found == 0),
                what: format!("{found} requests' sessions were found by who took a server afterwards, wanted: none"),
            },
            Goal {
                holds: Some(copied.read == recorded),
                what: format!(
                    "{} of {recorded} were read with a copy from before, wanted: all, as reading is real",
                    copied.read
                ),
            },
        ])
    }

    fn tell_of_thefts(&self, copied: &Theft, stolen: &[Theft]) -> Result<(), Failure> {
        let format = self.common.format;
        format.say(&format!(
            "\n{:<27}{:>9}{:>9}{:>7}{:>7}",
            "what a thief reads with", "sessions", "requests", "found", "read"
        ))?;
        let one = |whose: &str, theft: &Theft| {
            let object = TheftObject {
                kind: "lab_quic_theft",
                schema: SCHEMA,
                sessions_of: whose,
                sessions: theft.sessions,
                requests: theft.tries,
                found: theft.found,
                read: theft.read,
            };
            format.print(&object, || {
                format!("{whose:<27}{:>9}{:>9}{:>7}{:>7}", theft.sessions, theft.tries, theft.found, theft.read)
            })
        };
        one("copies from before each", copied)?;
        for (theft, number) in stolen.iter().zip(1..) {
            one(&format!("server{number}, afterwards"), theft)?;
        }
        Ok(())
    }
}

/// Keys rotated, a server removed and added again, while connections last and clients come back
#[derive(Debug, clap::Args)]
pub struct Changes {
    /// Connections that last from beginning to end
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..=200))]
    lasting: u16,
    /// Clients that come back
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=200))]
    returning: u16,
    /// Between two changes; the old key goes when no connection has an ID by it, if that is later
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pause: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct ChangeObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    change: &'static str,
    lasting_requests: usize,
    broken: usize,
    connections: usize,
    eligible: usize,
    early: usize,
    failed: usize,
    at_removed: usize,
    why: Option<&'a str>,
}

impl Changes {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let format = self.common.format;
        let options =
            ChangeOptions { lasting: self.lasting.into(), returning: self.returning.into(), pause: self.pause };
        format.say(&format!(
            "{:<15}{:>9}{:>7}{:>8}{:>9}{:>7}{:>7}{:>11}",
            "since", "requests", "broken", "visits", "eligible", "0-RTT", "failed", "at server4"
        ))?;
        let all = quic::changes(lab(&scene), &options)?;
        for (change, seen) in &all {
            format.print(&change_object(*change, seen), || change_line(*change, seen))?;
        }
        let sum = |of: fn(&Changed) -> usize| all.iter().map(|(_, seen)| of(seen)).sum::<usize>();
        let (broken, failed) = (sum(|seen| seen.broken), sum(|seen| seen.failed));
        self.common.judge(&[
            Goal {
                holds: Some(broken == 0),
                what: format!("{broken} of {} lasting connections broke, wanted: none", self.lasting),
            },
            Goal { holds: Some(failed == 0), what: format!("{failed} visits got no answer, wanted: none") },
        ])
    }
}

fn change_object(change: Change, seen: &Changed) -> ChangeObject<'_> {
    ChangeObject {
        kind: "lab_quic_change",
        schema: SCHEMA,
        change: change.name(),
        lasting_requests: seen.lasting,
        broken: seen.broken,
        connections: seen.visits,
        eligible: seen.eligible,
        early: seen.early,
        failed: seen.failed,
        at_removed: seen.at_removed,
        why: seen.why.as_deref(),
    }
}

fn change_line(change: Change, seen: &Changed) -> String {
    format!(
        "{:<15}{:>9}{:>7}{:>8}{:>9}{:>7}{:>7}{:>11}  {}",
        change.name(),
        seen.lasting,
        seen.broken,
        seen.visits,
        seen.eligible,
        seen.early,
        seen.failed,
        seen.at_removed,
        seen.why.as_deref().unwrap_or_default()
    )
}
