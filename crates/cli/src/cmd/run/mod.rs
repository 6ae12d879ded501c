//! `dwell run`: measures how long the data of a program waits in this host and in the network, and shortens the wait.

mod attach;
mod child;
mod library;
mod live_line;
mod metrics;
mod notes;
mod print;
mod program;
mod watcher;

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::anyhow;
use dwell_engine::{histogram::Figure, socket::Estimator};
use dwell_records::SocketFigure;
use dwell_socket::table::{self, ControllerKind};
use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt::TcpCongestion},
};

use crate::{
    args::{FormatOrNone, positive_duration},
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Vocabulary},
    names::NamesArgs,
    served::MetricsArgs,
    set::{Key, boolean, one_of, setting},
    stored::StoreArgs,
    written::WriteArgs,
};

/// Run a program, and report how long its data waits in this host and in the network
///
/// Reports for each TCP connection how long bytes wait in the send buffer, how long they travel, and
/// how long they wait in the receive buffer. Needs no privilege and no change to the program, whose
/// input, output and exit status pass through (128 plus the signal number after a signal). With
/// --minimize the program keeps its throughput and loses most of the wait in the send buffer.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dwell run [OPTIONS] -- PROGRAM [ARGUMENTS]\n       dwell run [OPTIONS] --pid PID\n       dwell run [OPTIONS] --cgroup PATH",
    after_help = "\
Examples:
  dwell run -- curl -T FILE https://example.org/upload
                                      one line per connection and second, and where the time goes
  dwell run --minimize -- curl -T FILE https://example.org/upload
                                      the same with a short send buffer
  dwell run --format jsonl -w run.jsonl -- python3 server.py
  dwell run --fail-if 'mean>50ms' -- ./upload.sh
                                      fail if data waits too long in the send buffer
  dwell run --summary -- ./test.sh    one table at the end, including programs that it starts
  sudo dwell run --minimize --cgroup /sys/fs/cgroup/system.slice/nginx.service
                                      all connections of a service, nothing loaded into it
  dwell run --format none --metrics 127.0.0.1:9474 -- ./server
                                      nothing but metrics for Prometheus
  dwell run --pid $(pidof -s redis-server) --duration 10s
                                      a running program
  sudo dwell run --minimize --pid $(pidof -s rsync)
                                      the same with a short send buffer, until Ctrl-C"
)]
#[group(skip)]
pub struct Args {
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["pid", "cgroup"]
    )]
    command: Vec<OsString>,

    /// Only connections of this process, which runs already, and of its descendants, until it ends or Ctrl-C
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "library"], value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Only connections of processes in this cgroup (v2) or below it, in all network namespaces, until it is
    /// removed or Ctrl-C. With --minimize the kernel keeps the send buffers of new connections
    /// short, and dwell those of the others
    #[arg(long, value_name = "PATH", conflicts_with_all = ["command", "pid", "library", "outside"])]
    cgroup: Option<PathBuf>,

    /// Keep bytes from waiting in the send buffer; with --pid and --cgroup until dwell ends
    #[arg(long)]
    minimize: bool,

    /// Target for the wait in the send buffer
    #[arg(long, value_name = "TIME", default_value = "25ms", requires = "minimize", value_parser = positive_duration)]
    target: Duration,

    /// Use this congestion control, as in sysctl net.ipv4.tcp_allowed_congestion_control
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Time between two polls of a connection; adapts from a tenth to four times this as bytes wait
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = period)]
    poll: Duration,

    /// Length of an interval, after which each connection has a line
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = period)]
    interval: Duration,

    /// End after this time; the program continues
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Output format: text, jsonl, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::Text)]
    format: FormatOrNone,

    #[command(flatten)]
    names: NamesArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Print a summary at the end instead of intervals, with one line per connection, and one for all
    #[arg(long)]
    summary: bool,

    /// Sort the lines of connections by this figure, the largest first: bytes, or of the wait in the send buffer count (of polls
    /// that showed one), mean or max [default: bytes]
    #[arg(long, value_name = "FIGURE", value_parser = figure)]
    by: Option<SocketFigure>,

    /// Only the first N of these lines; the number of the others is shown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,

    /// Fail (exit status 1, unless the program has failed itself) if this holds for all connections together, or cannot
    /// be judged because there are no samples: [BUFFER] FIGURE>TIME, as in 'mean>50ms' or 'receiver max>1s'; BUFFER is sender (assumed),
    /// receiver or network; FIGURE is count (of polls that showed a wait), mean (over bytes) or, of buffers, max; may be
    /// given several times
    #[arg(long, value_name = "CONDITION", value_parser = conditions)]
    fail_if: Vec<Conditions>,

    #[command(flatten)]
    metrics: MetricsArgs,

    /// Watch connections only from outside, and load nothing into the program
    #[arg(long, conflicts_with_all = ["minimize", "congestion", "library"])]
    outside: bool,

    /// The library to load into the program [default: libdwell_preload.so, or libdwell_calls.so with
    /// --minimize, next to dwell or in ../lib/dwell]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Set KEY to VALUE, for experiments: what is compared, controller=element, wireless=true or estimator=paper; see
    /// docs/method/socket.md. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = variant)]
    set: Vec<Variant>,
}

/// A part of the method that experiments exchange: `--set KEY=VALUE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// How `--minimize` shortens the wait in the send buffer.
    Controller(ControllerKind),
    /// Whether the controller `element` sets the send buffer's size too.
    Wireless(bool),
    /// How delays are estimated.
    Estimator(Estimator),
}

