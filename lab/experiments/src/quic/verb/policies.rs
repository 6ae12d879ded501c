//! `dwell-lab quic policies`: returning clients of four servers, under each policy.

use std::{path::PathBuf, time::Duration};

use dwell_app::{
    Exit,
    args::{duration, positive_duration},
};
use serde::Serialize;

use super::{SCHEMA, ms, nanos};
use crate::{
    failure::Failure,
    print::{Columns, percent_to, ratio},
    quic::{self, Policy, PolicyOptions, PolicyResult, goals},
    star::{Common, save},
};

/// Share of returning clients that use 0-RTT with four servers, by balancing policy
///
/// Each client has an address of its own, and a new port for each connection. Clients arrive as Poisson
/// processes, but each has one connection at a time, and keeps it until it has a ticket and a token for the
/// next. A connection is eligible for 0-RTT if its client has connected before and has a ticket. A server
/// has one worker, whose work is to wait.
#[derive(Debug, clap::Args)]
pub struct Policies {
    /// Clients that return
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..=500))]
    clients: u16,
    /// A new address for each connection of a client, which no other connection has had
    #[arg(long)]
    new_addresses: bool,
    /// Rate of all clients together, in connections per second
    #[arg(long, value_name = "RATE", default_value_t = 150.0)]
    rate: f64,
    /// Exponent of the Zipf distribution of rates over clients; 0: all clients have the same rate
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    skew: f64,
    /// How long clients arrive, with each policy
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = positive_duration)]
    duration: Duration,
    /// Mean service time of a request, which is exponential
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    work: Duration,
    /// Round trip that is emulated, 0 to 2s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = rtt)]
    rtt: Duration,
    /// Bytes of an answer
    #[arg(long, value_name = "N", default_value_t = 1000)]
    bytes: u64,
    /// Tickets per connection
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    tickets: u8,
    /// Overload margin (`rtt` of zero-rtt), 0 to 30s: move a client only if its server's queue is this
    /// much longer than the shortest
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = margin)]
    margin: Duration,
    /// Balancing policies, run one after another
    #[arg(long, value_enum, value_name = "POLICY,...", value_delimiter = ',', default_values_t = Policy::ALL)]
    policies: Vec<Policy>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to keep a picture in
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Parses a margin within the range of the balancer's configuration.
fn margin(text: &str) -> Result<Duration, String> {
    at_most(Duration::from_secs(30), text)
}

/// Parses a round trip that is short enough for clients not to time out.
fn rtt(text: &str) -> Result<Duration, String> {
    at_most(Duration::from_secs(2), text)
}

fn at_most(max: Duration, text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > max => Err(format!("it is {max:?} at most")),
        time => Ok(time),
    }
}

#[derive(Serialize)]
struct PolicyRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    policy: &'static str,
    new_addresses: bool,
    connections: usize,
    returning: usize,
    eligible: usize,
    early: usize,
    early_ratio: Option<f64>,
    broken: usize,
    repeated: usize,
    by_token: u64,
    diverted: u64,
    first_byte_p50_ns: Option<u64>,
    first_byte_p90_ns: Option<u64>,
    first_byte_p99_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
    imbalance_ratio: Option<f64>,
    answered: &'a [usize],
}

const COLUMNS: Columns<15> = Columns([
    ("policy", -12),
    ("conns", 7),
    ("back", 7),
    ("eligible", 9),
    ("0-RTT", 8),
    ("0-RTT %", 10),
    ("broken", 7),
    ("token", 7),
    ("diverted", 9),
    ("p50 ms", 9),
    ("p90 ms", 9),
    ("p99 ms", 9),
    ("cpu ms", 9),
    ("imbalance", 11),
    ("  by server", 0),
]);

impl Policies {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(self.keep_in.as_deref())?;
        let format = self.common.format;
        format.say(&COLUMNS.heading())?;
        let options = PolicyOptions {
            clients: self.clients.into(),
            has_new_addresses: self.new_addresses,
            rate: self.rate,
            skew: self.skew,
            time: self.duration,
            work: self.work,
            bytes: self.bytes,
            tickets: self.tickets.into(),
            rtt: self.rtt,
            margin: self.margin,
            seed: self.seed,
        };
        let mut all = Vec::new();
        for policy in self.policies.iter().copied() {
            let run = quic::policies((&scene).into(), policy, &options)?;
            format.print(&self.record(policy, &run), || line(policy, &run))?;
            if let Some(error) = &run.error {
                format.say(&format!("          first error: {error}"))?;
            }
            all.push((policy, run));
        }
        let heading = format!(
            "{} clients, {} connections per second, four servers, round trip {:?}",
            self.clients, self.rate, self.rtt
        );
        save(self.keep_in.as_deref(), "policies.svg", &quic::by_policy(&heading, &all))?;
        self.common.judge(&goals::policies(self.new_addresses, &all))
    }

    fn record<'a>(&self, policy: Policy, run: &'a PolicyResult) -> PolicyRecord<'a> {
        PolicyRecord {
            kind: "lab.quic-policy",
            schema: SCHEMA,
            policy: policy.name(),
            new_addresses: self.new_addresses,
            connections: run.connections,
            returning: run.returning,
            eligible: run.eligible,
            early: run.early,
            early_ratio: run.early_share(),
            broken: run.broken,
            repeated: run.repeated,
            by_token: run.by_token,
            diverted: run.diverted,
            first_byte_p50_ns: nanos(run.quantile(0.5)),
            first_byte_p90_ns: nanos(run.quantile(0.9)),
            first_byte_p99_ns: nanos(run.quantile(0.99)),
            server_cpu_ns: nanos(run.cpu_each()),
            imbalance_ratio: run.imbalance(),
            answered: &run.answered,
        }
    }
}

fn line(policy: Policy, run: &PolicyResult) -> String {
    let answered: Vec<String> = run.answered.iter().map(|count| format!(" {count}")).collect();
    COLUMNS.row([
        &policy.name(),
        &run.connections,
        &run.returning,
        &run.eligible,
        &run.early,
        &percent_to(2, run.early_share()),
        &run.broken,
        &run.by_token,
        &run.diverted,
        &ms(run.quantile(0.5)),
        &ms(run.quantile(0.9)),
        &ms(run.quantile(0.99)),
        &ms(run.cpu_each()),
        &ratio(run.imbalance()),
        &format!(" {}", answered.concat()),
    ])
}
