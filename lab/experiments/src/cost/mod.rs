//! The cost of dwell, as ratios to named alternatives in the same run. Each benchmark is a file.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables are printed row by row")]

mod accuracy;
mod all;
mod balancer;
mod balancer_quic;
mod build;
pub(crate) mod child;
mod clock;
mod control;
mod driver;
mod forward;
mod goals;
mod kernel;
mod kernel_objects;
mod limits;
mod live;
mod memory;
mod peers;
mod replay;
mod socket;
mod stack;
mod stop;
mod traffic;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dwell_app::Exit;
use dwell_testbed::error::find_program;
use limits::Finding;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use stop::Stop;

use crate::{Programs, failure::Failure, figures, goal::Goal, values::positive};

pub use child::help as help_to_measure_a_child;

/// Measure what dwell costs, next to named alternatives in the same run
///
/// Rounds of the alternatives take turns, and medians are printed: on another machine, or at another hour, only the
/// ratios mean something. What needs a program that is not installed is left out, with a note. Goals follow the tables, with
/// figure and verdict. Without the name of a benchmark, all run that measure costs, which takes an hour, and one table
/// of all goals ends them. The exit status is 1 if a goal is missed, and 4 if one could not be decided, such as a ratio to a
/// peer that was not there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab cost                     all of it, and one table of what is met and missed
  sudo dwell-lab cost --quick             the same in 20 minutes
  sudo dwell-lab cost kernel              ns per packet of `dwell rtt` and `dwell response`
  sudo dwell-lab cost live --quick        throughput that is left with dwell watching
  sudo dwell-lab cost balancer --row hit  rows whose name has \"hit\" in it")]
pub struct Args {
    /// What to measure; all but accuracy and clock if none is named
    #[arg(value_enum)]
    benchmark: Option<Benchmark>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Fewer rounds: accuracy, clock, control, live, replay, socket, stack; control then decides no goal, and is never quick
    /// among all, where the build is left out
    #[arg(long)]
    quick: bool,
    /// Connections, instead of several numbers of them: live
    #[arg(long, value_name = "N")]
    connections: Option<u32>,
    /// Rounds, instead of 20: live
    #[arg(long, value_name = "N", value_parser = positive)]
    rounds: Option<usize>,
    /// Only rows whose name contains this: balancer, control, kernel
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// A peer to measure next to dwell, may be given once for each kind: its pinned BPF program, set up by its own user space,
    /// for tc (kernel) or for XDP, with the VIP 198.51.100.1:443/tcp (balancer); or a program that watches the interface that it
    /// is given until SIGTERM (live)
    #[arg(long = "peer", value_name = "FILE")]
    peers: Vec<PathBuf>,
}

impl Options {
    fn wants(&self, row: &str) -> bool {
        self.row.as_ref().is_none_or(|wanted| row.contains(wanted))
    }

    /// The options of a benchmark among all. Fewer VIPs would decide nothing.
    fn of_all(self, benchmark: Benchmark) -> Options {
        Options { quick: self.quick && benchmark != Benchmark::Control, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// ns per packet of rtt and response, through BPF_PROG_TEST_RUN; 1 minute
    Kernel,
    /// Throughput, CPU and packets missed with real traffic; 17 minutes
    Live,
    /// Packets per second and memory when reading captures; 1 minute
    Replay,
    /// Bytes per flow in user space and kernel; 10 seconds
    Memory,
    /// How near estimates of response come to the truth; 6 minutes
    Accuracy,
    /// What `dwell stack` costs the connections that it stamps; 5 minutes
    Stack,
    /// How well clocks are compared; 3 minutes
    Clock,
    /// What `dwell run` costs the programs that it runs; 15 minutes
    Socket,
    /// ns per packet of `dwell lb`; 3 minutes
    Balancer,
    /// ns per packet of QUIC in `dwell lb`; 1 minute
    BalancerQuic,
    /// Reloads and intervals of a balancer with 1,000 VIPs, and how soon verbs begin; 3 minutes
    Control,
    /// How long the product takes to build from clean, and tests after a change, in dwell's sources; 6 minutes
    Build,
}

impl Benchmark {
    /// Runs it. Returns its goals, and the findings about limits from which they follow, if it has limits.
    fn run(self, options: &Options, stop: &Stop) -> Result<(Vec<Goal>, Vec<Finding>)> {
        let findings = match self {
            Benchmark::Kernel => kernel::run(options, stop),
            Benchmark::Live => live::run(options, stop),
            Benchmark::Replay => replay::run(options, stop),
            Benchmark::Memory => memory::run(stop),
            Benchmark::Accuracy => return Ok((accuracy::run(options, stop)?, Vec::new())),
            Benchmark::Stack => stack::run(options, stop),
            Benchmark::Clock => return Ok((clock::run(options, stop)?, Vec::new())),
            Benchmark::Socket => socket::run(options, stop),
            Benchmark::Balancer => balancer::run(options, stop),
            Benchmark::BalancerQuic => balancer_quic::run(stop),
            Benchmark::Control => control::run(options, stop),
            Benchmark::Build => build::run(options, stop),
        }?;
        Ok((findings.iter().map(Finding::goal).collect(), findings))
    }

    /// Its name, as users write it.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Runs a benchmark, or all. Ctrl-C ends it, and removes what it made.
pub fn run(args: &Args) -> std::result::Result<Exit, Failure> {
    let options = &args.options;
    let Some(benchmark) = args.benchmark else {
        return all::run(options).map_err(|error| Failure::new(Exit::Host, error));
    };
    let result = Stop::heeded_by(|stop| benchmark.run(options, stop));
    let (goals, _) = result.map_err(|error| Failure::new(Exit::Host, error))?;
    print(&goals);
    Ok(Goal::exit(&goals))
}

fn print(goals: &[Goal]) {
    if !goals.is_empty() {
        println!();
    }
    for goal in goals {
        println!("{}", goal.line());
    }
}

/// Returns the `dwell` to measure: the one next to this executable, or the one on the search path.
pub fn dwell() -> Result<PathBuf> {
    Ok(Programs::find()?.dwell)
}

/// Returns the path of a program, if it is installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    find_program(program)
}

/// Pins this process, and all that it starts, to one CPU: the last one that it may use.
pub fn pin() -> Result<usize> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let cpu = (0..CpuSet::count())
        .rfind(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .context("this process may use no CPU")?;
    let mut one = CpuSet::new();
    one.set(cpu)?;
    sched_setaffinity(this, &one)?;
    Ok(cpu)
}
