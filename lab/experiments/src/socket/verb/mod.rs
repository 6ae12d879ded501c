//! `dwell-lab socket`: the figures and the controller of `dwell run`, compared with the truth.

mod accuracy;
mod minimize;
mod tools;
mod video;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::builder::PossibleValuesParser;
use dwell_app::{Exit, args::positive_duration, log::log};
use dwell_testbed::{QueueStatistics, Statistics, Trace};
use serde::Serialize;

use crate::{
    Programs,
    goal::Goal,
    print::{Format, SCHEMA, folders, mean, millis, percent},
};
use crate::{
    failure::Failure,
    socket::{Offload, Options, Outcome, Scenario, Setting, Watch},
};

/// Send through a bottleneck under `dwell run`; print how accurate its figures are, and what --minimize does
///
/// Runs a sender and a receiver in network namespaces of their own, and `dwell stack` in both, which
/// measures the true delay of stamped bytes. Without a scenario, runs all; without --accuracy and
/// --minimize, does both.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help(), args_conflicts_with_subcommands = true)]
pub struct Socket {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The scenarios to run, see below [default: all]
    #[arg(value_name = "SCENARIO", hide_possible_values = true, value_parser = PossibleValuesParser::new(Scenario::names().map(|(name, _)| name)))]
    scenarios: Vec<String>,
    /// Print the accuracy of the estimated delays in send and receive buffers, for each method
    #[arg(long)]
    accuracy: bool,
    /// Print the delay and throughput of --minimize, compared with other settings
    #[arg(long)]
    minimize: bool,
    /// How long applications send; figures leave out the first 2 s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = positive_duration)]
    duration: Duration,
    /// Runs of each setting; the settings take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Folder to keep the stamps, the output of `dwell run` and pictures of delay over time in
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
    /// Delivery trace of the scenario lte: one millisecond per line, each an opportunity for 1504 bytes
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Send without segmentation offload: TCP makes no packets that are longer than the link's
    #[arg(long)]
    no_offload: bool,
    /// Which settings --minimize compares with plain, such as lowat or element [default: all]
    #[arg(long, value_name = "SETTINGS", value_delimiter = ',', value_parser = setting)]
    settings: Vec<Setting>,
    /// Output format: text, or jsonl, one object per run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Experiments of their own.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    Video(video::Video),
    Tools(tools::Tools),
}

const EXAMPLES: &str = "\
Examples:
  sudo dwell-lab socket 10m-50ms --minimize   throughput and delays, compared with other settings
  sudo dwell-lab socket codel --accuracy      accuracy of the estimates behind CoDel
  sudo dwell-lab socket video                 a video whose frames have deadlines
  sudo dwell-lab socket tools                 what ping and others report for the same path";

fn after_help() -> String {
    let lines = Scenario::names().map(|(name, about)| format!("  {name:<14}{about}"));
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("Scenarios:\n{lines}\n\n{EXAMPLES}")
}

pub fn run(args: &Socket) -> Result<Exit, Failure> {
    match &args.verb {
        None => compare(args),
        Some(Verb::Video(args)) => video::run(args),
        Some(Verb::Tools(args)) => tools::run(args),
    }
}

fn compare(args: &Socket) -> Result<Exit, Failure> {
    let folder = folders("dwell-socket-", args.keep_in.as_deref())?;
    let bench = Bench { args, programs: Programs::find()?, folder: args.keep_in.as_deref().unwrap_or(folder.path()) };
    let scenarios = args.scenarios()?;
    let both = !args.accuracy && !args.minimize;
    let mut exit = Exit::Done;
    if args.accuracy || both {
        exit = exit.max(accuracy::run(&bench, &scenarios)?);
    }
    if args.minimize || both {
        exit = exit.max(minimize::run(&bench, &scenarios)?);
    }
    Ok(exit)
}

impl Socket {
    fn scenarios(&self) -> Result<Vec<Scenario>, Failure> {
        let trace = self.trace.as_deref().map(Trace::read).transpose()?;
        let lack = |scenario: &Scenario| scenario.missing_requirement();
        let selection = select(&self.scenarios, trace.as_ref(), lack)?;
        for (reason, names) in selection.skipped {
            log(format_args!("{}: skipped: {reason}", names.join(", ")));
        }
        Ok(selection.scenarios)
    }
}

/// Parses the name of a setting.
fn setting(text: &str) -> Result<Setting, String> {
    let names = || Setting::ALL.map(Setting::name).join(", ");
    let found = Setting::ALL.into_iter().find(|setting| setting.name() == text);
    found.ok_or_else(|| format!("the settings are: {}", names()))
}

/// The scenarios to run, and the names of the others by the reason why they are skipped.
struct Selection {
    scenarios: Vec<Scenario>,
    skipped: BTreeMap<String, Vec<String>>,
}

