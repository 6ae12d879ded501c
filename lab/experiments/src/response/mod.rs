//! `dwell-lab response`: estimates compared with the truth.

mod paper;
mod spin;
mod zoo;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use dwell_app::{Exit, args::epoch};

use self::spin::Spin;
use crate::{
    failure::Failure,
    loads::{
        Kind,
        report::{Report, ReportOptions, respond, sweep},
        third_party,
    },
};
use crate::{
    loads::verb::{Load, Loads},
    print::{Format, say},
};

/// Run a load, and `dwell response` where its requests pass; print how near the estimates came
#[derive(Debug, clap::Args)]
pub struct Response {
    #[command(subcommand)]
    subject: Subject,
    /// Estimator: auto, pirate, gap or syn-ack, each with options of `dwell response` if need be; several stand
    /// side by side, as in auto,"pirate --set rto=1s". The first runs live, the others over a
    /// capture of the same packets [default: auto; of paper: pirate,auto; of zoo, where all run over captures: auto,pirate,gap]
    #[arg(long, global = true, value_name = "ESTIMATOR,...", value_parser = estimators)]
    estimator: Option<Estimators>,
    /// Length of an interval, called epoch
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", value_parser = epoch)]
    interval: Duration,
    /// Print what round-trip times say of the same connections: of handshakes, of TCP at the client,
    /// of `dwell rtt`, and of tcptrace where it is installed
    #[arg(long, global = true)]
    round_trips: bool,
    /// Print where errors come from: each step from latency to estimate, each heuristic of pirate
    /// off, and what large errors go with
    #[arg(long, global = true)]
    ablations: bool,
    /// Write a page (.html) or picture (.svg) of the distributions of latency and error, and of one connection over time
    #[arg(long, global = true, value_name = "FILE", value_parser = picture)]
    plot: Option<PathBuf>,
    /// The connection over time, by its port at the client [default: the one with most epochs]
    #[arg(long, global = true, value_name = "PORT", requires = "plot")]
    plot_connection: Option<u16>,
    /// Output format: text, or jsonl with one object per estimator and truth
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum Subject {
    #[command(flatten)]
    Load(Load),
    /// Real clients and servers of many kinds, a few seconds each: how near each estimator comes from the packets of
    /// one direction, and how reliable its confidence is. Goals judge auto
    Zoo(zoo::ZooArgs),
    /// Experiments of the Pirate paper: its figures, ours and the difference. Figure 9 is `dwell-lab lb`
    Paper(paper::Paper),
}

pub fn run(args: &Response) -> Result<Exit, Failure> {
    match &args.subject {
        Subject::Load(load) => respond_to_load(args, load),
        Subject::Zoo(zoo) => {
            args.refuse_what_needs_a_log()?;
            zoo::run(zoo, &args.estimators("auto,pirate,gap"), args.interval, args.format)
        }
        Subject::Paper(paper) => paper::run(args, paper),
    }
}

fn respond_to_load(args: &Response, load: &Load) -> Result<Exit, Failure> {
    let estimators = &args.estimators("auto");
    let folder = tempfile::Builder::new()
        .prefix("dwell-response-")
        .tempdir()
        .map_err(|error| Failure::new(Exit::Host, error))?;
    let runs = match load.loads()? {
        Loads::Own(runs) => runs,
        Loads::ThirdParty(options) => {
            args.refuse_what_needs_a_log()?;
            let comparison = third_party::respond(&options, estimators, args.interval, folder.path())?;
            return log(args.format, || comparison.to_string(), || comparison.lines());
        }
    };
    // Without it the report lacks what the programs cost.
    let _counting = dwell_probes::count_run_times();
    let mut reports = Vec::new();
    for mut run in runs {
        let spins = matches!(run.options.kind, Kind::Http3 { .. });
        if spins {
            let pcap = || folder.path().join("vantage.pcap");
            run.options.pcap.get_or_insert_with(pcap);
        }
        let pcap = run.options.pcap.clone();
        let rtt = run.options.network.topology.end_to_end_rtt();
        let report = respond(&ReportOptions {
            load: run.options.clone(),
            estimators: estimators.clone(),
            epoch: args.interval,
            round_trips: args.round_trips,
            ablations: args.ablations,
            folder: folder.path().to_owned(),
        })?;
        let text = || {
            let report = report.to_string();
            // A blank line parts runs.
            let end = if run.heading().is_empty() { "" } else { "\n" };
            format!("{}{}{end}", run.heading(), report.trim_end())
        };
        log(args.format, text, || report.lines())?;
        if let Some(pcap) = pcap.filter(|_| spins) {
            let spin = Spin::read(&pcap, rtt).map_err(|error| Failure::new(Exit::Incomplete, error))?;
            log(args.format, || format!("\n{spin}"), || Ok(vec![spin.line()]))?;
        }
        if let Some(file) = &args.plot {
            draw(&report, args.plot_connection, &run.file(file))?;
        }
        reports.push(report);
    }
    if reports.len() > 1 && args.format == Format::Text {
        say(sweep(&reports).trim_end())?;
    }
    Ok(Exit::Done)
}

impl Response {
    /// The estimators that are asked for, or else those of a list.
    fn estimators(&self, default: &str) -> Vec<String> {
        match &self.estimator {
            Some(estimators) => estimators.0.clone(),
            None => default.split(',').map(str::to_owned).collect(),
        }
    }

