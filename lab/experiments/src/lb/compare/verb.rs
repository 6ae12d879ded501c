//! `dwell-lab lb compare`.

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use dwell_app::{Exit, args::positive_duration, log::log};
use dwell_testbed::signals::Signals;
use serde::Serialize;

use super::{Contender, Measured, busy, goals, programs::obstacle, run as run_contender};
use crate::{
    failure::Failure,
    figures::median,
    lb::{Options, Policy, Scenario, Work},
    print::{Columns, SCHEMA, millis},
    star::{Common, Scene},
};

/// `dwell lb`, HAProxy, nginx and IPVS on the same load, while one server is ten times slower for 10 s
///
/// Clients, servers and load are those of `dwell-lab lb slowed`, and balancers take turns. `dwell lb, maglev`
/// selects servers as Katran does. HAProxy and nginx pass on both directions of each connection; answers of
/// servers behind `dwell lb` and IPVS go to clients directly. Then 64 connections send one request after another as
/// fast as they are answered. A balancer that this host lacks is left out. The exit status is 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab lb compare                    all balancers once: 5 minutes
  sudo dwell-lab lb compare --runs 3           medians of three runs each
  sudo dwell-lab lb compare dwell haproxy      only these")]
pub struct Compare {
    /// Balancers to run [default: all]
    #[arg(value_enum)]
    balancers: Vec<Family>,
    /// Load, as a share of the servers' capacity while none is slow, above 0 and below 1
    #[arg(long, value_name = "LOAD", default_value = "0.4", value_parser = crate::lb::verb::load)]
    load: f64,
    /// How long clients open connections; the server is slow from 10 s to 20 s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    duration: Duration,
    /// Runs of each balancer, with consecutive seeds; medians are printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    Dwell,
    Haproxy,
    Nginx,
    Ipvs,
}

impl Family {
    pub(super) fn of(contender: Contender) -> Family {
        match contender {
            Contender::Latency | Contender::Maglev => Family::Dwell,
            Contender::HaproxyLeast | Contender::HaproxyTurns => Family::Haproxy,
            Contender::NginxLeast | Contender::NginxTurns => Family::Nginx,
            Contender::IpvsLeast | Contender::IpvsMaglev => Family::Ipvs,
        }
    }
}

/// When one server is slow, since the start.
const SLOW_FROM: Duration = Duration::from_secs(10);
const SLOW_UNTIL: Duration = Duration::from_secs(20);
/// Requests per connection, and the mean service time of a request.
const REQUESTS: u32 = 4;
const WORK: Duration = Duration::from_millis(5);

/// The figures of a contender: of one run, or medians over runs. Latencies are in milliseconds, and unknown if no
/// request was sent in that time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) broken: f64,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) slow_p50: Option<f64>,
    pub(super) slow_p99: Option<f64>,
    pub(super) after_p99: Option<f64>,
    /// Processor time per connection in microseconds.
    pub(super) balancer_us: Option<f64>,
    pub(super) all_us: Option<f64>,
    /// Requests per second of 64 busy connections.
    pub(super) busy_rate: Option<f64>,
}

impl Figures {
    fn of(load: &Measured, busy: &Measured) -> Figures {
        let ms = |share, from, until| {
            load.outcome.quantile(share, from, until).map(|latency: Duration| latency.as_secs_f64() * 1e3)
        };
        let connections = load.outcome.clients.connections.max(1) as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / connections;
        let lasted = busy.lasted().as_secs_f64();
        Figures {
            broken: load.outcome.clients.broken.len() as f64,
            p50: ms(0.5, Duration::ZERO, SLOW_FROM),
            p99: ms(0.99, Duration::ZERO, SLOW_FROM),
            slow_p50: ms(0.5, SLOW_FROM, SLOW_UNTIL),
            slow_p99: ms(0.99, SLOW_FROM, SLOW_UNTIL),
            after_p99: ms(0.99, SLOW_UNTIL, Duration::MAX),
            balancer_us: load.balancer.map(micros),
            all_us: Some(micros(load.all)),
            busy_rate: (lasted > 0.0).then(|| busy.outcome.clients.answers.len() as f64 / lasted),
        }
    }

    /// Medians over runs; unknown if a run does not know the figure.
    fn median(runs: &[Figures]) -> Figures {
        let known = |figure: fn(&Figures) -> Option<f64>| {
            let all: Option<Vec<f64>> = runs.iter().map(figure).collect();
            all.filter(|all| !all.is_empty()).map(|all| median(&all))
        };
        Figures {
            broken: runs.iter().map(|run| run.broken).sum(),
            p50: known(|run| run.p50),
            p99: known(|run| run.p99),
            slow_p50: known(|run| run.slow_p50),
            slow_p99: known(|run| run.slow_p99),
            after_p99: known(|run| run.after_p99),
            balancer_us: known(|run| run.balancer_us),
            all_us: known(|run| run.all_us),
            busy_rate: known(|run| run.busy_rate),
        }
    }
}

/// The figures of a run, or medians over all runs.
#[derive(Serialize)]
struct Record {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    balancer: &'static str,
    load: f64,
    /// `null` if these are medians.
    run: Option<u32>,
    broken: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    slow_p50_ms: Option<f64>,
    slow_p99_ms: Option<f64>,
    after_p99_ms: Option<f64>,
    balancer_us: Option<f64>,
    all_us: Option<f64>,
    busy_rate: Option<f64>,
}

