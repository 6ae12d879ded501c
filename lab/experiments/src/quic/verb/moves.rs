//! `dwell-lab quic moves`: clients whose address changes.

use dwell_app::Exit;
use serde::Serialize;

use super::{SCHEMA, ms, nanos};
use crate::{
    failure::Failure,
    print::Columns,
    quic::{self, MoveOptions, Policy, goals},
    star::Common,
};

/// Clients that change their address and port again and again in the middle of an answer
///
/// Under `zero-rtt`, which routes by connection ID, connections must survive. The address hash loses them,
/// which shows that the moves are real.
#[derive(Debug, clap::Args)]
pub struct Moves {
    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(2..=200))]
    connections: u16,
    /// Moves per connection
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    moves: u16,
    /// Balancing policies, run one after another
    #[arg(long, value_enum, value_name = "POLICY,...", value_delimiter = ',', default_values_t = [Policy::ZeroRtt, Policy::Source])]
    policies: Vec<Policy>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct MoveRecord {
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

const COLUMNS: Columns<6> =
    Columns([("policy", -9), ("survived", 9), ("broken", 8), ("p50 ms", 9), ("p99 ms", 9), ("max ms", 9)]);

impl Moves {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let format = self.common.format;
        format.say(&COLUMNS.heading())?;
        let options = MoveOptions { connections: self.connections.into(), moves: self.moves.into(), seed: self.seed };
        let mut all = Vec::new();
        for policy in self.policies.iter().copied() {
            let run = quic::moves((&scene).into(), policy, &options)?;
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| run.quantile(share));
            let record = MoveRecord {
                kind: "lab.quic-moves",
                schema: SCHEMA,
                policy: policy.name(),
                survived: run.survived,
                broken: run.broken,
                p50_ns: nanos(p50),
                p99_ns: nanos(p99),
                max_ns: nanos(max),
            };
            format.print(&record, || {
                COLUMNS.row([&policy.name(), &run.survived, &run.broken, &ms(p50), &ms(p99), &ms(max)])
            })?;
            all.push(goals::moves(policy, &run, options.connections * options.moves));
        }
        self.common.judge(&all)
    }
}
