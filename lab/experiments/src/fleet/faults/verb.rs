//! `dwell-lab fleet faults`.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration};
use dwell_testbed::signals::Signals;
use serde::Serialize;

use super::{FAULTS, Fault, figures::Figures};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{Columns, Format, SCHEMA},
};

/// What can go wrong between agents and their collector, and what of the agents' measurements is stored then
///
/// Runs `dwell collect` as it ships, agents, and one fault after the other: processes are killed, disks are full, the network is
/// cut, clocks are wrong, certificates expire, and others send what they should not. The exit status is 1 if a goal is missed: all
/// that is acknowledged is stored, once; a row says what is lost; the collector's memory is bounded; and agents with which
/// nothing is wrong are served within 30 s.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab fleet faults                    all of them
  sudo dwell-lab fleet faults --fault collector-killed,garbage --duration 10m")]
pub(in super::super) struct Faults {
    /// Faults, one after the other; without it all that this host has the programs for
    #[arg(long, value_name = "FAULT,...", value_delimiter = ',', value_parser = fault)]
    fault: Vec<Fault>,
    /// How long agents report during each
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// Random seed of the moments at which something is killed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format: text, or jsonl with one object per fault
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn fault(text: &str) -> Result<Fault, String> {
    let names = || FAULTS.map(|fault| fault.name).join(", ");
    FAULTS.into_iter().find(|fault| fault.name == text).ok_or_else(|| format!("write one of {}", names()))
}

/// An agent that is cut off has to notice it, and certificates are looked at every ten seconds.
fn duration(text: &str) -> Result<Duration, String> {
    match positive_duration(text)? {
        duration if duration >= Duration::from_secs(20) => Ok(duration),
        _ => Err("it is 20s at least".into()),
    }
}

/// What a fault has done.
#[derive(Serialize)]
struct Record {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    fault: &'static str,
    times: u64,
    rows_sent: u64,
    rows_acknowledged: u64,
    rows_stored: u64,
    rows_lost_with_a_row: u64,
    rows_lost_without: u64,
    rows_doubled: u64,
    rows_foreign: u64,
    batches_left: u64,
    memory_bytes: u64,
    delay_max_ns: Option<u64>,
    goals_met: bool,
}

const COLUMNS: Columns<9> = Columns([
    ("fault", -32),
    ("times", 8),
    ("acknowledged", 14),
    ("stored", 8),
    ("lost, noted", 12),
    ("unnoted", 8),
    ("doubled", 9),
    ("others s", 10),
    ("MiB", 6),
]);

pub(in super::super) fn run(args: &Faults) -> Result<Exit, Failure> {
    let programs = Programs::find()?;
    let signals = Signals::watch()?;
    let faults = if args.fault.is_empty() { &FAULTS[..] } else { &args.fault };
    args.format.say(&COLUMNS.heading())?;
    let mut goals = Vec::new();
    for fault in faults {
        if let Some(program) = fault.lacks() {
            goals.push(Goal { holds: None, what: format!("{}: there is no {program}", fault.name) });
            continue;
        }
        let figures = fault.run(args.duration, args.seed, &programs, &signals)?;
        let judged = figures.goals();
        let record = Record::of(&figures, Goal::exit(&judged) == Exit::Done);
        args.format.print(&record, || record.line(fault.what))?;
        goals.extend(judged);
    }
    args.format.say("")?;
    for goal in goals.iter().filter(|goal| goal.holds != Some(true)) {
        args.format.say(&goal.line())?;
    }
    if Goal::exit(&goals) == Exit::Done {
        args.format.say(&format!("ok    all {} goals are met", goals.len()))?;
    }
    Ok(Goal::exit(&goals))
}

impl Record {
    fn of(figures: &Figures, goals_met: bool) -> Record {
        Record {
            kind: "lab.fleet-fault",
            schema: SCHEMA,
            fault: figures.fault,
            times: figures.times,
            rows_sent: figures.sent,
            rows_acknowledged: figures.acknowledged,
            rows_stored: figures.stored,
            rows_lost_with_a_row: figures.told,
            rows_lost_without: figures.untold,
            rows_doubled: figures.doubled,
            rows_foreign: figures.foreign,
            batches_left: figures.left,
            memory_bytes: figures.memory_bytes,
            delay_max_ns: figures.slowest.flatten().map(|slowest| slowest.as_nanos() as u64),
            goals_met,
        }
    }

    fn line(&self, what: &str) -> String {
        COLUMNS.row([
            &what,
            &self.times,
            &self.rows_acknowledged,
            &self.rows_stored,
            &self.rows_lost_with_a_row,
            &self.rows_lost_without,
            &self.rows_doubled,
            &self.delay_max_ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e9)),
            &format!("{:.0}", self.memory_bytes as f64 / f64::from(1 << 20)),
        ])
    }
}
