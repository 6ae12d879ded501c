//! `dwell sim paper`.

use std::fmt::Write;

use dwell_app::Exit;
use dwell_sim::{
    Estimate, Policy, Scenario, TraceConfig,
    report::{self, Part},
    study::Summary,
};

use super::{OutputArgs, Session};
use crate::failure::Failure;

/// Print the tables of the TrafficGrinder paper, and how far its results are met
///
/// Its synthetic trace with 64 servers, one like its DNS over HTTPS (Table III), 24 to 88 servers with
/// the load of 64 and with load in proportion (Figures 8 and 9). What the paper leaves open is chosen
/// as docs/method/simulation.md tells; --sensitivity prints how much it matters. Ctrl-C prints what is
/// done.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell sim paper --runs 3
  dwell sim paper --sensitivity --plot paper.html
  dwell sim paper --format jsonl | jq 'select(.part == \"synthetic\")'")]
pub struct Args {
    #[command(flatten)]
    output: OutputArgs,
    /// Print what becomes of it with other choices where the paper is silent
    #[arg(long)]
    sensitivity: bool,
}

const RUNS: u32 = 30;
/// Of the paper's Figures 8 and 9.
const SERVERS: [usize; 5] = [24, 40, 56, 72, 88];
/// Runs of each choice: differences are far greater than what runs differ by.
const SENSITIVITY_RUNS: u32 = 3;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let plan = Plan::new(args)?;
    let session = Session::new(plan.runs())?;
    let mut parts = Vec::new();
    for (name, title, scenario) in &plan.scenarios {
        parts.push(Part { name, title: title.clone(), summaries: session.study(scenario)? });
    }
    let mut choices = Vec::new();
    for (choice, scenario) in &plan.choices {
        choices.push((*choice, session.study(scenario)?));
    }
    let mut text = String::new();
    for part in &parts {
        let _ = writeln!(text, "{}\n", part.title);
        text += &match part.name {
            "doh" => {
                let zero = of(&part.summaries, Policy::ZeroRtt);
                let used = zero.and_then(|zero| zero.used_share).map(|part| part.mean);
                let goal = met(&[("0-RTT of all that could", used, 0.9, true)]);
                format!("{}\n{goal}", report::resumed(&part.summaries))
            }
            "synthetic" => {
                let resumed = report::resumed(&part.summaries);
                let goals = goals(&part.summaries);
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
    args.output.write(&text, &parts, session.is_stopped())
}

/// All that is to be simulated.
struct Plan {
    scenarios: Vec<(&'static str, String, Scenario)>,
    choices: Vec<(&'static str, Scenario)>,
}

impl Plan {
    fn new(args: &Args) -> Result<Plan, Failure> {
        let mut base = Scenario { runs: RUNS, ..Scenario::default() };
        args.output.apply(&mut base);
        let runs = base.runs;
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
        scenarios
            .chain(self.choices.iter().map(|(_, scenario)| scenario))
            .map(|scenario| dwell_sim::study::jobs(scenario).len())
            .sum()
    }
}

/// Other choices where the paper is silent, as a scenario would say them.
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

fn of(summaries: &[Summary], policy: Policy) -> Option<&Summary> {
    summaries.iter().find(|summary| summary.policy == policy)
}

/// What the paper reports, beside what came out.
fn goals(summaries: &[Summary]) -> String {
    let [Some(zero), Some(least)] = [Policy::ZeroRtt, Policy::LeastLoaded].map(|policy| of(summaries, policy)) else {
        return String::new();
    };
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let completion = over(least.completion_at(0.6), zero.completion_at(0.6));
    let load = over(mean(zero.load), mean(least.load));
    let imbalance = over(mean(zero.imbalance), mean(least.imbalance));
    let goals = [
        ("0-RTT of all that could", mean(zero.used_share), 0.997, true),
        ("0-RTT of short ones", mean(zero.short_used_share), 0.999, true),
        ("TTFB p60", zero.first_byte_at(0.6), 1.2, false),
        ("TTFB p90", zero.first_byte_at(0.9), 1.75, false),
        ("FCT p60 of least-loaded over its own", completion, 1.58, true),
        ("load over that of least-loaded", load, 1.05, false),
        ("imbalance over that of least-loaded", imbalance, 1.1, false),
    ];
    met(&goals)
}

/// A goal: what it is of, what came out, what is to come out, and whether more is better.
type Goal = (&'static str, Option<f64>, f64, bool);

fn met(goals: &[Goal]) -> String {
    let rows = goals.iter().map(|(name, value, goal, is_least)| {
        let sign = if *is_least { "at least" } else { "at most" };
        let verdict = match (value, is_least) {
            (None, _) => "not run",
            (Some(value), true) if value >= goal => "met",
            (Some(value), false) if value <= goal => "met",
            _ => "missed",
        };
        vec![
            (*name).to_owned(),
            value.map_or("-".to_owned(), |value| format!("{value:.4}")),
            format!("{sign} {goal}"),
            verdict.to_owned(),
        ]
    });
    report::table(&["zero-rtt", "is", "goal", ""], &rows.collect::<Vec<_>>())
}

/// A figure, and how it is told.
struct Column {
    name: &'static str,
    digits: usize,
    /// That of `least-loaded` stands beside it.
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
    both("imbalance", |of| mean(of.imbalance)),
    both("packets there", |of| mean(of.present)),
];

fn mean(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.mean)
}

fn percent(part: Option<Estimate>) -> Option<f64> {
    mean(part).map(|part| part * 100.0)
}

/// Both policies beside each other, a row each time that both were run: what it is of, and figures.
fn beside<'a>(of_what: &str, rows: impl Iterator<Item = (String, &'a [Summary])>) -> String {
    let rows = rows.filter_map(|(name, pair)| {
        let (zero, least) = (of(pair, Policy::ZeroRtt)?, of(pair, Policy::LeastLoaded)?);
        let mut row = vec![name];
        for column in &COLUMNS {
            let told = if column.is_of_both { 2 } else { 1 };
            row.extend([zero, least].into_iter().take(told).map(|summary| {
                let digits = column.digits;
                (column.figure)(summary).map_or("-".into(), |value| format!("{value:.digits$}"))
            }));
        }
        Some(row)
    });
    let mut heading = vec![of_what];
    for column in &COLUMNS {
        heading.push(column.name);
        heading.extend(column.is_of_both.then_some("of least"));
    }
    report::table(&heading, &rows.collect::<Vec<_>>())
}

/// A row a number of servers.
fn sweep(summaries: &[Summary]) -> String {
    let pairs = summaries.chunk_by(|a, b| a.servers == b.servers);
    beside("servers", pairs.map(|pair| (pair[0].servers.to_string(), pair)))
}

/// A row a choice.
fn sensitivity(choices: &[(&'static str, Vec<Summary>)]) -> String {
    let rows = choices.iter();
    beside("Where the paper is silent", rows.map(|(choice, pair)| ((*choice).to_owned(), pair.as_slice())))
}
