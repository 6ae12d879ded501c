//! `dwell-lab quic`: what 0-RTT is worth, and which balancing keeps it.

mod changes;
mod client;
mod handshakes;
mod moves;
mod policies;
mod replay;

use std::time::Duration;

use clap::Subcommand;
use dwell_app::Exit;

use crate::{failure::Failure, print::SCHEMA, print::millis};

/// QUIC clients and servers in namespaces of their own: what 0-RTT is worth, and which balancing keeps it
///
/// Clients and servers are quinn with rustls. Servers are set up by `dwell-quic`: connection IDs name their
/// server, and each ticket is good once. The exit status is 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab quic handshakes --keep-in out   cost of full and resumed handshakes and of 0-RTT
  sudo dwell-lab quic policies --keep-in out     0-RTT under zero-rtt, 5-tuple, source, least loaded
  sudo dwell-lab quic policies --new-addresses   clients return from elsewhere each time
  sudo dwell-lab quic moves                   1,000 changes of address in the middle of an answer
  sudo dwell-lab quic replay                  1,000 recorded first flights, sent again
  sudo dwell-lab quic changes                 keys rotated, servers added and removed under load
  sudo dwell-lab quic client -- PROGRAM       another program in a client's place")]
pub struct Quic {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Handshakes(handshakes::Handshakes),
    Policies(policies::Policies),
    Moves(moves::Moves),
    Replay(replay::Replay),
    Changes(changes::Changes),
    Client(client::Client),
}

pub fn run(args: &Quic) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Handshakes(args) => args.run(),
        Verb::Policies(args) => args.run(),
        Verb::Moves(args) => args.run(),
        Verb::Replay(args) => args.run(),
        Verb::Changes(args) => args.run(),
        Verb::Client(args) => args.run(),
    }
}

fn nanos(time: Option<Duration>) -> Option<u64> {
    time.map(dwell_engine::units::nanos)
}

/// Milliseconds; `-` where unknown.
fn ms(time: Option<Duration>) -> String {
    millis(nanos(time).map(|ns| ns as f64))
}
