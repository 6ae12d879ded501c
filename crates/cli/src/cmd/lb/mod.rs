//! `dwell lb`: a layer-4 load balancer that steers by measured response latency.

mod change;
mod check;
mod decap;
mod events;
mod packet;
mod run;
mod status;
mod stored;
mod top;

use std::{
    fmt::Display,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Subcommand;
use dwell_balancer::{
    config::{DEFAULT_SOCKET, check_weight, default_pin},
    control::detach,
};
use dwell_records::{Header, Object, print, write_object};

use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    log::log,
    source::host_name,
};

/// Balance connections over servers by their measured response latency
///
/// Forwards clients' packets to backends in the kernel (XDP); the backends answer the clients directly (direct server
/// return). From the clients' packets alone it measures how long each backend takes to respond, and gives new
/// connections to those that respond quickly. Clients, backends and the network need no change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb check lb.toml                 check a configuration, and show what it would do
  dwell lb run lb.toml                   run until Ctrl-C; packets are forwarded even after that
  dwell lb status                        show VIPs and backends, their weights, and the reasons
  dwell lb drain web/b2                  no new connections to a backend; open ones stay
  dwell lb where 'tcp:198.51.100.7:40000>192.0.2.10:443'
  dwell lb detach eth0                   remove it: packets are no longer balanced

More: docs/guide/lb.md in the source.")]
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Args),
    Check(check::Args),
    /// Reload the configuration, completely or not at all
    ///
    /// Prints what changes. Open connections stay where they are. The changes of add, remove and weight are undone;
    /// drains stay. SIGHUP to `dwell lb run` does the same.
    Reload {
        #[command(flatten)]
        socket: SocketArgs,
        /// Only print what would change, or why the configuration would be refused
        #[arg(long)]
        dry_run: bool,
    },
    Status(status::Args),
    /// Stop sending new connections to a backend; open ones stay
    #[command(after_help = "\
Examples:
  dwell lb drain web/b2
  dwell lb drain 10.0.0.3 --undo")]
    Drain {
        #[command(flatten)]
        socket: SocketArgs,
        /// VIP/BACKEND, or BACKEND if only one VIP has it; BACKEND is a name or an address
        backend: String,
        /// Send it new connections again
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
        socket: SocketArgs,
        /// Name of the VIP
        vip: String,
        /// The backend's own address
        address: IpAddr,
        /// Name of the backend [default: its address]
        #[arg(long)]
        name: Option<String>,
        /// Weight relative to the VIP's other backends
        #[arg(long, default_value_t = 1.0, value_parser = weight)]
        weight: f64,
        /// Server ID that connection IDs carry, if the policy is zero-rtt
        #[arg(long)]
        server_id: Option<u64>,
    },
    /// Remove a backend, until the next reload; open connections stay
    Remove {
        #[command(flatten)]
        socket: SocketArgs,
        /// VIP/BACKEND, or BACKEND if only one VIP has it; BACKEND is a name or an address
        backend: String,
    },
    /// Change the weight of a backend, until the next reload
    #[command(after_help = "\
Examples:
  dwell lb weight web/b2 0.5")]
    Weight {
        #[command(flatten)]
        socket: SocketArgs,
        /// VIP/BACKEND, or BACKEND if only one VIP has it; BACKEND is a name or an address
        backend: String,
        /// New weight, from 0
        #[arg(allow_negative_numbers = true, value_parser = weight)]
        weight: f64,
    },
    Where(packet::Args),
    Top(top::Args),
    /// Remove the data plane that `dwell lb run` left: packets are no longer balanced
    #[command(after_help = "\
Examples:
  dwell lb detach eth0
  dwell lb detach --pin /sys/fs/bpf/dwell/edge")]
    Detach {
        /// Interface of the configuration
        #[arg(required_unless_present = "pin")]
        interface: Option<String>,
        /// Folder where its maps are pinned, if the configuration sets pin
        #[arg(long, value_name = "FOLDER")]
        pin: Option<PathBuf>,
    },
    Decap(decap::Args),
}

/// The balancer to send requests to.
#[derive(Debug, clap::Args)]
struct SocketArgs {
    /// Socket of the balancer: api.socket of its configuration
    #[arg(long = "socket", value_name = "PATH", default_value = DEFAULT_SOCKET)]
    path: PathBuf,
}

/// How often a display is updated.
#[derive(Debug, clap::Args)]
struct RefreshArgs {
    /// Length of an interval, after which the table is drawn again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Run(args) => run::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Reload { socket, dry_run } => change::reload(&socket.path, *dry_run),
        Verb::Status(args) => status::run(args),
        Verb::Drain { socket, backend, undo } => change::drain(&socket.path, backend, *undo),
        Verb::Add { socket, vip, address, name, weight, server_id } => {
            change::add(&socket.path, vip, *address, name.as_deref(), *weight, *server_id)
        }
        Verb::Remove { socket, backend } => change::remove(&socket.path, backend),
        Verb::Weight { socket, backend, weight } => change::weight(&socket.path, backend, *weight),
        Verb::Where(args) => packet::run(args),
        Verb::Top(args) => top::run(args),
        Verb::Detach { interface, pin } => remove(interface.as_deref(), pin.as_deref()),
        Verb::Decap(args) => decap::run(args),
    }
}

fn remove(interface: Option<&str>, pin: Option<&Path>) -> Result<Exit, Failure> {
    let folder = pin.map_or_else(|| default_pin(interface.unwrap_or_default()), Path::to_owned);
    match detach(&folder)? {
        true => Ok(Exit::Done),
        false => {
            let remedy = if pin.is_none() { "; if the configuration sets pin, name that with --pin" } else { "" };
            log(format_args!("nothing is pinned in '{}'{remedy}", folder.display()));
            Ok(Exit::False)
        }
    }
}

/// Parses a weight.
fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().map_err(|error| format!("{error}"))?;
    check_weight(weight).map(|()| weight)
}

/// Reports what a configuration says to no effect.
fn warn(warnings: &[impl Display]) {
    warnings.iter().for_each(|warning| log(format_args!("warning: {warning}")));
}

/// Returns an object as a line of JSON. `time` is in RFC 3339.
fn object(time: Option<&str>, object: &impl Object) -> String {
    let mut line = Vec::new();
    write_object(Header { time, host: Some(&host_name()) }, object, &mut line);
    String::from_utf8_lossy(&line).into_owned()
}
