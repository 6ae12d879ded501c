//! `dwell-lab sim paper`: the tables of the TrafficGrinder paper.

use std::{fmt::Write, path::PathBuf};

use dwell_app::{Exit, log::log, progress::Bar, stop::Stop};
use dwell_sim::{
    Estimate, Policy, Scenario, TraceConfig,
    report::{self, Part},
    study::{Summary, jobs, study},
};

use super::goals;
use crate::{failure::Failure, goal::Goal, print::Format};

/// Print the tables of the TrafficGrinder paper, and how far its results are met
///
/// Simulates the paper's synthetic trace with 64 servers (Figures 8a and 8b, Table III), a trace like its
/// DNS over HTTPS (Table III), and 24 to 88 servers, with the load of 64 (Figure 9a) and with load in
/// proportion (Figure 9b). Prints the paper's figures, those of the simulation, and the differences; if one
/// is too large, the exit status is 1. docs/method/simulation.md lists the choices where the paper is
/// silent; --sensitivity prints how much they matter. Ctrl-C ends the runs and prints the results so far.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell-lab sim paper --runs 3
  dwell-lab sim paper --sensitivity --plot paper.html
  dwell-lab sim paper --format jsonl | jq 'select(.part == \"synthetic\")'")]
pub struct Args {
    /// Runs of each policy, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Random seed of the first run; each further run has one more
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Output format: text, or jsonl, one object per policy and number of servers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write a page of HTML with charts as well
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print the results of other choices where the paper is silent
    #[arg(long)]
    sensitivity: bool,
}

const RUNS: u32 = 30;
/// The numbers of servers in the paper's Figures 9a and 9b.
const SERVERS: [usize; 5] = [24, 40, 56, 72, 88];
/// The policies that the paper compares in its Figures 9a and 9b.
const COMPARED: [Policy; 3] = [Policy::ZeroRtt, Policy::LeastLoaded, Policy::SessionAffinity];
/// Runs of each choice: choices differ by far more than runs do.
const SENSITIVITY_RUNS: u32 = 3;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let plan = Plan::new(args)?;
    let stop = Stop::listen(None)?;
    let bar = Bar::new(plan.runs() as u64, "runs");
    let study = |scenario: &Scenario| study(scenario, stop.flag(), &|runs| bar.advance(runs), &|note| log(note));
    let mut parts = Vec::new();
    for (name, title, scenario) in &plan.scenarios {
        parts.push(Part { name, title: title.clone(), summaries: study(scenario)? });
    }
    let mut choices = Vec::new();
    for (choice, scenario) in &plan.choices {
        choices.push((*choice, study(scenario)?));
    }
    let (mut text, mut goals) = (String::new(), Vec::new());
    for Part { name, title, summaries } in &parts {
        let (tables, comparisons) = match *name {
            "synthetic" => (
                format!("{}\n{}", report::policies(summaries), report::resumed(summaries)),
                goals::synthetic(summaries),
            ),
            "doh" => (report::resumed(summaries), goals::doh(summaries)),
            "fixed-load" => (sweep(summaries), goals::fixed_load(summaries)),
            _ => (sweep(summaries), goals::fixed_load_per_server(summaries)),
        };
        let _ = writeln!(text, "{title}\n\n{tables}\n{}", goals::table(&comparisons));
        goals.extend(comparisons.iter().map(goals::Comparison::goal));
    }
    if !choices.is_empty() {
        text += &sensitivity(&choices);
    }
    parts.extend(choices.into_iter().map(|(choice, summaries)| Part {
        name: choice,
        title: choice.to_owned(),
        summaries,
    }));
    report::write(&text, &parts, args.format == Format::Jsonl, args.plot.as_deref())
        .map_err(|error| Failure::new(Exit::Incomplete, error))?;
    if stop.is_asked() {
        log("stopped: the figures are of the runs that were done");
        return Ok(Exit::Incomplete);
    }
    Ok(Goal::exit(&goals))
}

