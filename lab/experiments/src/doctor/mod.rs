//! `dwell-lab doctor`: what this host can do for the laboratory.

mod needs;

use anyhow::anyhow;
use dwell_app::Exit;
use dwell_probes::{Interface, host};

use self::needs::LABORATORY;
use crate::{failure::Failure, print::Format};

/// Find out what this host can do for each verb of the laboratory, by trying it
///
/// Each fact is tried, not inferred from a version number; nothing stays attached. Shows what is missing, and how to
/// get it; facts that hold share one line. Exit status 0 if the verb can run (without VERB: if each can), or if that
/// could not be tried; 1 if not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ask for this verb only
    #[arg(value_name = "VERB")]
    verb: Vec<String>,

    /// Interface to inspect; others are left out
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,

    /// Also show what works, as jsonl always does
    #[arg(long)]
    all: bool,

    /// Output format: text, or jsonl, which is one object
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let requirements = LABORATORY.only(&args.verb).map_err(|known| {
        let known = known.join(", ");
        Failure::usage(anyhow!("\"{}\" has nothing to try; these have: {known}", args.verb.join(" ")))
    })?;
    let interface = args.interface.as_deref().map(Interface::find).transpose()?;
    let report = host::diagnose(interface.as_ref(), &requirements);
    args.format.print(&report, || report.text(args.all).trim_end().to_owned())?;
    Ok(if report.is_possible() { Exit::Done } else { Exit::False })
}
