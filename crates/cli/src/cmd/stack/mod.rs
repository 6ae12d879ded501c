//! `dwell stack`: where in this host bytes spend their time, layer by layer.

mod print;

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use dwell_engine::layers::Config;

use crate::{
    args::{nanos, positive_duration, sample_bytes},
    exit::{Exit, Failure},
    source::StackArgs,
};

/// Tell where in this host live TCP connections spend their time, layer by layer
///
/// Bytes of each connection are stamped at the socket, TCP, IP, the queueing discipline and the
/// driver, on the way down and on the way up. Each interval gives a table with a line a segment:
/// the time between two layers. The segments of a byte add up to its total. Looks at the network
/// namespace that it is run in.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell stack --port 443                     a table a second, until Ctrl-C
  dwell stack --duration 10s --interval 10s  one table of ten seconds, all connections
  dwell stack --filter 192.0.2.0/24 --format jsonl > stack.jsonl
  dwell stack --port 6379 --sample-bytes 64  of connections with short messages
  dwell stack --flows --interval 5s          each connection by itself too
  dwell stack --pid $(pidof -s redis-server) --cpu-budget 1%
  dwell stack --port 443 --devices           through veth, bridge and tap, of containers too
  dwell stack --port 443 --raw --format jsonl > bytes.jsonl
                                             each stamped byte: when it was where
  dwell stack --duration 2m --baseline FILE  record how long segments take; later: which changed")]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    selection: StackArgs,

    /// Time between two tables
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Stamp one byte in so many of a connection: a power of two from 64 to 16777216
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = sample_bytes)]
    sample_bytes: u32,

    /// Stamp at most one byte of a flow in such a time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    sample_interval: Option<Duration>,

    /// Tell each flow, one direction of a connection, by itself too
    #[arg(long)]
    flows: bool,

    /// Flows to keep apart in an interval; of others only the sums are told
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "flows", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_flows: u32,

    /// Tell how long bytes take from device to device too: through bridges, tunnels and all network
    /// namespaces of this host, as between a container and the network
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "cpu_budget"])]
    devices: bool,

    /// Tell each stamped byte by itself, when it was at which layer
    #[arg(long)]
    raw: bool,

    /// Count the bytes that TCP sent again, or that came in again, in lines of their own
    #[arg(long)]
    include_retransmissions: bool,

    /// Tell segments that take longer or shorter than in an earlier run: where there is no FILE,
    /// record one, else compare (exit status 1 if a segment has shifted)
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Record the baseline, also where there is one
    #[arg(long, requires = "baseline")]
    baseline_record: bool,

    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    print::run(args)
}

impl Args {
    fn config(&self) -> Result<Config, Failure> {
        Ok(Config {
            passages: self.raw,
            again: self.include_retransmissions,
            pace_ns: self.sample_interval.map_or(0, nanos),
            ..self.selection.config(self.sample_bytes)?
        })
    }
}
