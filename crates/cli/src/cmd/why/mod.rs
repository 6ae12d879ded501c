//! `dwell why`: why the connections of a target are slow.

mod fail_if;
mod layers;
mod look;
mod nothing;
mod peers;
mod replay;
mod stamps;
mod target;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use anyhow::anyhow;
use dwell_engine::{
    filter::Filter,
    why::{Evidence, decide},
};
use dwell_records::{Record, Source, Why};
use dwell_socket::{clock::monotonic_ns, outside::Selection};

use crate::{
    args::{FormatOrNone, positive_duration},
    exit::{Exit, Failure},
    moment::Moment,
    names::NamesArgs,
    source::{ServerArgs, clock, cost, host_name, is_store},
    stored::{self, StoreArgs},
    written::WriteArgs,
};

/// Find out why connections are slow, with the evidence, and what to do about it
///
/// Looks at the TCP connections of a target for a while: what they wait for, and for how long. Prints
/// one sentence, where the time went, the facts for and against, what could not be seen, and commands
/// that help. Changes nothing, and needs no privilege; as root it also sees the layers of this host.
/// Ports and hosts are those of the network namespace that it is run in; processes, units, containers
/// and pods are looked at where they are.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dwell why [OPTIONS] TARGET\n       dwell why [OPTIONS] -- PROGRAM [ARGUMENTS]\n       dwell why [OPTIONS] -r FILE [TARGET]",
    after_help = "\
Examples:
  dwell why example.org:443             connections to a service
  dwell why :5432                       connections with this port at one end
  dwell why $(pgrep -o nginx)           those of a process and its descendants
  sudo dwell why nginx.service          those of a unit of systemd
  sudo dwell why web                    those of a container, by its name or ID, in its own network
                                        namespace
  sudo dwell why shop/web-0             those of a pod of Kubernetes on this node
  dwell why -- curl -o FILE https://example.org/
                                        those of a program, until it ends
  dwell why -r slow.pcap :443           those in a capture of tcpdump
  dwell why -r fleet.db :443 --since 1h
                                        those in a store of dwell collect: where their bytes were, across
                                        hosts
  dwell why :443 --duration 30s --format jsonl
  dwell why :443 --format jsonl -w why.jsonl
                                        one more line in this file, as from a timer

  dwell why :443 --fail-if loss,path-queue
                                        fail if the path is at fault, as in CI

Exit status: 0 a verdict, also that all is well; 1 as --fail-if says; 4 no traffic, or not enough
evidence."
)]
#[group(skip)]
pub struct Args {
    /// HOST, HOST:PORT, :PORT, a process ID, a unit such as nginx.service, the name or ID of a container, a pod as NAME or
    /// NAMESPACE/NAME, or the path of a cgroup
    #[arg(value_name = "TARGET", required_unless_present_any = ["command", "read"])]
    target: Option<String>,

    /// A program to run and look at; its input and output pass through, and the verdict goes to standard error
    #[arg(value_name = "PROGRAM", last = true, conflicts_with = "target")]
    command: Vec<OsString>,

    /// Capture to read instead: pcap or pcapng, also gzipped; - for a pipe; or a store of `dwell collect` or --store, also on
    /// a ClickHouse server, clickhouse://HOST:PORT/DATABASE, or clickhouses:// over TLS
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["command", "duration"])]
    read: Option<PathBuf>,

    /// Start: a time such as 2026-11-21T14:00:00Z, or a duration before the end such as 10m; with -r of a store
    #[arg(long, value_name = "TIME", requires = "read", value_parser = Moment::parse)]
    since: Option<Moment>,

    /// End, in the same form
    #[arg(long, value_name = "TIME", requires = "read", value_parser = Moment::parse)]
    until: Option<Moment>,

    /// Only flows with an end in this range, or with ! only others: [!]PREFIX[:PORT[-PORT]] or
    /// [!]:PORT[-PORT]; or flows of an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'; may be given
    /// several times, with 16 terms in all
    #[arg(
        short,
        long,
        value_name = "FILTER",
        allow_hyphen_values = true,
        requires = "read",
        conflicts_with = "target"
    )]
    filter: Vec<String>,

    /// End after this time; a program may end earlier [default: 10s; with a program, until it ends]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Fail (exit status 1) if one of these is in the verdict, or if there is no verdict: slow, for any cause, or causes by
    /// their names, as in loss,path-queue
    #[arg(long, value_name = "CONDITION", value_delimiter = ',', value_parser = fail_if::parse)]
    fail_if: Vec<fail_if::FailCondition>,

    /// Output format: text, jsonl, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::Text)]
    format: FormatOrNone,

    #[command(flatten)]
    names: NamesArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    /// Whether requests are told apart by what they ask for.
    fn has_labels(&self) -> bool {
        self.names.have_labels(self.write.write.is_some())
    }
}

