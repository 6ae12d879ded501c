//! `dwell run`: how long the data of a program waits in this host and in the network, and less of it.

mod attach;
mod child;
mod library;
mod live_line;
mod notes;
mod print;
mod program;
mod watcher;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_engine::socket::Estimator;
use dwell_socket::table::{self, ControllerKind};

use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
};

/// Run a program, and tell how long its data waits in this host and in the network
///
/// For each TCP connection: how long bytes wait in the send buffer, how long they are on their way,
/// and how long they wait in the receive buffer. Needs no privilege and no change to the program,
/// whose input, output and exit status pass through (128 and the signal's number after a signal).
/// With --minimize it keeps its throughput and loses most of the wait in the send buffer.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dwell run [OPTIONS] -- PROGRAM [ARGUMENTS]\n       dwell run [OPTIONS] --attach PID\n       dwell run [OPTIONS] --cgroup PATH",
    after_help = "\
Examples:
  dwell run -- curl -T FILE https://example.org/upload
                                      a line a connection and second, and where the time goes
  dwell run --minimize -- curl -T FILE https://example.org/upload
                                      the same with a short send buffer
  dwell run --format jsonl --output run.jsonl -- python3 server.py
  dwell run --summary -- ./test.sh    one table at the end, also of the programs that it starts
  sudo dwell run --minimize --cgroup /sys/fs/cgroup/system.slice/nginx.service
                                      all connections of a service, with nothing in its processes
  dwell run --attach $(pidof -s redis-server) --duration 10s
                                      a program that runs already"
)]
#[group(skip)]
pub struct Args {
    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["attach", "cgroup"]
    )]
    command: Vec<OsString>,

    /// Look at this process and its descendants, which run already; until it ends or Ctrl-C
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "minimize", "congestion", "library"], value_parser = clap::value_parser!(u32).range(1..))]
    attach: Option<u32>,

    /// Look at all processes of this cgroup (v2) and those below it, in all network namespaces; until
    /// it is removed or Ctrl-C. With --minimize the kernel keeps the send buffers of connections
    /// short that begin from now on
    #[arg(long, value_name = "PATH", conflicts_with_all = ["command", "attach", "library", "outside"])]
    cgroup: Option<PathBuf>,

    /// Keep bytes from waiting in the send buffer
    #[arg(long)]
    minimize: bool,

    /// The wait in the send buffer to aim at
    #[arg(long, value_name = "TIME", default_value = "25ms", requires = "minimize", value_parser = positive_duration)]
    target: Duration,

    /// How to: lowat has the kernel take no more than that (TCP_NOTSENT_LOWAT); element sleeps in
    /// calls that write (Algorithm 3 of ELEMENT)
    #[arg(long, value_enum, default_value_t = Controller::Lowat, requires = "minimize")]
    controller: Controller,

    /// element: also set the send buffer's size, for wireless networks whose rate changes a lot
    #[arg(long, requires = "minimize")]
    wireless: bool,

    /// Use this congestion control, as in sysctl net.ipv4.tcp_allowed_congestion_control
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// How to estimate: exact by the kernel's counts of bytes; paper by segments, as ELEMENT does
    #[arg(long, value_enum, default_value_t = EstimatorName::Exact)]
    estimator: EstimatorName,

    /// Time between two looks at a connection; a tenth to four times of it, as bytes wait
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = look)]
    poll: Duration,

    /// Time between two lines of a connection
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = look)]
    interval: Duration,

    /// Measure for this time; the program goes on
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Where to print, instead of standard error
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print at the end only: a line a connection, and one for all
    #[arg(long)]
    summary: bool,

    /// Look at connections from outside only, and load nothing into the program
    #[arg(long, conflicts_with_all = ["minimize", "congestion", "library"])]
    outside: bool,

    /// The library to load into the program [default: libdwell.so, beside dwell or in ../lib/dwell]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Controller {
    Lowat,
    Element,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EstimatorName {
    Exact,
    Paper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
}

/// A time between looks that a kernel can keep.
fn look(text: &str) -> Result<Duration, String> {
    match positive_duration(text)? {
        short if short < Duration::from_millis(1) => Err("it must be at least 1ms".into()),
        time => Ok(time),
    }
}

/// Runs the verb. What it ends with is the program's exit status.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.wireless && args.controller != Controller::Element {
        return Err(Failure::usage(anyhow!("--wireless is for --controller element: give that too, or leave it out")));
    }
    if args.cgroup.is_some() && args.controller == Controller::Element {
        return Err(Failure::usage(anyhow!(
            "--controller element sleeps in calls that write, and with --cgroup these are not seen: leave it out"
        )));
    }
    match (args.attach, &args.cgroup) {
        (Some(pid), _) => attach::attach(args, pid).map(|exit: Exit| exit.into()),
        (None, Some(path)) => attach::cgroup(args, path).map(|exit: Exit| exit.into()),
        (None, None) => child::run(args).map(ExitCode::from),
    }
}

impl Args {
    fn estimator(&self) -> Estimator {
        match self.estimator {
            EstimatorName::Exact => Estimator::Exact,
            EstimatorName::Paper => Estimator::Paper,
        }
    }

    /// What the library is to do.
    fn table_config(&self) -> table::Config {
        table::Config {
            poll: self.poll,
            estimator: self.estimator(),
            controller: self.minimize.then_some(match self.controller {
                Controller::Lowat => ControllerKind::Lowat,
                Controller::Element => ControllerKind::Element,
            }),
            target: self.target,
            wireless: self.wireless,
            congestion: self.congestion.clone(),
            ..table::Config::default()
        }
    }

    /// Calls that write and read have to be seen too.
    fn needs_calls(&self) -> bool {
        let is_element = self.minimize && self.controller == Controller::Element;
        is_element || self.estimator == EstimatorName::Paper
    }
}
