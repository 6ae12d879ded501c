//! `dwell-lab lb several`.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration, log::log};
use serde::Serialize;

use super::{
    Outcome, Plan,
    breaks::{Break, alike},
    run as run_once,
};
use crate::{
    failure::Failure,
    goal::Goal,
    print::{Columns, SCHEMA, folders},
    star::Common,
};

/// Connections that survive while balancers come and go, weights move and routes change every second
///
/// One client holds connections to a VIP through three balancers, over which equal-cost multipath spreads them; each second the
/// routes have other weights and another order, so that most connections arrive at another balancer. The
/// balancers agree on weights through etcd. In each tenth of the time another one of three servers is slow, and another one
/// is drained for a while; in the fourth one a balancer dies with its host, and in the sixth another one
/// joins. A server answers each byte with its number: a connection is broken if another number comes, or none. This
/// runs without a second chance first, then with it. The exit status is 1 if a connection breaks with it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab lb several                        10,000 connections, a minute each: 3 minutes
  sudo dwell-lab lb several --connections 300 --duration 20s")]
pub struct Several {
    /// Connections that are open at any time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(4..=25_000))]
    connections: u32,
    /// How long routes and weights move in each run
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    duration: Duration,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// The figures of a run.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    second_chance: bool,
    /// Connections that were open at any time, and all that were opened.
    connections: u32,
    opened: u64,
    requests: u64,
    /// Changes of the routes, and sets of weights.
    rehashes: u64,
    sets: u64,
    /// Packets that could go on to further backends.
    second_chances: u64,
    broken: u64,
    /// How each of these broke.
    breaks: &'a [Break],
}

impl Record<'_> {
    fn of<'a>(args: &Several, has_second_chance: bool, outcome: &'a Outcome) -> Record<'a> {
        Record {
            kind: "lab.lb-several",
            schema: SCHEMA,
            second_chance: has_second_chance,
            connections: args.connections,
            opened: outcome.opened,
            requests: outcome.requests,
            rehashes: outcome.rehashes,
            sets: outcome.sets,
            second_chances: outcome.second_chances,
            broken: outcome.breaks.len() as u64,
            breaks: &outcome.breaks,
        }
    }

    fn line(&self) -> String {
        COLUMNS.row([
            &if self.second_chance { "second chance" } else { "without" },
            &self.opened,
            &self.requests,
            &self.rehashes,
            &self.sets,
            &self.second_chances,
            &self.broken,
        ])
    }
}

const COLUMNS: Columns<7> =
    Columns([("", -14), ("opened", 8), ("requests", 10), ("routes", 8), ("weights", 9), ("went on", 9), ("broken", 8)]);

pub fn run(args: &Several) -> Result<Exit, Failure> {
    let format = args.common.format;
    let programs = args.common.programs()?;
    log(format_args!("{} connections, {:?} per run", args.connections, args.duration));
    format.say(&COLUMNS.heading())?;
    let mut broken = Vec::new();
    let mut went_on = 0;
    for has_second_chance in [false, true] {
        let folder = folders("dwell-several-", None)?;
        let outcome = run_once(&Plan {
            has_second_chance,
            connections: args.connections as usize,
            time: args.duration,
            seed: args.seed,
            dwell: &programs.dwell,
            folder: folder.path(),
        })?;
        let record = Record::of(args, has_second_chance, &outcome);
        format.print(&record, || record.line())?;
        for (how, count) in alike(&outcome.breaks) {
            format.say(&format!("  {count}: {how}"))?;
        }
        broken.push(record.broken);
        went_on = record.second_chances;
    }
    args.common.judge(&judge(broken[0], broken[1], went_on))
}

/// Without a second chance connections must break: otherwise the run did not try what it is for.
fn judge(without: u64, with: u64, went_on: u64) -> [Goal; 2] {
    let tried = (without > 0 && went_on > 0).then_some(true);
    [
        Goal { holds: tried, what: format!("connections break without a second chance: {without}") },
        Goal::decided(with == 0, format!("no connection breaks with it: {with}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_tried_nothing_decides_nothing() {
        let exit = |without, with, went_on| Goal::exit(&judge(without, with, went_on));
        assert_eq!(exit(200, 0, 50), Exit::Done);
        assert_eq!(exit(0, 0, 50), Exit::Incomplete);
        assert_eq!(exit(200, 0, 0), Exit::Incomplete);
        assert_eq!(exit(200, 1, 50), Exit::False);
    }
}
