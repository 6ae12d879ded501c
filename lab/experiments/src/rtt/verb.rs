//! `dwell-lab rtt`.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context;
use dwell_app::{
    Exit,
    args::{duration, positive_duration},
    log::log,
};
use dwell_engine::units::nanos;
use dwell_testbed::{Nanos, Probability, signals::Signals};
use serde::Serialize;

use super::{
    figures::Row,
    goals::{self, Truth},
    readers::{self, DWELL, Reader, readers},
    record::{Recording, Stage},
    samples::{self, Agreement},
};
use crate::{
    Programs,
    cost::child::{self, Cost},
    demo::Scope,
    failure::Failure,
    figures::median,
    goal::Goal,
    print::{Columns, Format, SCHEMA, folders, millis_to, percent},
    usage::Usage,
    values::share,
};

/// Round trips of the same packets by `dwell rtt`, tshark and tcptrace, compared with the emulated truth
///
/// Connections with requests, and iperf3 in both directions, run over links of known delay. tcpdump captures
/// them once, while `dwell rtt` watches the same interface. Then each program reads the capture. The truth is
/// the configured delay and the median error of the link emulator. The exit status is 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab rtt                      without loss, then with 1 % of packets lost
  sudo dwell-lab rtt --loss 0.05          only with 5 %
  sudo dwell-lab rtt --keep-in captures      keep the captures")]
pub struct Rtt {
    /// Round trip between vantage point and client
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    client_rtt: Duration,
    /// Round trip between vantage point and server
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    server_rtt: Duration,
    /// Share of packets that each direction of each link loses, 0 to 1; of several, a run for each
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0,0.01", value_parser = share)]
    loss: Vec<Probability>,
    /// How long connections send requests, and how long each of two bulk transfers lasts
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = positive_duration)]
    duration: Duration,
    /// Rounds, in each of which every program reads the capture; medians of time and memory are printed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to keep the captures in
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    /// Output format: text, or jsonl with one object per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The results of one run.
pub(super) struct Comparison {
    pub(super) loss: f64,
    pub(super) recording: Recording,
    pub(super) rows: Vec<Row>,
    /// What a reading of the capture takes, by program.
    pub(super) costs: Vec<(&'static str, Reading)>,
    /// Of `dwell rtt` on the interface and over the capture.
    pub(super) agreement: Agreement,
    /// Programs that are not installed.
    pub(super) missing: Vec<&'static str>,
}

/// Medians over the rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) memory_bytes: u64,
}

pub(crate) fn run(args: &Rtt) -> Result<Exit, Failure> {
    let signals = Signals::watch()?;
    let programs = Programs::find()?;
    let mut goals: Vec<Goal> = Vec::new();
    for (number, loss) in args.loss.iter().enumerate() {
        let folder = folders("dwell-rtt-", args.keep_in.as_deref())?;
        let stage = Stage {
            client_rtt: Nanos(nanos(args.client_rtt)),
            server_rtt: Nanos(nanos(args.server_rtt)),
            loss: *loss,
            time: args.duration,
            seed: args.seed,
        };
        log(format_args!(
            "{} lost: requests for {:?}, then iperf3 in both directions",
            lost(f64::from(*loss)),
            args.duration
        ));
        let recording = stage.record(&programs, folder.path(), &signals)?;
        let comparison = compare(args, f64::from(*loss), recording, &programs, &signals)?;
        if number > 0 {
            args.format.say("")?;
        }
        print(args.format, &comparison)?;
        goals.extend(comparison.judge());
        if let Some(keep) = &args.keep_in {
            let kept = keep.join(format!("loss-{}.pcap", f64::from(*loss)));
            fs::copy(&comparison.recording.capture, &kept)
                .with_context(|| format!("cannot write {}", kept.display()))
                .map_err(Failure::usage)?;
        }
    }
    args.format.say("")?;
    for goal in &goals {
        args.format.say(&goal.line())?;
    }
    Ok(Goal::exit(&goals))
}