    /// A third-party client reports how its requests went together, but not each.
    fn refuse_what_needs_a_log(&self) -> Result<(), Failure> {
        let asked =
            [("--round-trips", self.round_trips), ("--ablations", self.ablations), ("--plot", self.plot.is_some())];
        match asked.iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::usage(anyhow!(
                "{option} needs a log of each request, which third-party clients do not give: \
                 take another load, or leave it out"
            ))),
        }
    }
}

fn log(
    format: Format,
    text: impl FnOnce() -> String,
    lines: impl FnOnce() -> dwell_testbed::Result<Vec<String>>,
) -> Result<Exit, Failure> {
    match format {
        Format::Text => say(&text()),
        Format::Jsonl => {
            for line in lines()? {
                say(&line)?;
            }
            Ok(Exit::Done)
        }
    }
}

fn draw(report: &Report, connection: Option<u16>, file: &Path) -> Result<(), Failure> {
    let svg = report.svg(connection)?;
    let text = match file.extension() {
        Some(html) if html == "html" => format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>dwell-lab response</title>\n{svg}</html>\n"
        ),
        _ => svg,
    };
    fs::write(file, text)
        .with_context(|| format!("write {}", file.display()))
        .map_err(|error| Failure::new(Exit::Host, error))
}

/// What stands side by side.
#[derive(Debug, Clone)]
struct Estimators(Vec<String>);

/// Names, each with what follows it up to the next one: `dwell response` says
/// whether that is right.
fn estimators(text: &str) -> Result<Estimators, String> {
    let mut list: Vec<String> = Vec::new();
    for part in text.split(',') {
        let begins =
            part.split_whitespace().next().is_some_and(|word| ["auto", "pirate", "gap", "syn-ack"].contains(&word));
        match (begins, list.last_mut()) {
            (true, _) => list.push(part.trim().to_owned()),
            // an option's own list
            (false, Some(last)) if last.contains("--") => {
                last.push(',');
                last.push_str(part);
            }
            _ => {
                return Err("write auto, pirate, gap or syn-ack, and after each its options".into());
            }
        }
    }
    if list.iter().any(|entry| entry.contains("--interval")) {
        return Err("--interval is one for all: give it outside the list".into());
    }
    Ok(Estimators(list))
}

fn picture(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "html") => Ok(file),
        _ => Err("write a name that ends in .svg or .html".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_keep_their_options() {
        let list = |text| estimators(text).map(|list| list.0);
        assert_eq!(list("auto,gap").unwrap(), ["auto", "gap"]);
        assert_eq!(
            list("auto,pirate --set heuristics=acks,mtu --set modes=4,syn-ack").unwrap(),
            ["auto", "pirate --set heuristics=acks,mtu --set modes=4", "syn-ack"]
        );
        for wrong in ["", "guess", "auto,guess", "pirate --interval 2s"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