/// How long to look at a target that does not end by itself.
const DURATION: Duration = Duration::from_secs(10);

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let source = match args.read {
        Some(_) => Source::default(),
        None => Source { clock: clock(), host: Some(host_name()), ..Source::default() },
    };
    let output = match args.command.is_empty() {
        true => args.write.output(args.format.name(), source)?,
        false => args.write.output_beside_program(args.format.name(), source)?,
    };
    // Before that file may be opened as the store to write: closing it would end SQLite's locks on it.
    let is_store = args.read.as_ref().is_some_and(|path| is_store(path));
    let mut output = output.keeping(args.store.open(DURATION, args.read.is_some())?);
    let looked = look(args, is_store)?;
    let (evidence, verdict) = (&looked.evidence, decide(&looked.evidence));
    let end_ns = if args.read.is_some() { evidence.ended_ns } else { monotonic_ns() };
    let written = output
        .write(&Record::Why(&Why { end_ns, evidence, verdict: &verdict, cost: cost(&[]) }))
        .and_then(|()| output.flush());
    if let Some(mut program) = looked.program {
        look::end_of(&mut program)?;
    }
    written?;
    let exit = stored::finish(Some(&mut output), looked.exit?);
    Ok(fail_if::exit(&args.fail_if, &verdict, exit))
}

/// What was seen of a target.
struct Looked {
    evidence: Evidence,
    /// Whether all of it was seen.
    exit: Result<Exit, Failure>,
    /// A program that was started to be looked at, and may still run.
    program: Option<Child>,
}

impl From<Evidence> for Looked {
    fn from(evidence: Evidence) -> Looked {
        Looked { evidence, exit: Ok(Exit::Done), program: None }
    }
}

fn look(args: &Args, is_store: bool) -> Result<Looked, Failure> {
    match (&args.read, &args.target, args.command.split_first()) {
        (Some(path), target, _) if is_store => in_store(args, path, target.as_deref()),
        (Some(path), target, _) => in_capture(args, path, target.as_deref()),
        (None, _, Some((program, arguments))) => at_program(args, program, arguments),
        (None, Some(target), None) => at_target(args, target),
        (None, None, None) => Err(Failure::usage(anyhow!("name a target, as in `dwell why example.org:443`"))),
    }
}

fn in_store(args: &Args, path: &Path, target: Option<&str>) -> Result<Looked, Failure> {
    if !args.filter.is_empty() {
        return Err(Failure::usage(anyhow!("--filter is for captures: name HOST:PORT, :PORT or HOST of a store")));
    }
    let selected = target.map(|text| target::parse(text).map_err(Failure::usage)).transpose()?;
    if let (Some(text), Some(Selection::Process(_) | Selection::Cgroups(_))) = (target, &selected) {
        return Err(has_no_processes(text, "a store"));
    }
    Ok(stamps::read(path, target.zip(selected.as_ref()), args.since, args.until, &args.server)?.into())
}

fn in_capture(args: &Args, path: &Path, target: Option<&str>) -> Result<Looked, Failure> {
    stamps::refuse_without_store(args.since, args.until)?;
    args.server.refuse()?;
    let stop = args.write.listen(None)?;
    let texts = match target {
        None => args.filter.clone(),
        Some(text) => replay::filter(&target::parse(text).map_err(Failure::usage)?)
            .ok_or_else(|| has_no_processes(text, "a capture"))?,
    };
    let filter = Filter::parse(&texts).map_err(Failure::usage)?;
    let name = target.map_or_else(|| path.display().to_string(), str::to_owned);
    let learned = peers::PeerNames::of_capture(&args.names)?;
    let (evidence, exit) = replay::read(path, filter, &name, args.has_labels(), learned, &stop)?;
    Ok(Looked { exit, ..evidence.into() })
}

fn at_program(args: &Args, program: &OsStr, arguments: &[OsString]) -> Result<Looked, Failure> {
    let stop = args.write.listen(args.duration)?;
    let learned = peers::PeerNames::live(&args.names)?;
    let (evidence, program) = look::at_program(program, arguments, args.has_labels(), learned, &stop)?;
    Ok(Looked { program: Some(program), ..evidence.into() })
}

fn at_target(args: &Args, target: &str) -> Result<Looked, Failure> {
    args.server.refuse()?;
    let selected = target::parse(target).map_err(Failure::usage)?;
    let duration = args.duration.unwrap_or(DURATION);
    let mut learned = peers::PeerNames::live(&args.names)?;
    if let Selection::Ends { addresses, .. } = &selected {
        learned.asked_for(target::host(target), addresses);
    }
    let stop = args.write.listen(Some(duration))?;
    Ok(look::at(&selected, target, args.has_labels(), learned, duration, &stop)?.into())
}

fn has_no_processes(target: &str, what: &str) -> Failure {
    Failure::usage(anyhow!("'{target}' is a process, and {what} has none: name HOST:PORT, :PORT or HOST"))
}
