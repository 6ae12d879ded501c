//! `dwell-lab lb`: tails with and without steering by latency.

mod figures;

use std::{fs, path::PathBuf, time::Duration};

use clap::builder::PossibleValuesParser;
use dwell_app::{Exit, args::positive_duration, tell::tell};
use figures::Figures;
use serde::Serialize;

use crate::star::{Common, Scene, save};
use crate::{
    failure::Failure,
    lb::{self, Options, Outcome, Policy, Scenario, Work, by_load, over_time},
};

/// Balance connections over four servers by `dwell lb`, and print what clients wait with each policy
///
/// Two clients, the balancer and four servers in network namespaces of their own; servers answer the
/// clients directly. Clients open connections whether or not answers come (a Poisson process), each with
/// a few requests, one after the other. A server has one worker, whose work is a wait. Policies take
/// turns with the same arrivals. Latencies are as the clients measure them, of all requests of a run;
/// one that broke counts as longer than all others. --keep has tails by load and weights over time, and
/// what balancers said. Ends with status 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub struct Lb {
    /// Which to run, see below; tail if none is named
    #[arg(value_name = "SCENARIO", hide_possible_values = true, value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)))]
    scenarios: Vec<String>,
    /// Requests over what the servers can do, above 0 and below 1; by default as the scenario has it
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', value_parser = load)]
    loads: Vec<f64>,
    /// Runs of each policy at each load, with seeds one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// For how long clients open connections; by default as the scenario has it
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    time: Option<Duration>,
    /// Mean of the exponential time that a request takes a server
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = positive_duration)]
    work: Duration,
    /// Requests of a connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    requests: u32,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep pictures, and what balancers said, in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

const SCHEMA: &str = "dwell.lab_lb/1";

const EXAMPLES: &str = "\
Examples:
  sudo dwell-lab lb --runs 5 --keep out   tails by load, five runs each, with pictures
  sudo dwell-lab lb slowed killed         a server that is slow for a while, and one that dies
  sudo dwell-lab lb think --loads 0.7     estimates that are of clients, not of servers";

fn after_help() -> String {
    let line = |scenario: Scenario| format!("  {:<8}{}", scenario.name(), scenario.about());
    let lines = Scenario::ALL.map(line).join("\n");
    format!("Scenarios:\n{lines}\n\n{EXAMPLES}")
}

/// What a run came to.
#[derive(Serialize)]
struct Object {
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
    /// p99 of how late servers were, as the host was busy.
    late_p99_ns: u64,
    /// By server.
    answered: Vec<u64>,
    /// Times that weights changed, and how much of the table in all.
    changes: usize,
    disruption: f64,
}

pub fn run(args: &Lb) -> Result<Exit, Failure> {
    let scene = args.common.scene(args.keep.as_deref())?;
    let format = args.common.format;
    let mut checks = Vec::new();
    for scenario in chosen(&args.scenarios) {
        let runs = Runs { args, scenario, scene: &scene };
        let figures = runs.all()?;
        format.say("")?;
        format.say(&figures.table())?;
        if figures.has_loads() {
            let picture = by_load(&runs.heading(), &figures.bars());
            let name = format!("{}.svg", scenario.name());
            save(args.keep.as_deref(), &name, &picture)?;
        }
        checks.extend(figures.checks(scenario));
    }
    args.common.judge(&checks)
}

