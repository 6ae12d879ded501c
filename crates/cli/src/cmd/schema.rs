//! `dwell schema`: the keys of all objects that `dwell` writes.

use dwell_balancer::{
    api::{HeartbeatStatus, RouteObject, Status},
    control::Event,
};
use dwell_probes::host;
use dwell_records::{Schema, print};
use dwell_sim::report::RunObject;

use crate::exit::{Exit, Failure};

/// Print the JSON Schema of all objects that dwell writes
///
/// Every line of every verb's jsonl matches it (draft 2020-12).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell schema > dwell.schema.json
  dwell schema | jq '.[\"$defs\"][\"rtt.sample\"].properties | keys'")]
pub struct Args {
    /// Print tables of the keys in Markdown, as docs/schema.md has them
    #[arg(long)]
    markdown: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let mut schema = Schema::default();
    schema.add::<Event>();
    schema.add::<Status>();
    schema.add::<HeartbeatStatus>();
    schema.add::<RouteObject>();
    schema.add::<RunObject<'_>>();
    schema.add_with_header::<host::Report>("doctor.report");
    print(match args.markdown {
        true => schema.markdown(),
        false => format!("{:#}\n", schema.json()),
    })?;
    Ok(Exit::Done)
}