/// The scenarios to simulate.
struct Plan {
    scenarios: Vec<(&'static str, String, Scenario)>,
    choices: Vec<(&'static str, Scenario)>,
}

impl Plan {
    fn new(args: &Args) -> Result<Plan, Failure> {
        let defaults = Scenario::default();
        let runs = args.runs;
        let base = Scenario { runs, seed: args.seed.unwrap_or(defaults.seed), ..defaults };
        let three = COMPARED.to_vec();
        let fixed = Scenario { servers: SERVERS.to_vec(), policies: three.clone(), ..base.clone() };
        let all = Scenario { policies: Policy::ALL.to_vec(), ..base.clone() };
        let doh = Scenario { trace: TraceConfig::doh(), policies: three, ..base.clone() };
        let per_server = Scenario { load_of_servers: Some(64), ..fixed.clone() };
        let scenarios = vec![
            (
                "synthetic",
                format!("Synthetic trace, 64 servers, {runs} runs, as in Figures 8a and 8b and Table III"),
                all,
            ),
            ("doh", "DoH-like trace, 64 servers, as in Table III: connections per run".to_owned(), doh),
            ("fixed-load", "Synthetic trace, the load of 64 servers, as in Figure 9a".to_owned(), fixed),
            (
                "fixed-load-per-server",
                "Synthetic trace, load in proportion to servers, as in Figure 9b".to_owned(),
                per_server,
            ),
        ];
        let choices = CHOICES.iter().filter(|_| args.sensitivity);
        let choices = choices.map(|(name, text)| {
            let (seed, runs) = (base.seed, runs.min(SENSITIVITY_RUNS));
            let scenario = Scenario { seed, runs, policies: COMPARED.to_vec(), ..Scenario::parse(text)? };
            Ok((*name, scenario))
        });
        Ok(Plan { scenarios, choices: choices.collect::<Result<_, Failure>>()? })
    }

    fn runs(&self) -> usize {
        let scenarios = self.scenarios.iter().map(|(_, _, scenario)| scenario);
        scenarios.chain(self.choices.iter().map(|(_, scenario)| scenario)).map(|scenario| jobs(scenario).len()).sum()
    }
}

/// Other choices where the paper is silent: a name, and the lines of a scenario file.
const CHOICES: [(&str, &str); 29] = [
    ("as chosen", ""),
    ("exponent 1.2, up to 6 packets", "trace = { kind = \"synthetic\", length_skew = 1.2, longest = 6 }"),
    ("exponent 1.2, up to 100 packets", "trace = { kind = \"synthetic\", length_skew = 1.2, longest = 100 }"),
    ("exponent 2.2, up to 16 packets", "trace = { kind = \"synthetic\", longest = 16 }"),
    ("exponent 2.2, up to 1,000 packets", "trace = { kind = \"synthetic\", longest = 1000 }"),
    ("all connections of a client of one length", "trace = { kind = \"synthetic\", same_length = true }"),
    (
        "the same, 0.2 ms between packets of a connection",
        "trace = { kind = \"synthetic\", same_length = true, connection_gap = \"200us\" }",
    ),
    ("0.2 ms between packets of a connection", "trace = { kind = \"synthetic\", connection_gap = \"200us\" }"),
    ("2 ms between packets of a connection", "trace = { kind = \"synthetic\", connection_gap = \"2ms\" }"),
    ("50 ms between packets of a connection", "trace = { kind = \"synthetic\", connection_gap = \"50ms\" }"),
    ("clients by Zipf 0.6", "trace = { kind = \"synthetic\", client_skew = 0.6 }"),
    ("clients by Zipf 1.0", "trace = { kind = \"synthetic\", client_skew = 1.0 }"),
    ("load sampled each 100 ms", "interval = \"100ms\""),
    ("load sampled each 10 s", "interval = \"10s\""),
    ("a handshake takes 2.5 ms", "server.handshake = \"2500us\""),
    ("clients close early, 1 ticket", "network.closes_early = true\nserver.tickets = 1"),
    ("clients close early, 2 tickets", "network.closes_early = true"),
    ("clients close early, 4 tickets", "network.closes_early = true\nserver.tickets = 4"),
    ("window of 20 requests", "server.window = 20"),
    ("window of 500 requests", "server.window = 500"),
    ("heavy by intervals of 100 packets", "zero_rtt.heavy_interval = 100"),
    ("heavy by intervals of 10,000 packets", "zero_rtt.heavy_interval = 10_000"),
    ("as few heavy as have half of the packets", "zero_rtt.heavy_share = 0.5"),
    ("heavy at any server", "zero_rtt.heavy = \"any\""),
    ("alpha 0", "zero_rtt.alpha = 0.0"),
    ("alpha 4", "zero_rtt.alpha = 4.0"),
    ("loads known for 1 s", "zero_rtt.load_lifetime = \"1s\""),
    ("loads known for ever", "zero_rtt.load_lifetime = \"0\""),
    ("a new connection ID each 100 ms", "server.restamp = \"100ms\""),
];

/// A column of the table of choices.
struct Column {
    name: &'static str,
    digits: usize,
    /// Number of policies whose figures stand next to each other, of `zero-rtt`, `least-loaded`, `session-affinity`.
    policies: usize,
    figure: fn(&Summary) -> Option<f64>,
}

const fn column(name: &'static str, figure: fn(&Summary) -> Option<f64>) -> Column {
    Column { name, digits: 2, policies: 1, figure }
}

const fn both(name: &'static str, figure: fn(&Summary) -> Option<f64>) -> Column {
    Column { policies: 2, ..column(name, figure) }
}

const fn all(name: &'static str, figure: fn(&Summary) -> Option<f64>) -> Column {
    Column { policies: 3, ..column(name, figure) }
}

const COLUMNS: [Column; 9] = [
    column("busy %", |of| percent(of.busy)),
    column("short %", |of| of.short_part().map(|part| part * 100.0)),
    both("TTFB p60", |of| of.first_byte_at(0.6)),
    all("TTFB p90", |of| of.first_byte_at(0.9)),
    both("FCT p60", |of| of.completion_at(0.6)),
    column("0-RTT %", |of| percent(of.used_share)),
    Column { digits: 3, ..column("diverted %", |of| percent(of.diverted)) },
    all("load ms", |of| goals::mean(of.load_ms)),
    all("imbalance", |of| goals::mean(of.imbalance)),
];

fn percent(part: Option<Estimate>) -> Option<f64> {
    goals::mean(part).map(|part| part * 100.0)
}

/// A table with the distribution of completion times, one row per number of servers and policy: the quantiles of the
/// paper's box plots.
fn sweep(summaries: &[Summary]) -> String {
    let rows = summaries.iter().map(|summary| {
        let mut row = vec![summary.servers.to_string(), summary.policy.to_string()];
        let quantiles = [0.05, 0.25, 0.5, 0.75, 0.95].map(|quantile| summary.completion_at(quantile));
        let others = [percent(summary.used_share), goals::mean(summary.load_ms), goals::mean(summary.imbalance)];
        row.extend(quantiles.into_iter().chain(others).map(|figure| shown(figure, 2)));
        row
    });
    let heading = ["servers", "policy", "FCT p5", "p25", "p50", "p75", "p95", "0-RTT %", "load ms", "imbalance"];
    report::table(&heading, &rows.collect::<Vec<_>>())
}

/// A table that compares policies, one row per choice.
fn sensitivity(choices: &[(&'static str, Vec<Summary>)]) -> String {
    let rows = choices.iter().filter_map(|(choice, summaries)| {
        let mut row = vec![(*choice).to_owned()];
        for column in &COLUMNS {
            for policy in COMPARED.into_iter().take(column.policies) {
                row.push(shown((column.figure)(goals::of(summaries, policy)?), column.digits));
            }
        }
        Some(row)
    });
    let mut heading = vec!["Where the paper is silent"];
    for column in &COLUMNS {
        heading.push(column.name);
        heading.extend(["of least", "of affinity"].into_iter().take(column.policies - 1));
    }
    report::table(&heading, &rows.collect::<Vec<_>>())
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}
