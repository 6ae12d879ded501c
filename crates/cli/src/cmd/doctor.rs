//! `dwell doctor`: what this host can do, and what to do about the rest.

use std::io::{ErrorKind, Write, stdout};

use dwell_probes::{Interface, host};

use crate::exit::{Exit, Failure};

/// Find out what this host can do for each verb, by trying it
///
/// Each fact is tried, not concluded from a version; nothing stays attached. Exit status 0 if
/// `dwell rtt -i` can run, 3 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell doctor                 what works here
  sudo dwell doctor -i eth0    as root, and what is attached to eth0
  dwell doctor --json | jq '.facts[] | select(.value == false)'")]
pub struct Args {
    /// Inspect this interface only
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interface = args.interface.as_deref().map(Interface::find).transpose()?;
    let report = host::diagnose(interface.as_ref(), &host::DWELL);
    let text = if args.json {
        serde_json::to_string(&report).map_err(|error| Failure::new(Exit::Incomplete, error))? + "\n"
    } else {
        report.to_string()
    };
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(Exit::Incomplete, error)),
        _ if report.is_possible("rtt -i") => Ok(Exit::Done),
        _ => Ok(Exit::Host),
    }
}
