//! The cost of dwell, as ratios to named alternatives in the same run. Each benchmark is a file.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables are printed row by row")]

mod accuracy;
mod balancer;
mod balancer_quic;
pub(crate) mod child;
mod clock;
mod control;
mod driver;
mod forward;
mod goals;
mod kernel;
mod kernel_objects;
mod live;
mod memory;
mod replay;
mod socket;
mod stack;
mod stop;
mod traffic;

use std::{os::fd::OwnedFd, path::PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use dwell_app::Exit;
use dwell_testbed::error::find_program;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use stop::Stop;

use crate::{Programs, failure::Failure, figures, goal::Goal};

pub use child::help as help_to_measure_a_child;

/// Measure what dwell costs, next to named alternatives in the same run
///
/// Rounds of the alternatives take turns, and medians are printed: on another machine, or at another hour, only the
/// ratios mean something. What needs a program that is not installed is left out, with a note. Goals follow the tables, with
/// figure and verdict. The exit status is 1 if a goal is missed, and 4 if one could not be decided, such as a ratio to a
/// peer that was not there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab cost kernel              ns per packet of `dwell rtt` and `dwell response`
  sudo dwell-lab cost live --quick        throughput that is left with dwell watching
  sudo dwell-lab cost balancer --row hit  rows whose name has \"hit\" in it")]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    benchmark: Benchmark,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Fewer rounds: accuracy, clock, control, live, replay, socket, stack; control then decides no goal
    #[arg(long)]
    quick: bool,
    /// Only with this number of connections: live
    #[arg(long, value_name = "N")]
    flows: Option<u32>,
    /// Only rows whose name contains this: balancer, control, kernel
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// A peer's pinned BPF program, set up by its own user space, to run over the same packets: kernel (for tc), balancer
    /// (for XDP, with the VIP 198.51.100.1:443/tcp)
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
}

impl Options {
    /// Opens the program of the peer, if there is one.
    fn open_peer(&self) -> Result<Option<OwnedFd>> {
        let Some(path) = &self.peer else { return Ok(None) };
        let opened = libbpf_rs::Program::fd_from_pinned_path(path);
        opened.with_context(|| format!("cannot open the pinned program '{}'", path.display())).map(Some)
    }

    fn wants(&self, row: &str) -> bool {
        self.row.as_ref().is_none_or(|wanted| row.contains(wanted))
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Benchmark {
    /// ns per packet of rtt and response, through BPF_PROG_TEST_RUN; 1 minute
    Kernel,
    /// Throughput, CPU and packets missed with real traffic; 6 minutes
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
}

/// Runs a benchmark. Ctrl-C ends it, and removes what it made.
pub fn run(args: &Args) -> std::result::Result<Exit, Failure> {
    let options = &args.options;
    let result = Stop::heeded_by(|stop| match args.benchmark {
        Benchmark::Kernel => kernel::run(options, stop),
        Benchmark::Live => live::run(options, stop),
        Benchmark::Replay => replay::run(options, stop),
        Benchmark::Memory => memory::run(stop),
        Benchmark::Accuracy => accuracy::run(options, stop),
        Benchmark::Stack => stack::run(options, stop),
        Benchmark::Clock => clock::run(options, stop),
        Benchmark::Socket => socket::run(options, stop),
        Benchmark::Balancer => balancer::run(options, stop),
        Benchmark::BalancerQuic => balancer_quic::run(stop),
        Benchmark::Control => control::run(options, stop),
    });
    let goals = result.map_err(|error| Failure::new(Exit::Host, error))?;
    if !goals.is_empty() {
        println!();
    }
    for goal in &goals {
        println!("{}", goal.line());
    }
    Ok(Goal::exit(&goals))
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
