//! `dwell-lab socket`: what `dwell run` says and does, beside the truth.

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
use dwell_app::{Exit, args::positive_duration, tell::tell};
use dwell_testbed::{QueueStatistics, Statistics, Trace};
use serde::Serialize;

use crate::{
    Programs,
    goal::Goal,
    print::{Format, folders, mean, millis, percent},
};
use crate::{
    failure::Failure,
    socket::{Options, Outcome, Scenario, Setting, Watch},
};

/// Send through a bottleneck under `dwell run`; print how near its figures came, and what --minimize does
///
/// A sender and a receiver in network namespaces of their own, and `dwell stack` in both, which knows
/// what each stamped byte waited. Without a scenario, runs all; without --accuracy and --minimize, does
/// both.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help(), args_conflicts_with_subcommands = true)]
pub struct Socket {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Which to run, see below
    #[arg(value_name = "SCENARIO", hide_possible_values = true, value_parser = PossibleValuesParser::new(Scenario::names().map(|(name, _)| name)))]
    scenarios: Vec<String>,
    /// How near estimates of delays in send and receive buffers come, in each way of estimating them
    #[arg(long)]
    accuracy: bool,
    /// What --minimize does to delay and throughput, beside what else could be done
    #[arg(long)]
    minimize: bool,
    /// For how long applications send; figures are of what is after the first 2 s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = positive_duration)]
    time: Duration,
    /// Runs of each, one after the other of all that are compared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Keep what was stamped and what `dwell run` said, and pictures of delay over time, in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Of the scenario lte: a millisecond a line, each an opportunity for 1504 bytes
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How to print: text, or jsonl, an object a run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What is no scenario.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    Video(video::Video),
    Tools(tools::Tools),
}

/// Name and version of the objects' schema.
const SCHEMA: &str = "dwell.lab_socket/1";

const EXAMPLES: &str = "\
Examples:
  sudo dwell-lab socket 10m-50ms --minimize   throughput and delays, beside what else could be done
  sudo dwell-lab socket codel --accuracy      how near estimates come behind CoDel
  sudo dwell-lab socket video                 a video whose frames have deadlines
  sudo dwell-lab socket tools                 what ping and others say of the same path";

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
    let folder = folders("dwell-socket-", args.keep.as_deref())?;
    let bench = Bench { args, programs: Programs::find()?, folder: args.keep.as_deref().unwrap_or(folder.path()) };
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
        let choice = choose(&self.scenarios, trace.as_ref(), |scenario| scenario.bottleneck.missing_requirement())?;
        for (why, names) in choice.left_out {
            tell(format_args!("{}: left out: {why}", names.join(", ")));
        }
        Ok(choice.scenarios)
    }
}

/// What is run, and why the rest is not.
struct Choice {
    scenarios: Vec<Scenario>,
    left_out: BTreeMap<String, Vec<String>>,
}

/// Those that are asked for, all of which must be possible here; or of all those that are. `lack` tells what this host
/// lacks for one.
fn choose(
    asked: &[String],
    trace: Option<&Trace>,
    lack: impl Fn(&Scenario) -> Option<String>,
) -> Result<Choice, Failure> {
    let mut choice = Choice { scenarios: Vec::new(), left_out: BTreeMap::new() };
    let names: Vec<&str> = match asked {
        [] => Scenario::names().map(|(name, _)| name).collect(),
        some => some.iter().map(String::as_str).collect(),
    };
    for name in names {
        let (why, exit) = match Scenario::find(name, trace) {
            None => ("it needs a trace: name one with --trace FILE".to_owned(), Exit::Usage),
            Some(scenario) => match lack(&scenario) {
                Some(lack) => (lack, Exit::Host),
                None => {
                    choice.scenarios.push(scenario);
                    continue;
                }
            },
        };
        if !asked.is_empty() {
            return Err(Failure::new(exit, anyhow!("cannot run {name}: {why}")));
        }
        choice.left_out.entry(why).or_default().push(name.to_owned());
    }
    Ok(choice)
}

/// Where runs are made.
struct Bench<'a> {
    args: &'a Socket,
    programs: Programs,
    folder: &'a Path,
}

impl Bench<'_> {
    /// Runs it once. What was stamped is kept if that was asked for.
    fn run(&self, scenario: &Scenario, (setting, watch): (Setting, Watch), label: &str) -> Result<Outcome, Failure> {
        let name = format!("{}-{label}", scenario.name).replace(' ', "-");
        let folder = self.folder.join(name);
        fs::create_dir(&folder)
            .with_context(|| format!("make the folder {}", folder.display()))
            .map_err(Failure::usage)?;
        tell(format_args!("{}: {}, {:?}: {label}", scenario.name, scenario.about, self.args.time));
        let outcome = crate::socket::run(&Options {
            scenario: scenario.clone(),
            setting,
            watch: Some(watch),
            time: self.args.time,
            programs: self.programs.clone(),
            folder: folder.clone(),
        })?;
        for line in &outcome.said {
            tell(line);
        }
        if let Some(queues) = &outcome.queues {
            tell(told(queues));
        }
        if outcome.truth.lost > 0 {
            tell(format_args!("{} stamped bytes are missing in the truth", outcome.truth.lost));
        }
        if self.args.keep.is_none() {
            // The whole folder goes at the end; until then it is only in the way.
            let _ = fs::remove_dir_all(&folder);
        }
        Ok(outcome)
    }

    /// Keeps a picture, if that was asked for.
    fn keep(&self, file: &str, picture: &str) -> Result<(), Failure> {
        let Some(keep) = &self.args.keep else {
            return Ok(());
        };
        let file = keep.join(file);
        fs::write(&file, picture)
            .with_context(|| format!("write {}", file.display()))
            .map_err(|error| Failure::new(Exit::Host, error))?;
        tell(format_args!("{} is there", file.display()));
        Ok(())
    }

    fn print(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.args.format.print(object, text)
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        self.args.format.say(text)
    }
}

/// What the bottleneck of a link box did.
fn told(queues: &Statistics) -> String {
    let mut text = queues.to_right.as_ref().map_or_else(|| "the queue told nothing".to_owned(), queue);
    if queues.lost_elsewhere > 0 {
        text += &format!("; {} were lost elsewhere, which the link was not asked for", queues.lost_elsewhere);
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
    fn what_this_host_cannot_is_left_out_of_all_and_refused_by_name() {
        let lack = |scenario: &Scenario| {
            matches!(scenario.bottleneck, Bottleneck::Box(_)).then(|| "there is no box: apt-get install box".to_owned())
        };
        let all = choose(&[], None, lack).unwrap();
        let boxed = ["codel", "fq-codel", "pie", "codel-ecn"];
        assert_eq!(all.scenarios.len(), Scenario::names().count() - 5);
        assert_eq!(all.left_out.len(), 2, "each reason is told once");
        assert!(all.left_out.values().any(|names| names[..] == boxed));
        let refused = |name: &str, lack: fn(&Scenario) -> Option<String>| {
            let failure = choose(&[name.to_owned()], None, lack).err()?;
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
