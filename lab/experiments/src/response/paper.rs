//! `dwell-lab response paper`: experiments of "Measuring Response Latencies Under Asymmetric Routing" (arXiv
//! 2505.14358), with its figures, ours and the difference.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use dwell_app::{Exit, args::positive_duration, log::log};
use dwell_sim::report::table;
use dwell_testbed::{Error, Nanos, Topology, error::find_program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;

use super::Response;
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    loads::{
        Kind, LoadOptions, Mode, Network, Think,
        report::{Comparison, Report, ReportOptions, Truth, respond, sweep},
        web::{Discipline, ServiceModel},
    },
    print::{Format, SCHEMA, percent_to, ratio, say},
};

#[derive(Debug, clap::Args)]
pub struct Paper {
    /// Figures of the paper [default: all]
    #[arg(value_enum, value_name = "FIGURE")]
    figures: Vec<Figure>,
    /// How long requests are sent in each run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Figure {
    /// Accuracy with a server whose processor others use too
    #[value(name = "4")]
    Accuracy,
    /// Cost by number of connections
    #[value(name = "8")]
    Connections,
    /// Latency and accuracy by offered load
    #[value(name = "12")]
    Load,
}

/// A figure of the paper: a share, or words.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
enum Published {
    Share(f64),
    Words(&'static str),
}

/// A figure of the paper, and ours.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    figure: &'static str,
    what: String,
    paper: Published,
    here: Option<f64>,
    #[serde(skip)]
    holds: Option<Option<bool>>,
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let percent = |share| format!("{} %", percent_to(2, Some(share)));
        let (paper, difference) = match self.paper {
            Published::Share(share) => (percent(share), self.here.map(|here| (here - share) * 100.0)),
            Published::Words(words) => (words.to_owned(), None),
        };
        let difference = difference.map_or("-".to_owned(), |points| format!("{points:+.2} points"));
        vec![self.what.clone(), paper, self.here.map_or("-".to_owned(), percent), difference]
    }
}

/// Requests per second of the run with a limited server. The paper offers half of what its server can do at most.
const LIMITED_RATE: f64 = 1_000.0;
/// Requests per second of the runs with an unlimited server, which can do 4,000 at most.
const RATES: [f64; 4] = [500.0, 1_000.0, 2_000.0, 3_000.0];
const CONNECTIONS: usize = 200;
/// Connections of the runs at one rate.
const CONNECTION_COUNTS: [usize; 5] = [32, 64, 128, 256, 512];
const CONNECTIONS_RATE: f64 = 4_000.0;

pub fn run(args: &Response, paper: &Paper) -> Result<Exit, Failure> {
    args.refuse_what_needs_a_log()?;
    let folder = tempfile::tempdir().map_err(|error| Failure::new(Exit::Host, error))?;
    // Without it the cost of programs in the kernel is unknown.
    let _counting = dwell_probes::count_run_times();
    let runs = Runs { args, paper, folder: folder.path() };
    let has = |figure| paper.figures.is_empty() || paper.figures.contains(&figure);
    let mut rows = Vec::new();
    if has(Figure::Accuracy) {
        rows.extend(runs.accuracy()?);
    }
    if has(Figure::Connections) {
        runs.connections()?;
    }
    if has(Figure::Load) {
        rows.extend(runs.load()?);
    }
    args.format.say(&table(&["", "paper", "here", "difference"], &rows.iter().map(Row::cells).collect::<Vec<_>>()))?;
    let mut goals = Vec::new();
    for row in rows {
        if args.format == Format::Jsonl {
            args.format.print(&row, String::new)?;
        }
        goals.extend(row.holds.map(|holds| Goal { holds, what: row.what }));
    }
    Ok(Goal::exit(&goals))
}

struct Runs<'a> {
    args: &'a Response,
    paper: &'a Paper,
    folder: &'a Path,
}

