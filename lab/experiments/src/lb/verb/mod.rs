//! `dwell-lab lb`: tail latencies with and without steering by latency.

mod figures;

use std::{fs, path::PathBuf, time::Duration};

use clap::{Subcommand, builder::PossibleValuesParser};
use dwell_app::{Exit, args::positive_duration, log::log};
use dwell_engine::units::nanos;
use serde::Serialize;

use crate::{
    failure::Failure,
    lb::{
        self, Options, Outcome, Policy, Scenario, Work, by_load,
        compare::verb::{self as compare, Compare},
        goals, over_time,
        several::verb::{self as several, Several},
    },
    print::{Columns, SCHEMA, millis},
    star::{Common, Scene, save},
};

pub(super) use figures::Figures;

/// Response latencies of clients whose connections `dwell lb` balances over four servers, by policy
///
/// Two clients, the balancer and four servers run in network namespaces of their own; servers answer the
/// clients directly. Clients open connections as a Poisson process, whether or not answers come, and send
/// a few requests on each, one after another. A server has one worker, whose work is to wait; in `shared` and
/// `limited` it computes, in a cgroup with a CPU limit. The policies alternate and see the same arrivals. Latencies are measured by the clients over all requests of a run;
/// a broken request counts as longer than all others. --keep-in saves charts of tails by load and of weights
/// over time, and the output of balancers. The exit status is 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help(), args_conflicts_with_subcommands = true)]
pub struct Lb {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Scenarios to run, see below [default: tail]
    #[arg(value_name = "SCENARIO", hide_possible_values = true, value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)))]
    scenarios: Vec<String>,
    /// Loads, as a share of the servers' capacity, above 0 and below 1 [default: the scenario's]
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', value_parser = load)]
    loads: Vec<f64>,
    /// Runs of each policy at each load, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long clients open connections [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,
    /// Mean service time of a request, which is exponential [default: 5ms, shared and limited: 400us]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    work: Option<Duration>,
    /// Requests of a connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    requests: u32,
    /// Set KEY to VALUE, a key of the balancer's configuration, as in estimator=pirate, interval=1s, latency.rate=0.05 or vip.choices=1
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to keep charts and the output of balancers in
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Compare(Compare),
    Several(Several),
}

const EXAMPLES: &str = "\
Examples:
  sudo dwell-lab lb --runs 5 --keep-in out   tails by load, five runs each, with pictures
  sudo dwell-lab lb slowed killed         a server that is slow for a while, and one that dies
  sudo dwell-lab lb compare               HAProxy, nginx and IPVS on the same load
  sudo dwell-lab lb several               do connections survive when balancers come and go?
  sudo dwell-lab lb think --loads 0.7     estimates that measure clients, not servers
  sudo dwell-lab lb shared --requests 20 --set estimator=pirate
                                          the paper's estimator, servers with noisy neighbours";

fn after_help() -> String {
    let line = |scenario: Scenario| format!("  {:<8}{}", scenario.name(), scenario.about());
    let lines = Scenario::ALL.map(line).join("\n");
    format!("Scenarios:\n{lines}\n\n{EXAMPLES}")
}

/// The figures of a run.
#[derive(Serialize)]
struct RunRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    scenario: &'static str,
    load: f64,
    run: u32,
    policy: &'static str,
    connections: u64,
    requests: usize,
    broken: usize,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    /// p99 of the delay of answers because the host was busy; `null` if servers compute.
    late_p99_ns: Option<u64>,
    /// Answers of each server.
    answered: Vec<u64>,
    /// Number of changes of weights, and the share of the table that they changed in total.
    changes: usize,
    disruption: f64,
}

pub fn run(args: &Lb) -> Result<Exit, Failure> {
    match &args.verb {
        Some(Verb::Compare(compare)) => return compare::run(compare),
        Some(Verb::Several(several)) => return several::run(several),
        None => {}
    }
    let scene = args.common.scene(args.keep_in.as_deref())?;
    let format = args.common.format;
    let mut all_goals = Vec::new();
    for scenario in selected(&args.scenarios) {
        let runs = Runs { args, scenario, scene: &scene };
        let figures = runs.all()?;
        format.say("")?;
        format.say(&figures.table())?;
        if figures.has_loads() {
            let picture = by_load(&runs.heading(), &figures.percentiles());
            let name = format!("{}.svg", scenario.name());
            save(args.keep_in.as_deref(), &name, &picture)?;
        }
        all_goals.extend(goals::judge(scenario, &figures));
    }
    args.common.judge(&all_goals)
}

fn selected(names: &[String]) -> Vec<Scenario> {
    let is_named = |scenario: &Scenario| names.iter().any(|name| name == scenario.name());
    match names {
        [] => vec![Scenario::Tail],
        _ => Scenario::ALL.into_iter().filter(is_named).collect(),
    }
}

/// All runs of a scenario.
struct Runs<'a> {
    args: &'a Lb,
    scenario: Scenario,
    scene: &'a Scene,
}

