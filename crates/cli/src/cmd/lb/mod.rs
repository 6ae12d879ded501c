//! `dwell lb`: a layer-4 load balancer that steers by measured response latency.

mod ask;
mod check;
mod decap;
mod lines;
mod packet;
mod run;
mod status;
mod top;

use std::{
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Subcommand;
use dwell_balancer::{
    api::ClientError,
    config::{ConfigError, DEFAULT_SOCKET, default_pin},
    control::{ControlError, detach},
};

use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    tell::tell,
};

/// Balance connections over servers by their measured response latency
///
/// Sends clients' packets on to backends, in the kernel (XDP); the backends answer the clients
/// themselves (direct server return). From the clients' packets alone it measures how long each
/// backend takes to respond, and gives new connections to those that respond soon. Clients, backends
/// and network stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb check lb.toml                 what it would do, or all that is wrong with it
  dwell lb run lb.toml                   run until Ctrl-C; packets go on without it
  dwell lb status                        VIPs and backends, their weights, and why
  dwell lb drain web/b2                  no new connection to a backend; those there stay
  dwell lb where 'tcp:198.51.100.7:40000>192.0.2.10:443'
  dwell lb detach eth0                   the end: packets are no longer balanced

More: docs/guide/lb.md of the source.")]
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Args),
    Check(check::Args),
    /// Read the configuration again: all of it holds from then on, or nothing
    ///
    /// Prints what changes. Open connections stay where they are. What add, remove and weight did is
    /// over; drains stay. SIGHUP to `dwell lb run` does the same.
    Reload {
        #[command(flatten)]
        to: To,
    },
    Status(status::Args),
    /// Give a backend no new connection; those that it has stay
    #[command(after_help = "\
Examples:
  dwell lb drain web/b2
  dwell lb drain 10.0.0.3 --undo")]
    Drain {
        #[command(flatten)]
        to: To,
        /// VIP/BACKEND, or BACKEND if one VIP only has it: its name or its address
        backend: String,
        /// Give it new connections again
        #[arg(long)]
        undo: bool,
    },
    /// Add a backend to a VIP, until the next reload
    #[command(after_help = "\
Examples:
  dwell lb add web 10.0.0.4
  dwell lb add web 10.0.0.4 --name b4 --weight 0.5")]
    Add {
        #[command(flatten)]
        to: To,
        /// The VIP's name
        vip: String,
        /// The backend's own address
        address: IpAddr,
        /// Its name; by default its address
        #[arg(long)]
        name: Option<String>,
        /// Its part of new connections, beside those of others
        #[arg(long, default_value_t = 1.0)]
        weight: f64,
        /// By which connection IDs name it, where the policy is zero-rtt
        #[arg(long)]
        server_id: Option<u64>,
    },
    /// Remove a backend, until the next reload; its connections stay until they end
    Remove {
        #[command(flatten)]
        to: To,
        /// VIP/BACKEND, or BACKEND if one VIP only has it: its name or its address
        backend: String,
    },
    /// Give a backend another weight, until the next reload
    #[command(after_help = "\
Examples:
  dwell lb weight web/b2 0.5")]
    Weight {
        #[command(flatten)]
        to: To,
        /// VIP/BACKEND, or BACKEND if one VIP only has it: its name or its address
        backend: String,
        /// From 0
        #[arg(allow_negative_numbers = true)]
        weight: f64,
    },
    Where(packet::Args),
    Top(top::Args),
    /// Remove what `dwell lb run` has left in the kernel: packets are no longer balanced
    #[command(after_help = "\
Examples:
  dwell lb detach eth0
  dwell lb detach --pin /sys/fs/bpf/dwell/edge")]
    Detach {
        /// The interface of the configuration
        #[arg(required_unless_present = "pin")]
        interface: Option<String>,
        /// Where its maps are pinned, if the configuration says so
        #[arg(long, value_name = "FOLDER")]
        pin: Option<PathBuf>,
    },
    Decap(decap::Args),
}

/// Which balancer is asked.
#[derive(Debug, clap::Args)]
struct To {
    /// Where it takes requests: api.socket of its configuration
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// Between two looks.
#[derive(Debug, clap::Args)]
struct Every {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Run(args) => run::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Reload { to } => ask::reload(&to.socket),
        Verb::Status(args) => status::run(args),
        Verb::Drain { to, backend, undo } => ask::drain(&to.socket, backend, *undo),
        Verb::Add { to, vip, address, name, weight, server_id } => {
            ask::add(&to.socket, vip, *address, name.as_deref(), *weight, *server_id)
        }
        Verb::Remove { to, backend } => ask::remove(&to.socket, backend),
        Verb::Weight { to, backend, weight } => ask::weight(&to.socket, backend, *weight),
        Verb::Where(args) => packet::run(args),
        Verb::Top(args) => top::run(args),
        Verb::Detach { interface, pin } => end(interface.as_deref(), pin.as_deref()),
        Verb::Decap(args) => decap::run(args),
    }
}

fn end(interface: Option<&str>, pin: Option<&Path>) -> Result<Exit, Failure> {
    let folder = pin.map_or_else(|| default_pin(interface.unwrap_or_default()), Path::to_owned);
    match detach(&folder)? {
        true => Ok(Exit::Done),
        false => {
            tell(format_args!("nothing is pinned in '{}'", folder.display()));
            Ok(Exit::False)
        }
    }
}

/// Prints; a reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure { exit: Exit::Done, error: None }),
        Err(error) => Err(Failure::new(Exit::Incomplete, anyhow::anyhow!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Host };
        Failure::new(exit, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::usage(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = match error {
            ClientError::Io { .. } => Exit::Host,
            ClientError::Refused(_) | ClientError::Strange { .. } => Exit::Usage,
        };
        Failure::new(exit, error)
    }
}
