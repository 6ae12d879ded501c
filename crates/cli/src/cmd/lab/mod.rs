//! `dwell lab`: hosts made of network namespaces, with links of known delay.

mod lb;
mod load;
mod quic;
mod response;
mod socket;
mod spin;
mod stack;
mod star;

use std::{
    env, fs,
    io::{Write, stderr, stdout},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use dwell_lab::{
    EmulatorConfig, Leg, LinkSpec, Nanos, Probability, QueueLimit, Reorder, Topology, Trace, UpOptions, demo,
    socket::{End, run_end},
    workload::load::{PartConfig, run_part},
};

use crate::{
    args::{duration, nanos},
    exit::{Exit, Failure},
    tell::tell,
};

/// Try dwell on hosts of its own: network namespaces joined by links of known delay
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell lab demo                       traffic of known round-trip time, and what dwell says
  sudo dwell lab up                         a client, a vantage point and a server to play with
  sudo dwell lab up --rate 10M --queue 100  the same behind a slow link with a short queue
  sudo dwell lab load web --truth t.jsonl --pcap p.pcap
                                            requests, and when each was sent and answered
  sudo dwell lab response web --connections 8 --rate 800
                                            the same, and how near `dwell response` comes
  sudo dwell lab stack bulk                 where the time goes from socket to socket
  sudo dwell lab socket 10m-50ms            what bytes wait in sockets, and what dwell run does about it
  sudo dwell lab lb tail                    tail latencies with and without steering by latency
  sudo dwell lab quic policies              which balancing keeps 0-RTT
  sudo dwell lab list
  sudo dwell lab down")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
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
    /// Send real traffic over links of known delay and show what `dwell rtt` measures
    Demo,
    /// Send requests past a vantage point that no answer passes, and log what the client knows
    Load {
        #[command(subcommand)]
        load: Box<load::Load>,
    },
    Response(Box<response::Response>),
    Stack(stack::Stack),
    Socket(socket::Socket),
    Lb(lb::Lb),
    Quic(quic::Quic),
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
    /// What to call it
    #[arg(default_value = "lab")]
    name: String,
    /// Line: both directions pass the vantage point. Triangle: answers go around it
    #[arg(long, value_enum, default_value_t = Shape::Line)]
    topology: Shape,
    /// Round trip between vantage point and client; in a triangle, half of it is the way there
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    client_rtt: Duration,
    /// Round trip between vantage point and server; in a triangle, half of it is the way there
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    server_rtt: Duration,
    /// Rate of each direction of the client's link in bits a second: 500k, 10M, 1G
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Packets that may wait at that rate
    #[arg(long, value_name = "PACKETS", default_value_t = 1000)]
    queue: usize,
    /// Share of packets that the client's link loses, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    loss: Option<Probability>,
    /// Share of packets that the client's link holds for 5 ms longer, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    reorder: Option<Probability>,
    /// Delivery trace of the client's link towards the client, instead of a rate: a millisecond a
    /// line, each an opportunity for 1504 bytes
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    Line,
    Triangle,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Up(up) => {
            let options = UpOptions { topology: up.topology()?, ..UpOptions::new(&up.name, executable()?) };
            say(&dwell_lab::up(&options)?.describe())
        }
        Verb::Down { name } => match dwell_lab::down(name)? {
            Some(report) => say(&format!("lab {name} is gone; its link emulator:\n{report}")),
            None => say(&format!("lab {name} is gone")),
        },
        Verb::List => list(),
        Verb::Demo => {
            let options = demo::DemoOptions::new(executable()?);
            demo::demo(&options, &mut stdout(), &mut stderr())?;
            Ok(Exit::Done)
        }
        Verb::Load { load } => load::run(load),
        Verb::Response(response) => response::run(response),
        Verb::Stack(stack) => stack::run(stack),
        Verb::Socket(socket) => socket::run(socket),
        Verb::Lb(lb) => lb::run(lb),
        Verb::Quic(quic) => quic::run(quic),
        Verb::SocketEnd { config } => {
            run_end(config)?;
            Ok(Exit::Done)
        }
        Verb::LoadPart { config } => say(&run_part(config)?),
        Verb::Emulate { config } => {
            dwell_lab::emulate(config)?;
            Ok(Exit::Done)
        }
    }
}

fn list() -> Result<Exit, Failure> {
    let labs = dwell_lab::list()?;
    match labs.states.as_slice() {
        [] => say("no lab is up; `dwell lab up` makes one")?,
        states => say(&states.iter().map(|lab| lab.describe()).collect::<Vec<_>>().join("\n\n"))?,
    };
    for failure in &labs.failures {
        tell(failure);
    }
    Ok(if labs.failures.is_empty() { Exit::Done } else { Exit::Incomplete })
}

impl Up {
    fn topology(&self) -> Result<Topology, Failure> {
        let (client_rtt, server_rtt) = (Nanos(nanos(self.client_rtt)), Nanos(nanos(self.server_rtt)));
        let client = Leg::with_rtt(client_rtt);
        let towards_client = LinkSpec {
            trace: self.trace.as_deref().map(Trace::read).transpose()?,
            ..self.impair(client.from_vantage, 1)?
        };
        let from_client = self.impair(client.to_vantage, 2)?;
        let server = Leg::with_rtt(server_rtt);
        Ok(match self.topology {
            Shape::Line => {
                Topology::Line { client: Leg { to_vantage: from_client, from_vantage: towards_client }, server }
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
                .rate
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

fn reorder(probability: Probability) -> Reorder {
    Reorder { probability, extra_ns: Nanos(5_000_000) }
}

fn say(text: &str) -> Result<Exit, Failure> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Incomplete, error)),
        _ => Ok(Exit::Done),
    }
}

/// A folder for what a run leaves until it ends, and the one that keeps what was asked for.
fn folders(prefix: &str, keep: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| Failure::new(Exit::Host, error))?;
    if let Some(keep) = keep {
        fs::create_dir_all(keep)
            .with_context(|| format!("make the folder {}", keep.display()))
            .map_err(Failure::usage)?;
    }
    Ok(folder)
}

fn executable() -> Result<PathBuf, Failure> {
    env::current_exe()
        .context("cannot find dwell's own executable, which a lab runs for its links")
        .map_err(|error| Failure::new(Exit::Host, error))
}

fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.find(|c: char| c.is_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err("the unit is k, M or G bits a second".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * factor <= 1e12 => Ok((number * factor) as u64),
        _ => Err("write a rate as in 500k, 10M or 1G".into()),
    }
}

fn share(text: &str) -> Result<Probability, String> {
    text.parse().ok().and_then(Probability::new).ok_or_else(|| "write a number from 0 to 1".into())
}
