//! `dwell-lab sim paper`: the tables of the TrafficGrinder paper.

use std::{fmt::Write, path::PathBuf};

use dwell_app::{Exit, progress::Bar, stop::Stop, tell::tell};
use dwell_sim::{
    Estimate, Policy, Scenario, TraceConfig,
    report::{self, Part},
    study::{Summary, jobs, study},
};

use super::goals;
use crate::{failure::Failure, print::Format};

/// Print the tables of the TrafficGrinder paper, and how far its results are met
///
/// Simulates the paper's synthetic trace with 64 servers, a trace like its DNS over HTTPS (Table III),
/// and 24 to 88 servers, with the load of 64 and with load in proportion (Figures 8 and 9).
/// docs/method/simulation.md lists the choices where the paper is silent; --sensitivity prints how much
/// they matter. Ctrl-C ends the runs and prints the results so far.
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
    /// Seed of the first run; each further run has one more
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
/// The numbers of servers in the paper's Figures 8 and 9.
const SERVERS: [usize; 5] = [24, 40, 56, 72, 88];
/// Runs of each choice: choices differ by far more than runs do.
const SENSITIVITY_RUNS: u32 = 3;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let plan = Plan::new(args)?;
    let stop = Stop::listen(None)?;
    let bar = Bar::new(plan.runs() as u64, "runs");
    let study = |scenario: &Scenario| study(scenario, stop.flag(), &|runs| bar.advance(runs));
    let mut parts = Vec::new();
    for (name, title, scenario) in &plan.scenarios {
        parts.push(Part { name, title: title.clone(), summaries: study(scenario)? });
    }
    let mut choices = Vec::new();
    for (choice, scenario) in &plan.choices {
        choices.push((*choice, study(scenario)?));
    }
    let mut text = String::new();
    for part in &parts {
        let _ = writeln!(text, "{}\n", part.title);
        text += &match part.name {
            "doh" => {
                format!("{}\n{}", report::resumed(&part.summaries), goals::doh(&part.summaries))
            }
            "synthetic" => {
                let resumed = report::resumed(&part.summaries);
                let goals = goals::synthetic(&part.summaries);
                format!("{}\n{resumed}\n{goals}", report::policies(&part.summaries))
            }
            _ => sweep(&part.summaries),
        };
        text.push('\n');
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
        tell("stopped: the figures are of the runs that were done");
        return Ok(Exit::Incomplete);
    }
    Ok(Exit::Done)
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
        let two = Scenario { servers: SERVERS.to_vec(), ..base.clone() };
        let all = Scenario { policies: Policy::ALL.to_vec(), ..base.clone() };
        let doh = Scenario {
            trace: TraceConfig::doh(),
            policies: vec![Policy::ZeroRtt, Policy::SessionAffinity, Policy::LeastLoaded],
            ..base.clone()
        };
        let a_server = Scenario { load_of_servers: Some(64), ..two.clone() };
        let scenarios = vec![
            ("synthetic", format!("Synthetic trace, 64 servers, {runs} runs"), all),
            ("doh", "DoH-like trace, 64 servers: 0-RTT as in Table III, of a run".to_owned(), doh),
            ("fixed-load", "Synthetic trace, the load of 64 servers, as in Figure 8".to_owned(), two),
            (
                "fixed-load-a-server",
                "Synthetic trace, load in proportion to servers, as in Figure 9".to_owned(),
                a_server,
            ),
        ];
        let choices = CHOICES.iter().filter(|_| args.sensitivity);
        let choices = choices.map(|(name, text)| {
            let scenario = Scenario { seed: base.seed, runs: runs.min(SENSITIVITY_RUNS), ..Scenario::parse(text)? };
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
const CHOICES: [(&str, &str); 24] = [
    ("as chosen", ""),
    ("longest connection 30 packets", "trace = { kind = \"synthetic\", longest = 30 }"),
    ("longest connection 1,000 packets", "trace = { kind = \"synthetic\", longest = 1000 }"),
    ("2 ms between packets of a connection", "trace = { kind = \"synthetic\", connection_gap_ms = 2.0 }"),
    ("50 ms between packets of a connection", "trace = { kind = \"synthetic\", connection_gap_ms = 50.0 }"),
    ("clients by Zipf 0.6", "trace = { kind = \"synthetic\", client_skew = 0.6 }"),
    ("clients by Zipf 1.0", "trace = { kind = \"synthetic\", client_skew = 1.0 }"),
    ("intervals of 1 s", "interval_ms = 1e3"),
    ("intervals of 100 s", "interval_ms = 1e5"),
    ("a handshake takes 2.5 ms", "server.handshake_ms = 2.5"),
    ("clients close early, 1 ticket", "network.closes_early = true\nserver.tickets = 1"),
    ("clients close early, 2 tickets", "network.closes_early = true"),
    ("clients close early, 4 tickets", "network.closes_early = true\nserver.tickets = 4"),
    ("window of 20 requests", "server.window = 20"),
    ("window of 500 requests", "server.window = 500"),
    ("heavy by intervals of 100 packets", "zero_rtt.heavy_interval = 100"),
    ("heavy by intervals of 10,000 packets", "zero_rtt.heavy_interval = 10_000"),
    ("as few heavy as have half of the packets", "zero_rtt.heavy_share = 0.5"),
    ("heavy at any server", "zero_rtt.heavy_any = true"),
    ("alpha 0", "zero_rtt.alpha = 0.0"),
    ("alpha 4", "zero_rtt.alpha = 4.0"),
    ("loads known for 1 s", "zero_rtt.stale_s = 1"),
    ("loads known for ever", "zero_rtt.stale_s = 0"),
    ("a new connection ID each 100 ms", "server.restamp_ms = 100.0"),
];

/// A column of a table of both policies.
struct Column {
    name: &'static str,
    digits: usize,
    /// Whether the figure of `least-loaded` stands next to it.
    is_of_both: bool,
    figure: fn(&Summary) -> Option<f64>,
}

const fn column(name: &'static str, figure: fn(&Summary) -> Option<f64>) -> Column {
    Column { name, digits: 2, is_of_both: false, figure }
}

const fn both(name: &'static str, figure: fn(&Summary) -> Option<f64>) -> Column {
    Column { is_of_both: true, ..column(name, figure) }
}

const COLUMNS: [Column; 8] = [
    column("load %", |of| percent(of.load)),
    both("TTFB p60", |of| of.first_byte_at(0.6)),
    both("TTFB p90", |of| of.first_byte_at(0.9)),
    both("FCT p60", |of| of.completion_at(0.6)),
    column("0-RTT %", |of| percent(of.used_share)),
    Column { digits: 3, ..column("diverted %", |of| percent(of.diverted)) },
    both("imbalance", |of| goals::mean(of.imbalance)),
    both("packets there", |of| goals::mean(of.present)),
];

fn percent(part: Option<Estimate>) -> Option<f64> {
    goals::mean(part).map(|part| part * 100.0)
}

/// A table that compares both policies, one row per name for which both were run.
fn comparison<'a>(first: &str, rows: impl Iterator<Item = (String, &'a [Summary])>) -> String {
    let rows = rows.filter_map(|(name, pair)| {
        let (zero, least) = (goals::of(pair, Policy::ZeroRtt)?, goals::of(pair, Policy::LeastLoaded)?);
        let mut row = vec![name];
        for column in &COLUMNS {
            let shown = if column.is_of_both { 2 } else { 1 };
            row.extend([zero, least].into_iter().take(shown).map(|summary| {
                let digits = column.digits;
                (column.figure)(summary).map_or("-".into(), |value| format!("{value:.digits$}"))
            }));
        }
        Some(row)
    });
    let mut heading = vec![first];
    for column in &COLUMNS {
        heading.push(column.name);
        heading.extend(column.is_of_both.then_some("of least"));
    }
    report::table(&heading, &rows.collect::<Vec<_>>())
}

/// A table with one row per number of servers.
fn sweep(summaries: &[Summary]) -> String {
    let pairs = summaries.chunk_by(|a, b| a.servers == b.servers);
    comparison("servers", pairs.map(|pair| (pair[0].servers.to_string(), pair)))
}

/// A table with one row per choice.
fn sensitivity(choices: &[(&'static str, Vec<Summary>)]) -> String {
    let rows = choices.iter();
    comparison("Where the paper is silent", rows.map(|(choice, pair)| ((*choice).to_owned(), pair.as_slice())))
}
