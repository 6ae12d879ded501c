//! `dwell-lab quic`: what 0-RTT is worth, and which balancing keeps it.

mod handshakes;
mod others;
mod star;

use std::time::Duration;

use clap::Subcommand;
use dwell_app::Exit;

use crate::failure::Failure;
use crate::print::Format;

/// QUIC clients and servers in namespaces of their own: what 0-RTT is worth, and which balancing keeps it
///
/// Clients and servers are quinn with rustls, servers as `dwell-quic` sets them up: connection IDs that
/// tell their server, tickets that are good once. Ends with status 1 if a goal is missed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab quic handshakes --keep out   what a full handshake, a resumed one and 0-RTT take
  sudo dwell-lab quic policies --keep out     who keeps 0-RTT: zero-rtt, 5-tuple, source address
  sudo dwell-lab quic moves                   1,000 changes of address in the middle of an answer
  sudo dwell-lab quic replay                  1,000 recorded first flights, sent again
  sudo dwell-lab quic changes                 keys rotated, servers added and removed under load
  sudo dwell-lab quic client -- PROGRAM       a client of others in a client's place")]
pub struct Quic {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Handshakes(handshakes::Handshakes),
    Policies(star::Policies),
    Moves(star::Moves),
    Replay(star::Replay),
    Changes(star::Changes),
    Client(others::Client),
}

const SCHEMA: &str = "dwell.lab_quic/1";

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
    time.map(dwell_app::args::nanos)
}

/// In milliseconds, `-` if unknown.
fn ms(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time.as_secs_f64() * 1e3))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}
