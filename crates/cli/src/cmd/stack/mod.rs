//! `dwell stack`: how long bytes spend in each layer of this host.

mod print;

use std::time::Duration;

use dwell_engine::{
    histogram::Figure,
    layers::{Config, Segment},
    units::nanos,
};

use crate::{
    args::{FormatOrNone, positive_duration, sample_bytes},
    baseline::BaselineArgs,
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Vocabulary},
    names::NamesArgs,
    ranking::RankingArgs,
    served::MetricsArgs,
    source::StackArgs,
    stored::StoreArgs,
    written::WriteArgs,
};

/// Show where in this host live TCP connections spend their time, layer by layer
///
/// Bytes of each connection are stamped at the socket, TCP, IP, the queueing discipline and the
/// driver, on send and on receive. Each interval gives a table with one line per segment, which is
/// the time between two layers. The segments of a byte add up to its total. Watches the network
/// namespace that it is run in.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell stack -p 443                         one table per second, until Ctrl-C
  dwell stack --duration 10s --interval 10s  one table of ten seconds, all connections
  dwell stack --filter 192.0.2.0/24 --format jsonl > stack.jsonl
  dwell stack --port 6379 --sample-bytes 64  for connections with short messages
  dwell stack --flows --interval 5s          also each connection separately
  dwell stack --flows --by p99 --top 10      and of these the ten slowest
  dwell stack --pid $(pidof -s redis-server) --cpu-budget 1%
  dwell stack --port 443 --devices           through veth, bridge and tap, of containers too
  dwell stack --port 443 --raw --format jsonl > bytes.jsonl
                                             each stamped byte, with its time at each layer
  dwell stack --port 443 --format none --metrics 127.0.0.1:9473
  dwell stack --duration 1m --fail-if 'tx total p99>5ms'
  dwell stack --duration 2m --baseline FILE  record segment times; later, show which changed")]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    selection: StackArgs,

    /// Length of an interval, after which a table is printed
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Stamp one in N bytes of each connection: a power of two from 64 to 16777216
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = sample_bytes)]
    sample_bytes: u32,

    /// Stamp at most one byte of each flow in this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    sample_interval: Option<Duration>,

    /// Also report each flow separately, one direction of a connection
    #[arg(long)]
    flows: bool,

    /// Maximum number of flows to keep apart in an interval; others count in the sums only
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "flows", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_flows: u32,

    #[command(flatten)]
    ranking: RankingArgs,

    /// Also report how long bytes take from device to device: through bridges, tunnels and all network
    /// namespaces of this host, as between a container and the network
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "cpu_budget"])]
    devices: bool,

    /// Report each stamped byte, with its time at each layer
    #[arg(long)]
    raw: bool,

    /// Report bytes that TCP sent again, or that came in again, in lines of their own
    #[arg(long)]
    include_retransmissions: bool,

    #[command(flatten)]
    baseline: BaselineArgs,

    /// Fail (exit status 1) if this holds for the bytes of the run, or cannot be judged because there are none: [SEGMENT]
    /// FIGURE>TIME, as in 'queueing p99>5ms' or 'rx total max>=1s'; without SEGMENT for the total of either direction; FIGURE is count, mean,
    /// min, max, p50, p90, p95, p99 or p99.9; may be given several times
    #[arg(long, value_name = "CONDITION", value_parser = conditions)]
    fail_if: Vec<Conditions>,

    /// Output format: text, jsonl, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::Text)]
    format: FormatOrNone,

    #[command(flatten)]
    names: NamesArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    print::run(args)
}

impl Args {
    fn config(&self) -> Result<Config, Failure> {
        Ok(Config {
            traces: self.raw,
            again: self.include_retransmissions,
            pace_ns: self.sample_interval.map_or(0, nanos),
            ..self.selection.config(self.sample_bytes)?
        })
    }
}

/// Parses conditions on segments, which are named with or without their direction.
fn conditions(text: &str) -> Result<Conditions, String> {
    let mut names: Vec<String> = Vec::new();
    for segment in Segment::ALL {
        if !names.iter().any(|name| name == segment.name()) {
            names.push(segment.name().to_owned());
        }
        names.push(name_with_direction(segment));
    }
    fail_if::parse(text, &Vocabulary { kind: "segment", names, figures: &Figure::ALL })
}

fn name_with_direction(segment: Segment) -> String {
    format!("{} {}", segment.direction().name(), segment.name())
}