impl Runs<'_> {
    /// Figure 4: pages, four requests at a time, from a server that computes with what others leave of a processor.
    fn accuracy(&self) -> Result<Vec<Row>, Failure> {
        let report = self.run(ServiceModel::Limited, 4, CONNECTIONS, LIMITED_RATE)?;
        self.say(
            "Figure 4: a server that computes under a CPU limit, 4 requests at a time",
            std::slice::from_ref(&report),
        )?;
        let mut rows = Vec::new();
        for comparison in &report.comparisons {
            let errors = comparison.errors(Truth::Own);
            let (median, within) = (errors.relative_size(0.5), errors.within(0.15));
            // The goal is dwell's own: no worse than the paper's estimator in the paper.
            let is_judged = comparison.estimator.starts_with("auto");
            let goal = |here: Option<f64>, holds: fn(f64) -> bool| is_judged.then_some(here.map(holds));
            let row = |what, paper, here, holds| Row {
                kind: "lab.paper",
                schema: SCHEMA,
                figure: "4",
                what: format!("Figure 4: {}, {what}", comparison.estimator),
                paper: Published::Share(paper),
                here,
                holds,
            };
            rows.push(row("median error", MEDIAN_ERROR, median, goal(median, |here| here <= MEDIAN_ERROR)));
            rows.push(row("within 15 %", WITHIN_15, within, goal(within, |here| here >= WITHIN_15)));
        }
        Ok(rows)
    }

    /// Figure 8(c) and (d): what measuring costs, by number of connections.
    fn connections(&self) -> Result<(), Failure> {
        let (mut reports, mut counted) = (Vec::new(), Vec::new());
        for connections in CONNECTION_COUNTS {
            let counters = Counters::start(self.folder)?;
            reports.push(self.run(ServiceModel::Constant, 1, connections, CONNECTIONS_RATE)?);
            let found = counters.map(Counters::stop).transpose()?.unwrap_or_default();
            if found.is_empty() {
                log("processor events are unknown: there is no perf (package linux-perf), or no counter of this host");
            }
            counted.push(vec![
                connections.to_string(),
                ratio(over(&found, "instructions", "cycles")),
                percent_to(2, over(&found, "branch-misses", "branches")),
                percent_to(2, over(&found, "cache-misses", "cache-references")),
            ]);
        }
        self.say("Figure 8(c): time per packet by connections; in the paper it is stable up to 128", &reports)?;
        let heading = ["connections", "instructions per cycle", "branches missed %", "cache missed %"];
        self.args.format.say("Figure 8(d): of the whole machine; in the paper, misses rise from 128 connections on")?;
        self.args.format.say(&table(&heading, &counted))
    }

    /// Figure 12: one request at a time, by offered load.
    fn load(&self) -> Result<Vec<Row>, Failure> {
        let reports: Result<Vec<_>, Failure> =
            RATES.iter().map(|rate| self.run(ServiceModel::Compute, 1, CONNECTIONS, *rate)).collect();
        let reports = reports?;
        self.say("Figure 12(a): a server that computes, 1 request at a time, by offered load", &reports)?;
        let highest = reports.last().into_iter().flat_map(|report| &report.comparisons);
        Ok(highest
            .map(|comparison: &Comparison| Row {
                kind: "lab.paper",
                schema: SCHEMA,
                figure: "12",
                what: format!(
                    "Figure 12(b): {}, median error of connections at the highest load",
                    comparison.estimator
                ),
                paper: Published::Words("strong agreement"),
                here: comparison.errors_of_connections(Truth::Own).relative_size(0.5),
                holds: None,
            })
            .collect())
    }

    fn run(&self, service: ServiceModel, depth: usize, connections: usize, rate: f64) -> Result<Report, Failure> {
        log(format_args!("{service:?}, {connections} connections, {rate} requests per second"));
        let kind = Kind::Web { mode: Mode::Page, discipline: Discipline::InOrder, service };
        let network = Network { topology: Topology::triangle(Nanos(0), Nanos(0), Nanos(0)), cross: None, tunnel: None };
        let load = LoadOptions {
            programs: Programs::find()?,
            kind,
            depth,
            threads: 20,
            connections,
            rate: Some(rate),
            think: Think::None,
            coalesce: false,
            duration: self.paper.duration,
            seed: self.paper.seed,
            network,
            truth: None,
            pcap: None,
        };
        Ok(respond(&ReportOptions {
            load,
            estimators: self.args.estimators("pirate,auto"),
            epoch: self.args.interval,
            round_trips: false,
            ablations: false,
            folder: self.folder.to_owned(),
        })?)
    }

    fn say(&self, title: &str, reports: &[Report]) -> Result<(), Failure> {
        self.args.format.say(&format!("{title}\n{}", sweep(reports)))?;
        match self.args.format {
            Format::Text => Ok(()),
            Format::Jsonl => {
                reports.iter().try_for_each(|report| report.lines()?.iter().try_for_each(|line| say(line).map(drop)))
            }
        }
    }
}

