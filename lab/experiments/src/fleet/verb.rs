//! `dwell-lab fleet`.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration};
use dwell_testbed::signals::Signals;
use serde::Serialize;

use super::{Load, Outcome, agents::BUFFER, clickhouse::Size, faults, goals, measure};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{Columns, Format, SCHEMA, folders},
    values::positive,
};

/// What agents cost their collector, how soon their measurements are in its store, and whether all of them are
///
/// Runs `dwell collect` as it ships, and agents in this process, each with a key, an address, a connection and a clock
/// session of its own. What these report is made up: each of its flows has one stamped byte per interval, half of them
/// go to the next agent, and half come from the previous one. The store is read by SQL. The exit status is 1 if a goal
/// is missed: nothing is lost or doubled, an interval is in the store 15 s after its end, and the collector takes
/// less than one processor and at most 1 GiB. With --kill or --strangers it may take all of one, and 30 s.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  sudo dwell-lab fleet                           100 agents with 100 flows each
  sudo dwell-lab fleet --hosts 1,10,100,1000     one run after another
  sudo dwell-lab fleet --hosts 200 --interval 1s --duration 20s
  sudo dwell-lab fleet --hosts 20 --interval 1s --duration 200s --kill 100
                                                 is anything lost or doubled by SIGKILL?
  sudo dwell-lab fleet --hosts 20 --interval 1s --duration 80s --collectors 3 --kill 1
                                                 do others take over?
  sudo dwell-lab fleet --strangers 10000         do agents get through?
  sudo dwell-lab fleet faults                    what is stored when something goes wrong?")]
pub struct Fleet {
    #[command(subcommand)]
    verb: Option<FleetVerb>,
    /// Numbers of hosts, each with an agent; one run per number
    #[arg(long, value_name = "N,...", default_value = "100", value_delimiter = ',', value_parser = agents)]
    hosts: Vec<usize>,
    /// Flows that each agent reports in each interval
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = flows)]
    host_flows: usize,
    /// Length of an agent's interval
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    interval: Duration,
    /// How long agents report in each run
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    duration: Duration,
    /// Store in a ClickHouse server, which is started for each run, instead of an SQLite file
    #[arg(long)]
    clickhouse: bool,
    /// Have that server keep sums of 5 minutes and of hours too, as dist/clickhouse has it
    #[arg(long, requires = "clickhouse")]
    downsample: bool,
    /// Number of collectors, each with its own store; every agent is given all of them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "clickhouse", value_parser = clap::value_parser!(u8).range(1..=8))]
    collectors: u8,
    /// Kill the collector N times while agents report, at random moments, and start it again at once; one of several stays away
    /// for half of DURATION/N
    #[arg(long, value_name = "N", default_value_t = 0)]
    kill: usize,
    /// Connections that never say anything, each from an address of its own, and that come again when they are closed
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = strangers)]
    strangers: usize,
    /// Output format: text, or jsonl with one object per run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum FleetVerb {
    Faults(faults::Faults),
    #[command(hide = true)]
    Agent(faults::Member),
}

/// Most agents: the addresses, and more than a collector admits.
const MAX_AGENTS: usize = 20_000;
/// Most strangers: their descriptors.
const MAX_STRANGERS: usize = 30_000;
/// Most flows of an agent, as `dwell agent` has it.
const MAX_FLOWS: usize = 1024;

fn agents(text: &str) -> Result<usize, String> {
    positive(text).and_then(|number| at_most(number, MAX_AGENTS))
}

fn flows(text: &str) -> Result<usize, String> {
    positive(text).and_then(|number| at_most(number, MAX_FLOWS))
}

fn strangers(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number".to_owned()).and_then(|number| at_most(number, MAX_STRANGERS))
}

fn at_most(number: usize, most: usize) -> Result<usize, String> {
    if number <= most { Ok(number) } else { Err(format!("it is {most} at most")) }
}

fn interval(text: &str) -> Result<Duration, String> {
    match positive_duration(text)? {
        interval if (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&interval) => Ok(interval),
        _ => Err("it is 1s at least and 1h at most".into()),
    }
}

/// What a run found.
#[derive(Serialize)]
struct Record {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    store: &'static str,
    agents: usize,
    flows: usize,
    collectors: usize,
    interval_ns: u64,
    connected_ns: u64,
    batches_per_s: f64,
    rows_per_s: f64,
    cores: f64,
    cpu_ns_per_row: Option<f64>,
    wire_bytes_per_row: Option<f64>,
    store_bytes_per_row: Option<f64>,
    delay_p50_ns: Option<u64>,
    delay_p99_ns: Option<u64>,
    delay_max_ns: Option<u64>,
    memory_bytes: u64,
    bytes_per_agent: f64,
    bytes_per_flow: f64,
    threads: usize,
    turned_away: u64,
    disconnected: u64,
    rows_wanted: u64,
    rows_missing: u64,
    rows_doubled: u64,
    clocks: u64,
    path_rows: u64,
    kills: usize,
    down_max_ns: Option<u64>,
    strange_connections: u64,
    server_tables: Vec<Size>,
    goals_met: bool,
}

const COLUMNS: Columns<15> = Columns([
    ("agents", 6),
    ("flows", 8),
    ("here s", 8),
    ("batches/s", 11),
    ("rows/s", 9),
    ("cores", 7),
    ("us/row", 8),
    ("wire B/row", 12),
    ("p50 s", 8),
    ("p99 s", 7),
    ("worst s", 9),
    ("MiB", 6),
    ("KiB/agent", 11),
    ("turned away", 13),
    ("missing", 9),
]);