fn chosen(names: &[String]) -> Vec<Scenario> {
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
        tell(self.heading());
        self.args.common.format.say(&head())?;
        for load in loads {
            for run in 0..self.args.runs {
                // who is first takes turns too
                let mut policies = Policy::ALL;
                policies.rotate_left(run as usize % 2);
                for policy in policies {
                    let outcome = self.one(*load, run, policy)?;
                    figures.add(*load, policy, &outcome);
                }
            }
        }
        Ok(figures)
    }

    fn one(&self, load: f64, run: u32, policy: Policy) -> Result<Outcome, Failure> {
        let options = Options {
            scenario: self.scenario,
            policy,
            load,
            time: self.time(),
            work: Work::Exponential(self.args.work),
            requests: self.args.requests,
            seed: self.args.seed.wrapping_add(run.into()),
            dwell: self.scene.programs.dwell.clone(),
            folder: self.scene.folder.path().to_owned(),
        };
        let outcome = lb::run(&self.scene.star, &options)?;
        let object = self.object(load, run, policy, &outcome);
        self.args.common.format.print(&object, || object.line())?;
        if let Some(keep) = self.args.keep.as_deref() {
            let name = format!("{}-{load}-{run}-{}", self.scenario.name(), policy.name());
            let heading = format!("{}, load {load}, {}", self.scenario.about(), policy.name());
            let picture = over_time(&heading, &outcome, self.time());
            save(Some(keep), &format!("{name}.svg"), &picture)?;
            let said = self.scene.folder.path().join("balancer.out");
            let text = fs::read_to_string(said).unwrap_or_default();
            save(Some(keep), &format!("{name}.jsonl"), &text)?;
        }
        Ok(outcome)
    }

    fn time(&self) -> Duration {
        self.args.time.unwrap_or(self.scenario.time())
    }

    fn heading(&self) -> String {
        format!(
            "{}: {}; requests take {:?} on average, {} a connection, {:?} a run",
            self.scenario.name(),
            self.scenario.about(),
            self.args.work,
            self.args.requests,
            self.time()
        )
    }

    fn object(&self, load: f64, run: u32, policy: Policy, outcome: &Outcome) -> Object {
        let ns = |share| {
            let latency = outcome.quantile(share, Duration::ZERO, Duration::MAX);
            latency.map(|latency| latency.as_nanos() as u64)
        };
        Object {
            kind: "lab_lb",
            schema: SCHEMA,
            scenario: self.scenario.name(),
            load,
            run,
            policy: policy.name(),
            connections: outcome.seen.connections,
            requests: outcome.seen.answers.len() + outcome.seen.broken.len(),
            broken: outcome.seen.broken.len(),
            p50_ns: ns(0.5),
            p90_ns: ns(0.9),
            p99_ns: ns(0.99),
            late_p99_ns: outcome.late.as_nanos() as u64,
            answered: outcome.answered.clone(),
            changes: outcome.weighings.len(),
            disruption: outcome.weighings.iter().map(|w| w.disruption).sum(),
        }
    }
}

fn head() -> String {
    format!(
        "{:<8}{:>5}{:>4} {:<8}{:>9}{:>7}{:>9}{:>9}{:>9}{:>8}{:>8}  answered by",
        "", "load", "run", "policy", "requests", "broken", "p50 ms", "p90 ms", "p99 ms", "late ms", "changes"
    )
}

impl Object {
    fn line(&self) -> String {
        let ms = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6));
        let answered: Vec<String> = self.answered.iter().map(u64::to_string).collect();
        format!(
            "{:<8}{:>5}{:>4} {:<8}{:>9}{:>7}{:>9}{:>9}{:>9}{:>8}{:>8}  {}",
            self.scenario,
            self.load,
            self.run + 1,
            self.policy,
            self.requests,
            self.broken,
            ms(self.p50_ns),
            ms(self.p90_ns),
            ms(self.p99_ns),
            ms(Some(self.late_p99_ns)),
            self.changes,
            answered.join(" ")
        )
    }
}

fn load(text: &str) -> Result<f64, String> {
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
        assert_eq!(chosen(&[]), [Scenario::Tail]);
        let names = ["think".to_owned(), "slowed".to_owned()];
        assert_eq!(chosen(&names), [Scenario::Slowed, Scenario::Think]);
    }

    #[test]
    fn a_load_is_a_part() {
        assert_eq!(load("0.5"), Ok(0.5));
        for text in ["0", "1", "-0.1", "x", "NaN"] {
            assert!(load(text).is_err(), "{text}");
        }
    }
}