pub(crate) fn run(args: &Compare) -> Result<Exit, Failure> {
    let scene = args.common.scene(None)?;
    // Without it the cost of programs in the kernel is unknown.
    let _counting = dwell_probes::count_run_times();
    let signals = Signals::watch()?;
    let (mut contenders, mut left_out) = (Vec::new(), Vec::new());
    for contender in Contender::ALL {
        if args.balancers.is_empty() || args.balancers.contains(&Family::of(contender)) {
            match obstacle(&scene.star, contender)? {
                Some(why) => {
                    log(format_args!("left out: {}: {why}", contender.name()));
                    left_out.push(format!("{:<21}not run: {why}", contender.name()));
                }
                None => contenders.push(contender),
            }
        }
    }
    if contenders.is_empty() {
        return Ok(Exit::Incomplete);
    }
    let mut figures: BTreeMap<Contender, Vec<Figures>> = BTreeMap::new();
    args.common.format.say(HEADING)?;
    args.common.format.say(&COLUMNS.heading())?;
    for run in 0..args.runs {
        for contender in &contenders {
            let found = run_once(args, &scene, run, *contender, &signals)?;
            let record = record(args, *contender, Some(run), &found);
            args.common.format.print(&record, || record.line())?;
            figures.entry(*contender).or_default().push(found);
        }
        // The one that runs first alternates too.
        contenders.rotate_left(1);
    }
    for line in &left_out {
        args.common.format.say(line)?;
    }
    let figures: BTreeMap<_, _> = figures.into_iter().map(|(who, runs)| (who, Figures::median(&runs))).collect();
    if args.runs > 1 {
        args.common.format.say("\nmedians; broken: in all runs")?;
        for (contender, found) in &figures {
            let record = record(args, *contender, None, found);
            args.common.format.print(&record, || record.line())?;
        }
    }
    args.common.judge(&goals::judge(&figures))
}

fn run_once(
    args: &Compare,
    scene: &Scene,
    run: u32,
    contender: Contender,
    signals: &Signals,
) -> Result<Figures, Failure> {
    let (dwell, folder) = (scene.programs.dwell.clone(), scene.folder.path().to_owned());
    let seed = args.seed.wrapping_add(run.into());
    let saturated = run_contender(&scene.star, &busy(seed, &dwell, &folder), contender, signals)?;
    let options = Options {
        scenario: Scenario::Slowed,
        policy: Policy::Maglev,
        load: args.load,
        time: args.duration,
        work: Work::Exponential(WORK),
        requests: REQUESTS,
        settings: Vec::new(),
        seed,
        dwell,
        folder,
    };
    Ok(Figures::of(&run_contender(&scene.star, &options, contender, signals)?, &saturated))
}

fn record(args: &Compare, contender: Contender, run: Option<u32>, figures: &Figures) -> Record {
    Record {
        kind: "lab.lb-compare",
        schema: SCHEMA,
        balancer: contender.name(),
        load: args.load,
        run,
        broken: figures.broken,
        p50_ms: figures.p50,
        p99_ms: figures.p99,
        slow_p50_ms: figures.slow_p50,
        slow_p99_ms: figures.slow_p99,
        after_p99_ms: figures.after_p99,
        balancer_us: figures.balancer_us,
        all_us: figures.all_us,
        busy_rate: figures.busy_rate,
    }
}

const HEADING: &str = "\
latencies in ms: from the start, while one server is ten times slower, and after that; µs of processor time per
connection: of the balancer, and of clients, servers and balancer; requests per second of 64 busy connections";
const COLUMNS: Columns<10> = Columns([
    ("", -21),
    ("broken", 6),
    ("p50", 8),
    ("p99", 8),
    ("slow p50", 10),
    ("p99", 8),
    ("after p99", 10),
    ("balancer µs", 13),
    ("all µs", 8),
    ("requests/s", 12),
]);

impl Record {
    fn line(&self) -> String {
        let ms = |ms: Option<f64>| millis(ms.map(|ms| ms * 1e6));
        let whole = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.0}"));
        COLUMNS.row([
            &self.balancer,
            &self.broken,
            &ms(self.p50_ms),
            &ms(self.p99_ms),
            &ms(self.slow_p50_ms),
            &ms(self.slow_p99_ms),
            &ms(self.after_p99_ms),
            &whole(self.balancer_us),
            &whole(self.all_us),
            &whole(self.busy_rate),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_unknown_if_a_run_does_not_know_it() {
        let run = |p50, balancer_us| Figures { broken: 1.0, p50: Some(p50), balancer_us, ..Figures::default() };
        let all = Figures::median(&[run(3.0, Some(1.0)), run(1.0, None), run(2.0, Some(1.0))]);
        assert_eq!((all.broken, all.p50, all.balancer_us), (3.0, Some(2.0), None));
    }

    #[test]
    fn phases_are_told_apart_by_when_requests_were_sent() {
        let mut load = Measured { all: Duration::from_micros(50), ..Measured::default() };
        load.outcome.clients.connections = 2;
        let at = |second: u64, ms: u64| (Duration::from_secs(second), Duration::from_millis(ms));
        load.outcome.clients.answers = vec![at(1, 5), at(12, 50), at(25, 7)];
        load.outcome.clients.broken = vec![Duration::from_secs(13)];
        let mut busy = Measured::default();
        busy.outcome.clients.answers = vec![at(0, 500), at(1, 1_000)];
        let figures = Figures::of(&load, &busy);
        assert_eq!((figures.p50, figures.slow_p50, figures.after_p99), (Some(5.0), Some(50.0), Some(7.0)));
        // A broken request is longer than all others.
        assert_eq!((figures.broken, figures.slow_p99), (1.0, Some(10_000.0)));
        assert_eq!((figures.all_us, figures.balancer_us, figures.busy_rate), (Some(25.0), None, Some(1.0)));
    }
}