pub(crate) fn run(args: &Fleet) -> Result<Exit, Failure> {
    match &args.verb {
        Some(FleetVerb::Faults(args)) => return faults::run(args),
        Some(FleetVerb::Agent(args)) => return args.run(),
        None => {}
    }
    let programs = Programs::find()?;
    let signals = Signals::watch()?;
    args.format.say(&COLUMNS.heading())?;
    let mut goals = Vec::new();
    for agents in &args.hosts {
        let load = Load {
            agents: *agents,
            flows: args.host_flows,
            interval: args.interval,
            duration: args.duration,
            collectors: args.collectors.into(),
            kills: args.kill,
            strangers: args.strangers,
            has_server: args.clickhouse,
            is_downsampled: args.downsample,
            is_stamped: true,
            buffer: BUFFER,
        };
        let folder = folders("dwell-fleet-", None)?;
        let outcome = measure(load, &programs, folder.path(), &signals)?;
        let judged = goals::judge(&outcome);
        let record = Record::of(&outcome, Goal::exit(&judged) == Exit::Done);
        args.format.print(&record, || record.line())?;
        if let [.., longest] = outcome.down.as_slice() {
            let middle = outcome.down[outcome.down.len() / 2];
            let (kills, middle, longest) = (outcome.down.len(), middle.as_millis(), longest.as_millis());
            args.format
                .say(&format!("killed {kills} times; it listened again after {middle} ms, at most {longest} ms"))?;
        }
        if args.strangers > 0 {
            let opened = outcome.strange_connections;
            args.format.say(&format!("{} strangers opened {opened} connections", args.strangers))?;
        }
        for Size { table, rows, bytes } in &outcome.tables {
            let each = *bytes as f64 / *rows as f64;
            args.format.say(&format!("{table}: {rows} rows of {each:.1} bytes on the server's disk"))?;
        }
        goals.push((*agents, judged));
    }
    for (agents, goals) in &goals {
        args.format.say(&format!("\n{agents} agents:"))?;
        for goal in goals {
            args.format.say(&goal.line())?;
        }
    }
    Ok(Goal::exit(&goals.into_iter().flat_map(|(_, goals)| goals).collect::<Vec<_>>()))
}

impl Outcome {
    /// The processors that the collector has used on average.
    pub(super) fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    fn per_row(&self, sum: f64) -> Option<f64> {
        (self.rows > 0).then(|| sum / self.rows as f64)
    }

    fn delay_ns(&self, share: f64) -> Option<u64> {
        let last = self.delays.len().checked_sub(1)?;
        self.delays.get((last as f64 * share).round() as usize).map(|delay| delay.as_nanos() as u64)
    }
}

impl Record {
    fn of(outcome: &Outcome, goals_met: bool) -> Record {
        let Outcome { load, sent, seen, elapsed, memory_bytes: [alone, idle, most], .. } = outcome;
        let per_s = |count: u64| count as f64 / elapsed.as_secs_f64();
        let growth = |from: &u64, to: &u64, number: usize| to.saturating_sub(*from) as f64 / number as f64;
        Record {
            kind: "lab.fleet",
            schema: SCHEMA,
            store: if load.has_server { "clickhouse" } else { "sqlite" },
            agents: load.agents,
            flows: load.agents * load.flows,
            collectors: load.collectors,
            interval_ns: load.interval.as_nanos() as u64,
            connected_ns: outcome.connected.as_nanos() as u64,
            batches_per_s: per_s(outcome.batches),
            rows_per_s: per_s(outcome.rows),
            cores: outcome.cores(),
            cpu_ns_per_row: outcome.per_row(outcome.cpu.as_nanos() as f64),
            wire_bytes_per_row: outcome.per_row(outcome.wire_bytes as f64),
            store_bytes_per_row: outcome.per_row(outcome.store_bytes as f64),
            delay_p50_ns: outcome.delay_ns(0.5),
            delay_p99_ns: outcome.delay_ns(0.99),
            delay_max_ns: outcome.delay_ns(1.0),
            memory_bytes: *most,
            bytes_per_agent: growth(alone, idle, load.agents),
            bytes_per_flow: growth(idle, most, load.agents * load.flows),
            threads: outcome.threads,
            turned_away: sent.busy,
            disconnected: sent.disconnected,
            rows_wanted: sent.rows(),
            rows_missing: seen.missing,
            rows_doubled: seen.doubled,
            clocks: seen.clocks,
            path_rows: seen.paths,
            kills: outcome.down.len(),
            down_max_ns: outcome.down.last().map(|down| down.as_nanos() as u64),
            strange_connections: outcome.strange_connections,
            server_tables: outcome.tables.clone(),
            goals_met,
        }
    }

    fn line(&self) -> String {
        let seconds = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e9));
        let figure =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        COLUMNS.row([
            &self.agents,
            &self.flows,
            &seconds(Some(self.connected_ns)),
            &format!("{:.0}", self.batches_per_s),
            &format!("{:.0}", self.rows_per_s),
            &format!("{:.2}", self.cores),
            &figure(self.cpu_ns_per_row.map(|ns| ns / 1e3), 1),
            &figure(self.wire_bytes_per_row, 0),
            &seconds(self.delay_p50_ns),
            &seconds(self.delay_p99_ns),
            &seconds(self.delay_max_ns),
            &format!("{:.0}", self.memory_bytes as f64 / f64::from(1 << 20)),
            &format!("{:.0}", self.bytes_per_agent / 1024.0),
            &self.turned_away,
            &self.rows_missing,
        ])
    }
}
