//! `dwell-lab doctor`: what this host can do for the laboratory.

mod needs;

use dwell_app::Exit;
use dwell_probes::{Interface, host};

use self::needs::LABORATORY;
use crate::{failure::Failure, print::Format};

/// Find out what this host can do for each verb of the laboratory, by trying it
///
/// Each fact is tried, not concluded from a version; nothing stays attached. Exit status 0 if
/// `dwell-lab up` can run, 3 if not.
#[derive(Debug, clap::Args)]
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
    let report = host::diagnose(interface.as_ref(), &LABORATORY);
    let format = if args.json { Format::Jsonl } else { Format::Text };
    format.print(&report, || report.to_string().trim_end().to_owned())?;
    Ok(if report.is_possible("up") { Exit::Done } else { Exit::Host })
}