impl Comparison {
    fn judge(&self) -> Vec<Goal> {
        let when = format!("{} lost", lost(self.loss));
        let Recording { topology, emulator, .. } = &self.recording;
        let truth = |scope: Scope| Truth { least: scope.least(topology), usual: scope.truth(topology, emulator) };
        let rows: Vec<_> = self.rows.iter().map(|row| (row.clone(), truth(row.scope))).collect();
        let mut goals = goals::judge_round_trips(&when, &rows);
        goals.extend(goals::judge_agreement(&when, &self.agreement));
        goals.extend(goals::judge_costs(&when, &self.costs));
        goals
    }
}

fn lost(share: f64) -> String {
    format!("{} %", share * 100.0)
}

/// Reads the capture with each program: once for its figures, then in turn for its costs.
fn compare(
    args: &Rtt,
    loss: f64,
    recording: Recording,
    programs: &Programs,
    signals: &Signals,
) -> Result<Comparison, Failure> {
    let folder = recording.capture.with_file_name("readers");
    let (readers, missing) = readers(&programs.dwell, &recording.capture, &folder);
    let mut rows = readers::of_dwell(LIVE, &recording.live, false);
    let mut agreement = Agreement::default();
    for reader in &readers {
        signals.pause(Duration::ZERO)?;
        let printed = reader.print()?;
        if reader.name == DWELL {
            agreement = Agreement::of(&recording.live, &samples::parse(&printed)?);
        }
        rows.extend(reader.rows(&printed)?);
    }
    let costs = costs(args.rounds, &readers, signals)?;
    Ok(Comparison { loss, recording, rows, costs, agreement, missing })
}

/// The name of `dwell rtt` on the interface.
pub(super) const LIVE: &str = "dwell rtt, live";

fn costs(rounds: u32, readers: &[Reader], signals: &Signals) -> Result<Vec<(&'static str, Reading)>, Failure> {
    let mut all: Vec<Vec<Cost>> = vec![Vec::new(); readers.len()];
    for _ in 0..rounds {
        for (reader, costs) in readers.iter().zip(&mut all) {
            signals.pause(Duration::ZERO)?;
            let cost = child::run(&reader.program, &reader.arguments());
            costs.push(cost.map_err(|error| Failure::new(Exit::Host, error))?);
        }
    }
    let middle = |costs: &[Cost]| Reading {
        wall: median(&costs.iter().map(|cost| cost.wall).collect::<Vec<_>>()),
        cpu: median(&costs.iter().map(|cost| cost.cpu).collect::<Vec<_>>()),
        memory_bytes: median(&costs.iter().map(|cost| cost.memory_bytes).collect::<Vec<_>>()),
    };
    Ok(readers.iter().zip(&all).map(|(reader, costs)| (reader.name, middle(costs))).collect())
}

/// The figures of a program for a part of the path.
#[derive(Serialize)]
struct RowRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    loss: f64,
    tool: &'a str,
    side: &'static str,
    samples: usize,
    truth_ns: u64,
    min_ns: Option<u64>,
    p50_ns: Option<u64>,
    mean_ns: Option<u64>,
    p99_ns: Option<u64>,
}

/// What a program used.
#[derive(Serialize)]
struct CostRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    loss: f64,
    tool: &'a str,
    /// `null` of programs on the interface, which last as long as the traffic.
    wall_ns: Option<u64>,
    cpu_ns: u64,
    memory_bytes: Option<u64>,
}

/// `dwell rtt` on the interface compared with its replay.
#[derive(Serialize)]
struct LiveRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    loss: f64,
    live: usize,
    replay: usize,
    paired: Option<f64>,
    difference_p50_ns: Option<u64>,
    difference_p99_ns: Option<u64>,
}

const FIGURES: Columns<8> = Columns([
    ("round trips in ms", -26),
    ("side", -7),
    ("samples", 8),
    ("min", 9),
    ("p50", 9),
    ("mean", 9),
    ("p99", 9),
    ("p50-truth", 11),
]);
const COSTS: Columns<4> = Columns([("", -26), ("wall s", 9), ("CPU s", 9), ("memory MB", 11)]);