const VARIANTS: &[Key<Variant>] = &[
    ("controller", |value| {
        let controllers = [("lowat", ControllerKind::Lowat), ("element", ControllerKind::Element)];
        one_of(value, &controllers).map(Variant::Controller)
    }),
    ("wireless", |value| boolean(value).map(Variant::Wireless)),
    ("estimator", |value| {
        one_of(value, &[("exact", Estimator::Exact), ("paper", Estimator::Paper)]).map(Variant::Estimator)
    }),
];

/// Parses conditions on what a run knows of all connections: no distributions.
fn conditions(text: &str) -> Result<Conditions, String> {
    const FIGURES: &[Figure] = &[Figure::Count, Figure::Mean, Figure::Max];
    let names = ["sender", "receiver", "network"].map(str::to_owned).into();
    fail_if::parse(text, &Vocabulary { kind: "buffer", names, figures: FIGURES })
}

fn figure(name: &str) -> Result<SocketFigure, String> {
    let figures = SocketFigure::ALL.map(|figure| (figure.name(), figure));
    one_of(name, &figures)
}

fn variant(text: &str) -> Result<Variant, String> {
    setting(text, VARIANTS)
}

/// Parses a period that timers of the kernel can keep.
fn period(text: &str) -> Result<Duration, String> {
    match positive_duration(text)? {
        short if short < Duration::from_millis(1) => Err("it must be at least 1ms".into()),
        time => Ok(time),
    }
}

/// Runs the verb. The exit status is the program's.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.refuse_variants_without_effect()?;
    args.congestion.as_deref().map_or(Ok(()), refuse_congestion_that_cannot_be_set)?;
    match (args.pid, &args.cgroup) {
        (Some(pid), _) => attach::attach(args, pid).map(|exit: Exit| exit.into()),
        (None, Some(path)) => attach::cgroup(args, path).map(|exit: Exit| exit.into()),
        (None, None) => child::run(args).map(ExitCode::from),
    }
}

/// Tries a congestion control on a socket that is not used otherwise. By root, the kernel loads its module for that.
fn refuse_congestion_that_cannot_be_set(name: &str) -> Result<(), Failure> {
    let names = |kind: &str| {
        let file = format!("/proc/sys/net/ipv4/tcp_{kind}_congestion_control");
        fs::read_to_string(file).unwrap_or_default().split_ascii_whitespace().collect::<Vec<_>>().join(", ")
    };
    let trial = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .and_then(|socket| setsockopt(&socket, TcpCongestion, &name.into()));
    match trial {
        Err(Errno::ENOENT) => Err(Failure::usage(anyhow!(
            "the kernel has no congestion control '{name}': it has {} (`sudo modprobe tcp_{name}` loads it if \
             the kernel has it as a module)",
            names("available")
        ))),
        Err(Errno::EPERM) => Err(Failure::new(
            Exit::Host,
            anyhow!("only root may choose the congestion control '{name}': users may choose {}", names("allowed")),
        )),
        // What else may be wrong shows on the connections themselves.
        _ => Ok(()),
    }
}

impl Args {
    fn refuse_variants_without_effect(&self) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::usage(anyhow!("{why}, or leave it out")));
        for variant in &self.set {
            match variant {
                Variant::Controller(_) | Variant::Wireless(_) if !self.minimize => {
                    return refuse("--set controller and --set wireless need --minimize: give that too");
                }
                Variant::Estimator(Estimator::Exact) if self.is_element() => {
                    return refuse("--set controller=element measures with estimator=paper: choose that");
                }
                Variant::Wireless(true) if self.controller() != ControllerKind::Element => {
                    return refuse("--set wireless=true is for --set controller=element: give that too");
                }
                Variant::Controller(ControllerKind::Element) if self.cgroup.is_some() || self.pid.is_some() => {
                    return refuse(
                        "--set controller=element sleeps in calls that write, which cannot be seen with --cgroup and \
                         --pid: choose another controller",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn controller(&self) -> ControllerKind {
        let given = self.set.iter().rev().find_map(|variant| match variant {
            Variant::Controller(controller) => Some(*controller),
            _ => None,
        });
        given.unwrap_or(ControllerKind::Lowat)
    }

    fn estimator(&self) -> Estimator {
        match self.is_element() {
            true => Estimator::Paper,
            false => self.given_estimator().unwrap_or(Estimator::Exact),
        }
    }

    fn given_estimator(&self) -> Option<Estimator> {
        self.set.iter().rev().find_map(|variant| match variant {
            Variant::Estimator(estimator) => Some(*estimator),
            _ => None,
        })
    }

    fn is_element(&self) -> bool {
        self.minimize && self.controller() == ControllerKind::Element
    }

    fn table_config(&self) -> table::Config {
        table::Config {
            poll: self.poll,
            estimator: self.estimator(),
            controller: self.minimize.then(|| self.controller()),
            target: self.target,
            wireless: self.set.contains(&Variant::Wireless(true)),
            congestion: self.congestion.clone(),
            ..table::Config::default()
        }
    }

    /// True if options are set on sockets.
    fn sets_options(&self) -> bool {
        self.minimize || self.congestion.is_some()
    }

    /// True if dwell sets options on sockets whose program has not loaded the library.
    fn sets_outside(&self) -> bool {
        self.sets_options() && !self.is_element()
    }

    /// True if the library must intercept the calls that write and read.
    fn needs_calls(&self) -> bool {
        self.minimize || self.estimator() == Estimator::Paper
    }
}