/// The requested scenarios, all of which this host must support, or all that it supports. `lack` returns what this host
/// lacks for a scenario.
fn select(
    requested: &[String],
    trace: Option<&Trace>,
    lack: impl Fn(&Scenario) -> Option<String>,
) -> Result<Selection, Failure> {
    let mut selection = Selection { scenarios: Vec::new(), skipped: BTreeMap::new() };
    let names: Vec<&str> = match requested {
        [] => Scenario::names().map(|(name, _)| name).collect(),
        some => some.iter().map(String::as_str).collect(),
    };
    for name in names {
        let (reason, exit) = match Scenario::find(name, trace) {
            None => ("it needs a trace: name one with --trace FILE".to_owned(), Exit::Usage),
            Some(scenario) => match lack(&scenario) {
                Some(lack) => (lack, Exit::Host),
                None => {
                    selection.scenarios.push(scenario);
                    continue;
                }
            },
        };
        if !requested.is_empty() {
            return Err(Failure::new(exit, anyhow!("cannot run {name}: {reason}")));
        }
        selection.skipped.entry(reason).or_default().push(name.to_owned());
    }
    Ok(selection)
}

/// The runs of one command.
struct Bench<'a> {
    args: &'a Socket,
    programs: Programs,
    folder: &'a Path,
}

impl Bench<'_> {
    /// Runs a scenario once. The stamps are kept with --keep.
    fn run(&self, scenario: &Scenario, (setting, watch): (Setting, Watch), label: &str) -> Result<Outcome, Failure> {
        let name = format!("{}-{label}", scenario.name).replace(' ', "-");
        let folder = self.folder.join(name);
        fs::create_dir(&folder)
            .with_context(|| format!("make the folder {}", folder.display()))
            .map_err(Failure::usage)?;
        log(format_args!("{}: {}, {:?}: {label}", scenario.name, scenario.about, self.args.duration));
        let outcome = crate::socket::run(&Options {
            scenario: scenario.clone(),
            setting,
            watch: Some(watch),
            time: self.args.duration,
            offload: if self.args.no_offload { Offload::Off } else { Offload::On },
            programs: self.programs.clone(),
            folder: folder.clone(),
        })?;
        for line in &outcome.messages {
            log(line);
        }
        if let Some(queues) = &outcome.queues {
            log(describe(queues));
        }
        if outcome.truth.lost > 0 {
            log(format_args!("{} stamped bytes are missing in the truth", outcome.truth.lost));
        }
        if self.args.keep_in.is_none() {
            // The stamps of a run are large; the whole folder is removed at the end in any case.
            let _ = fs::remove_dir_all(&folder);
        }
        Ok(outcome)
    }

    /// Writes a picture to the folder of --keep.
    fn keep(&self, file: &str, picture: &str) -> Result<(), Failure> {
        let Some(keep) = &self.args.keep_in else {
            return Ok(());
        };
        let file = keep.join(file);
        fs::write(&file, picture)
            .with_context(|| format!("write {}", file.display()))
            .map_err(|error| Failure::new(Exit::Host, error))?;
        log(format_args!("wrote {}", file.display()));
        Ok(())
    }

    fn print(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.args.format.print(object, text)
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        self.args.format.say(text)
    }

    fn judge(&self, goals: &[Goal]) -> Result<Exit, Failure> {
        judge(self.args.format, goals)
    }
}

/// Prints goals, and returns the exit status that follows from them.
fn judge(format: Format, goals: &[Goal]) -> Result<Exit, Failure> {
    for goal in goals {
        format.say(&goal.line())?;
    }
    Ok(Goal::exit(goals))
}

/// Describes the statistics of a link box in a sentence.
fn describe(queues: &Statistics) -> String {
    let mut text = queues.to_right.as_ref().map_or_else(|| "the queue reported nothing".to_owned(), queue);
    if queues.lost_elsewhere > 0 {
        text += &format!("; {} packets were lost elsewhere, against the link's configuration", queues.lost_elsewhere);
    }
    text
}

fn queue(queue: &QueueStatistics) -> String {
    let marked = queue.marked.map_or_else(|| "-".to_owned(), |marked| marked.to_string());
    format!("the queue passed {} packets, dropped {}, marked {marked}", queue.packets, queue.dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Bottleneck;

    #[test]
    fn an_unsupported_scenario_is_skipped_or_refused_by_name() {
        let lack = |scenario: &Scenario| {
            matches!(scenario.bottleneck, Bottleneck::Box(_)).then(|| "there is no box: apt-get install box".to_owned())
        };
        let all = select(&[], None, lack).unwrap();
        let boxed = ["codel", "fq-codel", "pie", "codel-ecn"];
        assert_eq!(all.scenarios.len(), Scenario::names().count() - 5);
        assert_eq!(all.skipped.len(), 2, "each reason is reported once");
        assert!(all.skipped.values().any(|names| names[..] == boxed));
        let refused = |name: &str, lack: fn(&Scenario) -> Option<String>| {
            let failure = select(&[name.to_owned()], None, lack).err()?;
            Some((failure.exit, failure.error?.to_string()))
        };
        let (exit, error) = refused("pie", lack).unwrap();
        assert_eq!(exit, Exit::Host);
        assert_eq!(error, "cannot run pie: there is no box: apt-get install box");
        assert_eq!(refused("lte", lack).unwrap().0, Exit::Usage);
        assert!(refused("reno", lack).is_none());
        assert!(refused("pie", |_| None).is_none());
    }
}
