//! The command line of `dwell-lab`.

use std::{
    io::{stderr, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use dwell_app::{
    Exit,
    args::duration,
    completions::{self, Shell},
    log::log,
    man,
};
use dwell_engine::units::nanos;
use dwell_testbed::{
    EmulatorConfig, LinkPair, LinkSpec, Nanos, Probability, QueueLimit, Topology, Trace, UpOptions, error::Error,
};

use crate::{
    Programs, cost, demo, doctor,
    failure::Failure,
    fleet, lb,
    loads::{self, PartConfig, run_part},
    print::say,
    problem, quic, response, rtt, run, sim,
    socket::{self, End, run_end},
    stack,
    values::{rate, reorder, share},
    why,
};

#[derive(Debug, Parser)]
#[command(
    name = "dwell-lab",
    version,
    about = "The laboratory of dwell: hosts made of network namespaces, loads that know the truth, experiments with goals, and what dwell costs",
    after_help = "\
Examples:
  sudo dwell-lab demo                       traffic of known round-trip time, and what dwell measures
  sudo dwell-lab up                         a client, a vantage point and a server to play with
  sudo dwell-lab up --bottleneck 10M --queue 100
                                            the same behind a slow link with a short queue
  sudo dwell-lab load web --truth t.jsonl --pcap p.pcap
                                            requests, and when each was sent and answered
  sudo dwell-lab response web --connections 8 --rate 800
                                            the same, and how near `dwell response` comes
  sudo dwell-lab rtt                        the round trips that dwell, tshark and tcptrace find
  sudo dwell-lab stack bulk                 where the time goes from socket to socket
  sudo dwell-lab fleet                      what a hundred agents cost their collector, and whether it has all they sent
  sudo dwell-lab socket 10m-50ms            what bytes wait in sockets, and what dwell run does about it
  sudo dwell-lab why                        whether dwell why names the cause of known faults
  sudo dwell-lab problem slow-api           the commands of a page by problem, on hosts that have this problem
  sudo dwell-lab lb tail                    tail latencies with and without steering by latency
  sudo dwell-lab quic policies              which balancing keeps 0-RTT
  dwell-lab sim paper                       the tables of the TrafficGrinder paper
  sudo dwell-lab cost kernel                what a packet costs
  sudo dwell-lab list
  sudo dwell-lab down

Exit status: 0 done; 1 a goal is missed; 2 wrong usage or input; 3 this host cannot do it; 4 it ran, but data is
incomplete. `dwell lab ...` starts dwell-lab."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The entry point of the binary.
pub fn main() -> ExitCode {
    cost::help_to_measure_a_child();
    run(&Cli::parse().verb).map_or_else(ExitCode::from, ExitCode::from)
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a lab that stays until it is taken down
    Up(Box<Up>),
    /// Remove a lab
    Down {
        /// Its name
        #[arg(default_value = "lab")]
        name: String,
    },
    /// List labs, and how to run things in them
    List,
    Doctor(doctor::Args),
    /// Send real traffic over links of known delay and show what `dwell rtt` measures
    Demo,
    /// Send requests past a vantage point that no answer passes, and log what the client knows
    Load {
        #[command(subcommand)]
        load: Box<loads::verb::Load>,
    },
    Rtt(rtt::verb::Rtt),
    Response(Box<response::Response>),
    Stack(stack::verb::Stack),
    Fleet(fleet::verb::Fleet),
    Run(run::verb::Run),
    Why(why::verb::Why),
    Problem(problem::Problem),
    Socket(socket::verb::Socket),
    Lb(lb::verb::Lb),
    Quic(quic::verb::Quic),
    /// Simulate what a paper measured, and judge it by its goals
    Sim {
        #[command(subcommand)]
        verb: sim::Sim,
    },
    Cost(cost::Args),
    /// Print completions of verbs and options for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages of dwell-lab and its verbs
    Man {
        /// The folder for the pages; it is created if it does not exist
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Be an end of a flow
    #[command(hide = true)]
    SocketEnd {
        /// JSON
        #[arg(long)]
        config: End,
    },
    /// Be the server or the client of a load
    #[command(hide = true)]
    LoadPart {
        /// JSON
        #[arg(long)]
        config: PartConfig,
    },
    /// Emulate links: what a lab runs for itself
    #[command(hide = true)]
    Emulate {
        /// JSON, or @FILE
        #[arg(long)]
        config: EmulatorConfig,
    },
}

#[derive(Debug, clap::Args)]
struct Up {
    /// Name of the lab
    #[arg(default_value = "lab")]
    name: String,
    /// Line: both directions pass the vantage point. Triangle: answers go around it
    #[arg(long, value_enum, default_value_t = Shape::Line)]
    topology: Shape,
    /// Round trip between vantage point and client; in a triangle, half of it is the forward path
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    client_rtt: Duration,
    /// Round trip between vantage point and server; in a triangle, half of it is the forward path
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    server_rtt: Duration,
    /// Rate of each direction of the client's link in bits per second: 500k, 10M, 1G
    #[arg(long, value_name = "RATE", value_parser = rate)]
    bottleneck: Option<u64>,
    /// Packets that may wait at that rate
    #[arg(long, value_name = "PACKETS", default_value_t = 1000)]
    queue: usize,
    /// Share of packets that the client's link loses, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    loss: Option<Probability>,
    /// Share of packets that the client's link holds for 5 ms longer, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    reorder: Option<Probability>,
    /// Delivery trace of the client's link towards the client, instead of --bottleneck: one millisecond per line, each an
    /// opportunity for 1504 bytes
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    Line,
    Triangle,
}

fn run(verb: &Verb) -> Result<Exit, Failure> {
    if matches!(
        verb,
        Verb::Demo
            | Verb::Rtt(_)
            | Verb::Response(_)
            | Verb::Stack(_)
            | Verb::Fleet(_)
            | Verb::Run(_)
            | Verb::Why(_)
            | Verb::Problem(_)
            | Verb::Socket(_)
            | Verb::Lb(_)
            | Verb::Quic(_)
            | Verb::Cost(_)
    ) {
        Programs::find()?.require_dwell()?;
    }
    match verb {
        Verb::Up(up) => {
            let options = UpOptions { topology: up.topology()?, ..UpOptions::new(&up.name, lab()?) };
            say(&dwell_testbed::up(&options)?.describe())
        }
        Verb::Down { name } => match dwell_testbed::down(name)? {
            Some(report) => say(&format!("lab {name} is gone; its link emulator:\n{report}")),
            None => say(&format!("lab {name} is gone")),
        },
        Verb::List => list(),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Demo => {
            let options = demo::DemoOptions::new(Programs::find()?.dwell);
            let report = demo::demo(&options, &mut stdout(), &mut stderr())?;
            Ok(if report.missing.is_empty() { Exit::Done } else { Exit::False })
        }
        Verb::Load { load } => loads::verb::run(load),
        Verb::Response(response) => response::run(response),
        Verb::Rtt(args) => rtt::verb::run(args),
        Verb::Stack(stack) => stack::verb::run(stack),
        Verb::Fleet(args) => fleet::verb::run(args),
        Verb::Run(args) => run::verb::run(args),
        Verb::Why(args) => why::verb::run(args),
        Verb::Problem(args) => problem::run(args),
        Verb::Socket(socket) => socket::verb::run(socket),
        Verb::Lb(lb) => lb::verb::run(lb),
        Verb::Quic(quic) => quic::verb::run(quic),
        Verb::Sim { verb } => sim::run(verb),
        Verb::Cost(cost) => cost::run(cost),
        Verb::Completions { shell } => {
            dwell_records::print(completions::script(*shell, Cli::command()))?;
            Ok(Exit::Done)
        }
        Verb::Man { folder } => {
            man::write_pages(Cli::command(), folder)
                .with_context(|| format!("cannot write manual pages to {}", folder.display()))
                .map_err(Failure::usage)?;
            Ok(Exit::Done)
        }
        Verb::SocketEnd { config } => {
            run_end(config)?;
            Ok(Exit::Done)
        }
        Verb::LoadPart { config } => say(&run_part(config)?),
        Verb::Emulate { config } => {
            dwell_testbed::emulate(config)?;
            Ok(Exit::Done)
        }
    }
}

/// This executable, which emulates the links of a lab.
fn lab() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().map_err(Error::io("find the executable of dwell-lab"))?)
}

fn list() -> Result<Exit, Failure> {
    let labs = dwell_testbed::list()?;
    match labs.states.as_slice() {
        [] => say("no lab is up; `dwell-lab up` makes one")?,
        states => say(&states.iter().map(|lab| lab.describe()).collect::<Vec<_>>().join("\n\n"))?,
    };
    for failure in &labs.failures {
        log(failure);
    }
    Ok(if labs.failures.is_empty() { Exit::Done } else { Exit::Incomplete })
}

impl Up {
    fn topology(&self) -> Result<Topology, Failure> {
        let (client_rtt, server_rtt) = (Nanos(nanos(self.client_rtt)), Nanos(nanos(self.server_rtt)));
        let client = LinkPair::with_rtt(client_rtt);
        let towards_client = LinkSpec {
            trace: self.trace.as_deref().map(Trace::read).transpose()?,
            ..self.impair(client.from_vantage, 1)?
        };
        let from_client = self.impair(client.to_vantage, 2)?;
        let server = LinkPair::with_rtt(server_rtt);
        Ok(match self.topology {
            Shape::Line => {
                Topology::Line { client: LinkPair { to_vantage: from_client, from_vantage: towards_client }, server }
            }
            Shape::Triangle => Topology::Triangle {
                client_to_vantage: from_client,
                vantage_to_server: server.from_vantage,
                server_to_client: LinkSpec {
                    delay_ns: towards_client.delay_ns + server.to_vantage.delay_ns,
                    ..towards_client
                },
            },
        })
    }

    fn impair(&self, link: LinkSpec, seed: u64) -> Result<LinkSpec, Failure> {
        Ok(LinkSpec {
            rate_bits_per_second: self
                .bottleneck
                .map(|rate| rate.try_into().map_err(anyhow::Error::msg))
                .transpose()
                .map_err(Failure::usage)?,
            queue: Some(QueueLimit::Packets(self.queue)),
            loss: self.loss.unwrap_or_default(),
            reorder: self.reorder.map(reorder),
            seed: self.seed.wrapping_add(seed),
            ..link
        })
    }
}

#[cfg(test)]
mod tests {
    use dwell_app::vocabulary::{Exception, Part, clashes};

    use super::*;

    const EXCEPTIONS: &[Exception] =
        &[("quick", Part::Meaning, "the commands of a page take less time, and benchmarks fewer rounds")];

    /// Each experiment has its own defaults.
    #[test]
    fn an_option_is_the_same_in_every_verb() {
        let clashes = clashes(&Cli::command(), &[Part::Short, Part::ValueName, Part::Meaning], 1, EXCEPTIONS);
        assert!(clashes.is_empty(), "{clashes:#?}");
    }
}