impl Runs<'_> {
    fn all(&self) -> Result<Figures, Failure> {
        let mut figures = Figures::default();
        let loads = match self.args.loads.as_slice() {
            [] => self.scenario.loads(),
            loads => loads,
        };
        log(self.heading());
        self.args.common.format.say(&COLUMNS.heading())?;
        for load in loads {
            for run in 0..self.args.runs {
                // The policy that runs first alternates too.
                let mut policies = Policy::ALL;
                policies.rotate_left(run as usize % 2);
                for policy in policies {
                    let outcome = self.run_once(*load, run, policy)?;
                    figures.add(*load, policy, &outcome);
                }
            }
        }
        Ok(figures)
    }

    fn run_once(&self, load: f64, run: u32, policy: Policy) -> Result<Outcome, Failure> {
        let options = Options {
            scenario: self.scenario,
            policy,
            load,
            time: self.time(),
            work: Work::Exponential(self.work()),
            requests: self.args.requests,
            settings: self.args.set.clone(),
            seed: self.args.seed.wrapping_add(run.into()),
            dwell: self.scene.programs.dwell.clone(),
            folder: self.scene.folder.path().to_owned(),
        };
        let outcome = lb::run(&self.scene.star, &options)?;
        let record = self.record(load, run, policy, &outcome);
        self.args.common.format.print(&record, || record.line())?;
        if let Some(keep) = self.args.keep_in.as_deref() {
            let name = format!("{}-{load}-{run}-{}", self.scenario.name(), policy.name());
            let heading = format!("{}, load {load}, {}", self.scenario.about(), policy.name());
            let picture = over_time(&heading, &outcome, self.time());
            save(Some(keep), &format!("{name}.svg"), &picture)?;
            let output = self.scene.folder.path().join("balancer.out");
            let text = fs::read_to_string(output).unwrap_or_default();
            save(Some(keep), &format!("{name}.jsonl"), &text)?;
        }
        Ok(outcome)
    }

    fn time(&self) -> Duration {
        self.args.duration.unwrap_or(self.scenario.time())
    }

    fn work(&self) -> Duration {
        self.args.work.unwrap_or(self.scenario.work())
    }

    fn heading(&self) -> String {
        let set = self.args.set.iter().map(|line| format!("; {}", line.trim_end()));
        format!(
            "{}: {}; mean service time {:?}, {} requests per connection, {:?} per run{}",
            self.scenario.name(),
            self.scenario.about(),
            self.work(),
            self.args.requests,
            self.time(),
            set.collect::<String>()
        )
    }

    fn record(&self, load: f64, run: u32, policy: Policy, outcome: &Outcome) -> RunRecord {
        let ns = |share| {
            let latency = outcome.quantile(share, Duration::ZERO, Duration::MAX);
            latency.map(nanos)
        };
        RunRecord {
            kind: "lab.lb",
            schema: SCHEMA,
            scenario: self.scenario.name(),
            load,
            run,
            policy: policy.name(),
            connections: outcome.clients.connections,
            requests: outcome.clients.answers.len() + outcome.clients.broken.len(),
            broken: outcome.clients.broken.len(),
            p50_ns: ns(0.5),
            p90_ns: ns(0.9),
            p99_ns: ns(0.99),
            late_p99_ns: outcome.late_p99.map(nanos),
            answered: outcome.answered.clone(),
            changes: outcome.weight_changes.len(),
            disruption: outcome.weight_changes.iter().map(|change| change.disruption).sum(),
        }
    }
}

const COLUMNS: Columns<12> = Columns([
    ("", -8),
    ("load", 5),
    ("run", 4),
    (" policy", -9),
    ("requests", 9),
    ("broken", 7),
    ("p50 ms", 9),
    ("p90 ms", 9),
    ("p99 ms", 9),
    ("late ms", 8),
    ("changes", 8),
    ("  by server", 0),
]);

impl RunRecord {
    fn line(&self) -> String {
        let ms = |ns: Option<u64>| millis(ns.map(|ns| ns as f64));
        let answered: Vec<String> = self.answered.iter().map(|count| format!(" {count}")).collect();
        COLUMNS.row([
            &self.scenario,
            &self.load,
            &(self.run + 1),
            &format!(" {}", self.policy),
            &self.requests,
            &self.broken,
            &ms(self.p50_ns),
            &ms(self.p90_ns),
            &ms(self.p99_ns),
            &ms(self.late_p99_ns),
            &self.changes,
            &format!(" {}", answered.concat()),
        ])
    }
}

/// Turns KEY=VALUE into a line of TOML.
fn setting(text: &str) -> Result<String, String> {
    let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    match text.split_once('=') {
        Some((key, value)) if is_key(key) && value.parse::<f64>().is_ok() => Ok(format!("{key} = {value}\n")),
        Some((key, value)) if is_key(key) => Ok(format!("{key} = {value:?}\n")),
        _ => Err("write a key of lb.toml and its value, as in estimator=pirate".into()),
    }
}

pub(super) fn load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(load) if load > 0.0 && load < 1.0 => Ok(load),
        _ => Err("write loads above 0 and below 1, as in 0.3,0.5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_run_in_their_order_and_tail_if_none_is_named() {
        assert_eq!(selected(&[]), [Scenario::Tail]);
        let names = ["think".to_owned(), "slowed".to_owned()];
        assert_eq!(selected(&names), [Scenario::Slowed, Scenario::Think]);
    }

    #[test]
    fn settings_become_lines_of_toml() {
        assert_eq!(setting("estimator=pirate").unwrap(), "estimator = \"pirate\"\n");
        assert_eq!(setting("latency.rate=0.05").unwrap(), "latency.rate = 0.05\n");
        for wrong in ["estimator", "=1", "[latency]=1", "a b=1"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_is_a_share() {
        assert_eq!(load("0.5"), Ok(0.5));
        for text in ["0", "1", "-0.1", "x", "NaN"] {
            assert!(load(text).is_err(), "{text}");
        }
    }
}
