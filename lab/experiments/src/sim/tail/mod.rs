//! `dwell-lab sim tail`: tail latencies behind the balancer's policy for TCP and others, in many settings.

#[cfg(test)]
mod closed_loop;
mod cluster;
mod placement;
mod settings;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::anyhow;
use dwell_app::{Exit, log::log, progress::Bar, stop::Stop};
use dwell_sim::report::table;
use serde::Serialize;

use self::{
    cluster::Cluster,
    placement::{Choices, Placement, Prequal, Weighted},
    settings::Setting,
};
use crate::{
    failure::Failure,
    goal::Goal,
    lb::MIN_P99_CUT,
    print::{Format, SCHEMA, percent_to},
};

/// Compare tail latencies behind `policy = "latency"` with those behind other policies, in many settings
///
/// Simulates clusters that differ in the number of servers, load, service times, length of connections, and in what goes
/// wrong, behind the balancer's own steering, Maglev, least connections, power of two and a policy after
/// Prequal, all with the same arrivals. Constants of the balancer are those that ship. Goals: p99 at least 40 %
/// below Maglev's, and at most 5 % above that of any other policy. docs/method/steering.md describes the model.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell-lab sim tail
  dwell-lab sim tail stalls ramps --runs 20
  dwell-lab sim tail --format jsonl | jq 'select(.policy == \"latency\")'")]
pub struct Args {
    /// Only settings whose names contain one of the words [default: all]
    words: Vec<String>,
    /// Runs of each policy in each setting, each with a seed of its own; the figures are means
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Random seed of the first run; each further run has one more
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Among how many servers a connection chooses, 1 to 4, or all: `choices` of the VIP
    #[arg(long, value_name = "N", default_value_t = Choices::All)]
    choices: Choices,
    /// Output format: text, or jsonl, one object per setting and policy
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The policies that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    Maglev,
    LeastConnections,
    PowerOfTwo,
    Prequal,
    Latency,
}

impl Policy {
    const ALL: [Policy; 5] =
        [Policy::Maglev, Policy::LeastConnections, Policy::PowerOfTwo, Policy::Prequal, Policy::Latency];

    fn placement(self, cluster: &Cluster, choices: Choices) -> Box<dyn Placement> {
        match self {
            Policy::Maglev => Box::new(Weighted::equal(cluster.servers, Choices::Of(1))),
            Policy::LeastConnections => Box::new(Weighted::equal(cluster.servers, Choices::All)),
            Policy::PowerOfTwo => Box::new(Weighted::equal(cluster.servers, Choices::Of(2))),
            Policy::Prequal => Box::new(Prequal::new(cluster.servers)),
            Policy::Latency => Box::new(Weighted::by_latency(cluster.servers, choices, cluster.interval)),
        }
    }
}

/// What came of a policy in a setting: means over the runs.
#[derive(Debug, Clone, Serialize)]
struct Tail {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    setting: &'static str,
    chosen_on: bool,
    policy: Policy,
    runs: u32,
    p50_ns: u64,
    p99_ns: u64,
}

/// The most by which p99 may be above that of any other policy.
const MAX_ABOVE: f64 = 0.05;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let is_wanted =
        |setting: &Setting| args.words.is_empty() || args.words.iter().any(|word| setting.name.contains(word));
    let settings: Vec<Setting> = settings::all().into_iter().filter(is_wanted).collect();
    if settings.is_empty() {
        let names: Vec<&str> = settings::all().iter().map(|setting| setting.name).collect();
        return Err(Failure::usage(anyhow!("no setting has such a name; there are {}", names.join(", "))));
    }
    let stop = Stop::listen(None)?;
    let quantiles = simulate(&settings, args, &stop);
    let mut goals = Vec::new();
    let mut rows = Vec::new();
    for setting in &settings {
        let tails: Vec<Tail> = Policy::ALL.into_iter().filter_map(|policy| tail(setting, policy, &quantiles)).collect();
        if args.format == Format::Jsonl {
            tails.iter().try_for_each(|tail| args.format.print(tail, String::new))?;
        }
        let compared = compared(&tails);
        let judged = judge(setting, compared);
        rows.push(row(setting, &tails, compared, &judged));
        goals.extend(judged);
    }
    let heading = [
        "p99 in ms",
        "Maglev",
        "least connections",
        "power of two",
        "Prequal",
        "latency",
        "below Maglev",
        "above the best",
        "",
    ];
    args.format.say(&table(&heading, &rows))?;
    if stop.is_asked() {
        log("stopped: settings without figures were not simulated");
        return Ok(Exit::Incomplete);
    }
    goals.iter().try_for_each(|goal| args.format.say(&goal.line()))?;
    Ok(Goal::exit(&goals))
}