/// Section 4.2 of the paper.
const MEDIAN_ERROR: f64 = 0.0063;
const WITHIN_15: f64 = 0.9;

/// Counts of processor events of the whole machine, by `perf stat`.
struct Counters {
    perf: Child,
    file: std::path::PathBuf,
}

const EVENTS: &str = "instructions,cycles,branches,branch-misses,cache-references,cache-misses";

impl Counters {
    /// `None` where perf is not installed.
    fn start(folder: &Path) -> Result<Option<Counters>, Failure> {
        let Some(perf) = find_program("perf") else {
            return Ok(None);
        };
        let file = folder.join("perf");
        let mut command = Command::new(perf);
        command.args(["stat", "-a", "-x", ";", "-e", EVENTS, "-o"]).arg(&file);
        let perf = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(Error::io("run perf"))?;
        Ok(Some(Counters { perf, file }))
    }

    /// Ends the count. Events that this host cannot count are absent.
    fn stop(mut self) -> Result<BTreeMap<String, f64>, Failure> {
        kill(Pid::from_raw(self.perf.id().cast_signed()), Signal::SIGINT).map_err(Error::os("end perf"))?;
        self.perf.wait().map_err(Error::io("wait for perf"))?;
        Ok(counts(&fs::read_to_string(&self.file).unwrap_or_default()))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// The counts in the output of perf: value, unit, event, and more.
fn counts(output: &str) -> BTreeMap<String, f64> {
    let lines = output.lines().map(|line| line.split(';').collect::<Vec<_>>());
    lines.filter_map(|cells| Some((cells.get(2)?.to_string(), cells.first()?.parse().ok()?))).collect()
}

fn over(counts: &BTreeMap<String, f64>, part: &str, whole: &str) -> Option<f64> {
    Some(counts.get(part)? / counts.get(whole)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_counted_are_unknown() {
        let found = counts(
            "# started\n\n90;;branches;1;100.00;;\n9;;branch-misses;1;100.00;10.0;of all branches\n<not supported>;;cycles;0;100.00;;\n",
        );
        assert_eq!(over(&found, "branch-misses", "branches"), Some(0.1));
        assert_eq!(over(&found, "instructions", "cycles"), None);
    }

    #[test]
    fn a_difference_is_in_points_and_words_have_none() {
        let row =
            |paper, here| Row { kind: "", schema: "", figure: "", what: "x".into(), paper, here, holds: None }.cells();
        assert_eq!(row(Published::Share(0.9), Some(0.95)), ["x", "90.00 %", "95.00 %", "+5.00 points"]);
        assert_eq!(row(Published::Words("stable"), Some(0.01)), ["x", "stable", "1.00 %", "-"]);
        assert_eq!(row(Published::Share(0.9), None)[2..], ["-", "-"]);
    }
}
