//! `dwell why`: why the connections of a target are slow.

mod layers;
mod look;
mod target;

use std::{ffi::OsString, time::Duration};

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_engine::why::{Outcome, decide};
use dwell_records::{Output, Record, Sink, Source, Why, entry};
use dwell_socket::clock::monotonic_ns;

use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    source::{clock, host_name},
    stop::Stop,
};

/// Say why connections are slow, with the evidence, and what to do about it
///
/// Looks at the TCP connections of a target for a while: what they wait for, and for how long. Prints
/// one sentence, where the time went, the facts for and against, what could not be seen, and commands
/// that help. Changes nothing, and needs no privilege; as root it also sees the layers of this host.
/// Watches the network namespace that it is run in.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dwell why [OPTIONS] TARGET\n       dwell why [OPTIONS] -- PROGRAM [ARGUMENTS]",
    after_help = "\
Examples:
  dwell why example.org:443             connections to a service
  dwell why :5432                       connections of which one end has this port
  dwell why $(pidof -s nginx)           those of a process and its descendants
  dwell why -- curl -o FILE https://example.org/
                                        those of a program, until it ends
  dwell why :443 --duration 30s --format jsonl

Exit status: 0 a verdict, also that all is well; 4 no traffic, or not enough evidence."
)]
#[group(skip)]
pub struct Args {
    /// HOST, HOST:PORT, :PORT or a process ID
    #[arg(value_name = "TARGET", required_unless_present = "command")]
    target: Option<String>,

    /// A program to run and look at; its standard output goes to standard error
    #[arg(value_name = "PROGRAM", last = true, conflicts_with = "target")]
    command: Vec<OsString>,

    /// End after this time; a program may end earlier [default: 10s; with a program, until it ends]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Output format: text or jsonl
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
}

/// How long to look at a target that does not end by itself.
const DURATION: Duration = Duration::from_secs(10);

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let evidence = match (&args.target, args.command.split_first()) {
        (_, Some((program, arguments))) => {
            let stop = Stop::listen(args.duration)?;
            look::at_program(program, arguments, &stop)?
        }
        (Some(text), None) => {
            let selected = target::parse(text).map_err(Failure::usage)?;
            let duration = args.duration.unwrap_or(DURATION);
            let stop = Stop::listen(Some(duration))?;
            look::at(&selected, text, duration, &stop)?
        }
        (None, None) => return Err(Failure::usage(anyhow!("name a target, as in `dwell why example.org:443`"))),
    };
    let verdict = decide(&evidence);
    let format = match args.format {
        Format::Text => "text",
        Format::Jsonl => "jsonl",
    };
    let format = entry(format).expect("a format of this name");
    let source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
    let mut output = Output::new((format.new)(), Sink::stdout()?, source);
    output.write(&Record::Why(&Why { end_ns: monotonic_ns(), evidence: &evidence, verdict: &verdict }))?;
    output.flush()?;
    Ok(match verdict.outcome {
        Outcome::Slow(_) | Outcome::Healthy => Exit::Done,
        Outcome::NoTraffic | Outcome::NotEnough => Exit::Incomplete,
    })
}