/// The quantiles of a run: p50 and p99, in seconds.
struct Quantiles {
    setting: &'static str,
    policy: Policy,
    p50: f64,
    p99: f64,
}

/// Runs all policies in all settings, on all processors. A run is not simulated once a stop is asked for.
fn simulate(settings: &[Setting], args: &Args, stop: &Stop) -> Vec<Quantiles> {
    let seeds = (0..args.runs).map(|run| u64::from(args.seed) + u64::from(run));
    let jobs: Vec<(&Setting, Policy, u64)> = settings
        .iter()
        .flat_map(|setting| Policy::ALL.map(|policy| (setting, policy)))
        .flat_map(|(setting, policy)| seeds.clone().map(move |seed| (setting, policy, seed)))
        .collect();
    let bar = Bar::new(jobs.len() as u64, "runs");
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((setting, policy, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
            && !stop.is_asked()
        {
            let cluster = Cluster { seed: *seed, ..setting.cluster.clone() };
            let outcome = cluster.run(&mut *policy.placement(&cluster, args.choices));
            let [p50, p99] = [0.5, 0.99].map(|part| outcome.quantile(part, 0.0, cluster.seconds.into()));
            let quantiles = Quantiles { setting: setting.name, policy: *policy, p50, p99 };
            done.lock().unwrap_or_else(PoisonError::into_inner).push(quantiles);
            bar.advance(1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the means of the runs of a policy; `None` if there was none.
fn tail(setting: &Setting, policy: Policy, quantiles: &[Quantiles]) -> Option<Tail> {
    let of: Vec<&Quantiles> = quantiles.iter().filter(|of| of.setting == setting.name && of.policy == policy).collect();
    let mean_ns = |of_run: fn(&Quantiles) -> f64| {
        (of.iter().map(|quantiles| of_run(quantiles)).sum::<f64>() / of.len() as f64 * 1e9) as u64
    };
    (!of.is_empty()).then(|| Tail {
        kind: "lab.tail",
        schema: SCHEMA,
        setting: setting.name,
        chosen_on: setting.chosen_on,
        policy,
        runs: of.len() as u32,
        p50_ns: mean_ns(|of| of.p50),
        p99_ns: mean_ns(|of| of.p99),
    })
}

/// By how much p99 is below Maglev's, and above that of the best other policy.
fn compared(tails: &[Tail]) -> Option<(f64, f64)> {
    let p99 = |policy| tails.iter().find(|tail| tail.policy == policy).map(|tail| tail.p99_ns as f64);
    let (own, plain) = (p99(Policy::Latency)?, p99(Policy::Maglev)?);
    let others = tails.iter().filter(|tail| tail.policy != Policy::Latency).map(|tail| tail.p99_ns as f64);
    Some((1.0 - own / plain, own / others.fold(f64::INFINITY, f64::min) - 1.0))
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{} %", percent_to(0, Some(part))))
}

fn judge(setting: &Setting, compared: Option<(f64, f64)>) -> Vec<Goal> {
    let (cut, above) = (compared.map(|(cut, _)| cut), compared.map(|(_, above)| above));
    vec![
        Goal {
            holds: cut.map(|cut| cut >= MIN_P99_CUT),
            what: format!(
                "{}: p99 is {} below Maglev's, wanted: at least {}",
                setting.name,
                percent(cut),
                percent(Some(MIN_P99_CUT))
            ),
        },
        Goal {
            holds: above.map(|above| above <= MAX_ABOVE),
            what: format!(
                "{}: p99 is {} above that of the best other policy, wanted: at most {}",
                setting.name,
                percent(above),
                percent(Some(MAX_ABOVE))
            ),
        },
    ]
}

fn row(setting: &Setting, tails: &[Tail], compared: Option<(f64, f64)>, goals: &[Goal]) -> Vec<String> {
    let mark = if setting.chosen_on { " (chosen on)" } else { "" };
    let mut row = vec![format!("{}{mark}", setting.name)];
    row.extend(Policy::ALL.map(|policy| {
        let tail = tails.iter().find(|tail| tail.policy == policy);
        tail.map_or("-".to_owned(), |tail| format!("{:.1}", tail.p99_ns as f64 / 1e6))
    }));
    row.extend([compared.map(|(cut, _)| cut), compared.map(|(_, above)| above)].map(percent));
    row.push(match goals.iter().map(|goal| goal.holds).collect::<Option<Vec<bool>>>() {
        None => "not run".to_owned(),
        Some(held) if held.iter().all(|held| *held) => "met".to_owned(),
        Some(_) => "missed".to_owned(),
    });
    row
}