fn print(format: Format, comparison: &Comparison) -> Result<(), Failure> {
    let Recording { topology, emulator, capture_bytes, .. } = &comparison.recording;
    let loss = comparison.loss;
    format.say(&format!("{} lost\n{}", lost(loss), FIGURES.heading()))?;
    for row in &comparison.rows {
        let truth = row.scope.truth(topology, emulator);
        let record = RowRecord {
            kind: "lab.rtt",
            schema: SCHEMA,
            loss,
            tool: &row.tool,
            side: row.scope.name(),
            samples: row.samples,
            truth_ns: truth.0,
            min_ns: row.min.map(|ns| ns.0),
            p50_ns: row.p50.map(|ns| ns.0),
            mean_ns: row.mean.map(|ns| ns.0),
            p99_ns: row.p99.map(|ns| ns.0),
        };
        format.print(&record, || record.line())?;
    }
    let truths = Scope::ALL.map(|scope| format!("{} {}", scope.name(), scope.truth(topology, emulator)));
    format.say(&format!("truth: {}\n\n{}", truths.join(", "), COSTS.heading()))?;
    let of_reader = |(tool, reading): &(&'static str, Reading)| {
        (*tool, Some(reading.wall), Usage { cpu: reading.cpu, memory_bytes: Some(reading.memory_bytes) })
    };
    let live = [(LIVE, None, comparison.recording.dwell), (CAPTURING, None, comparison.recording.tcpdump)];
    for (tool, wall, usage) in comparison.costs.iter().map(of_reader).chain(live) {
        let ns = |time: Duration| time.as_nanos() as u64;
        let record = CostRecord {
            kind: "lab.rtt-cost",
            schema: SCHEMA,
            loss,
            tool,
            wall_ns: wall.map(ns),
            cpu_ns: ns(usage.cpu),
            memory_bytes: usage.memory_bytes,
        };
        format.print(&record, || record.line())?;
    }
    for tool in &comparison.missing {
        format.say(&format!("{tool} is not installed (the Debian package has its name): left out"))?;
    }
    let agreement = &comparison.agreement;
    let record = LiveRecord {
        kind: "lab.rtt-live",
        schema: SCHEMA,
        loss,
        live: agreement.live,
        replay: agreement.replay,
        paired: agreement.paired(),
        difference_p50_ns: agreement.difference_ns(0.5),
        difference_p99_ns: agreement.difference_ns(0.99),
    };
    format.print(&record, || format!("\n{} (the capture has {:.1} MB)", record.line(), *capture_bytes as f64 / 1e6))
}

/// The name of tcpdump while it captures.
const CAPTURING: &str = "tcpdump -w";

impl RowRecord<'_> {
    fn line(&self) -> String {
        let ms = |ns: Option<u64>| millis_to(3, ns.map(|ns| ns as f64));
        let error =
            self.p50_ns.map_or("-".to_owned(), |p50| format!("{:+.3}", (p50 as f64 - self.truth_ns as f64) / 1e6));
        FIGURES.row([
            &self.tool,
            &self.side,
            &self.samples,
            &ms(self.min_ns),
            &ms(self.p50_ns),
            &ms(self.mean_ns),
            &ms(self.p99_ns),
            &error,
        ])
    }
}

impl CostRecord<'_> {
    fn line(&self) -> String {
        let seconds = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e9));
        let memory = self.memory_bytes.map_or("-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
        COSTS.row([&self.tool, &seconds(self.wall_ns), &seconds(Some(self.cpu_ns)), &memory])
    }
}

impl LiveRecord {
    fn line(&self) -> String {
        let micros = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1} µs", ns as f64 / 1e3));
        format!(
            "dwell rtt: {} samples on the interface, {} of the capture, {} % of them in both; \
             they differ by {} at p50 and {} at p99",
            self.live,
            self.replay,
            percent(self.paired),
            micros(self.difference_p50_ns),
            micros(self.difference_p99_ns)
        )
    }
}
