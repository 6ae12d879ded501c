//! `dwell doctor`: what this host can do, and what to do about the rest.

use anyhow::anyhow;
use dwell_probes::{Interface, host};
use dwell_records::print;

use crate::{
    args::Format,
    exit::{Exit, Failure},
};

/// Find out what this host can do for each verb, by trying it
///
/// Each fact is tried, not inferred from a version number; nothing stays attached. Shows what is missing, and how to
/// get it; facts that hold share one line. Exit status 0 if the verb can run in its usual mode (without VERB: if each
/// can), or if that could not be tried; 1 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell doctor                 what is missing here
  sudo dwell doctor lb         whether `dwell lb run` will work: exit status 0 if so
  sudo dwell doctor run cgroup minimize
                               whether `dwell run --cgroup --minimize` will
  sudo dwell doctor -i eth0    as root, and what is attached to eth0
  dwell doctor --format jsonl | jq '.facts[] | select(.value == false)'")]
pub struct Args {
    /// Ask for this verb only, or for modes of it by words of their options, such as lb, lb decap, rtt xdp, or run cgroup
    #[arg(value_name = "VERB")]
    verb: Vec<String>,

    /// Interface to watch; only this one is inspected
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
    let requirements = host::DWELL.only(&args.verb).map_err(|known| {
        let also = if args.verb[0] == "lab" { "; `dwell-lab doctor` reports on the laboratory" } else { "" };
        let known = known.join(", ");
        Failure::usage(anyhow!("\"{}\" has nothing to try; these have: {known}{also}", args.verb.join(" ")))
    })?;
    let interface = args.interface.as_deref().map(Interface::find).transpose()?;
    let report = host::diagnose(interface.as_ref(), &requirements);
    print(match args.format {
        Format::Jsonl => serde_json::to_string(&report).map_err(|error| Failure::new(Exit::Incomplete, error))? + "\n",
        Format::Text => report.text(args.all),
    })?;
    Ok(if report.is_possible() { Exit::Done } else { Exit::False })
}

#[cfg(test)]
mod tests {
    use clap::{Command, Subcommand};

    use super::*;
    use crate::cmd::Verb;

    #[test]
    fn every_verb_that_asks_something_of_the_host_is_covered() {
        let dwell = Verb::augment_subcommands(Command::new("dwell"));
        let verbs = dwell.get_subcommands().map(Command::get_name);
        for verb in verbs.filter(|verb| !["doctor", "schema", "lab", "completions", "man"].contains(verb)) {
            assert!(host::DWELL.only(&[verb.to_owned()]).is_ok(), "{verb}");
        }
    }
}
