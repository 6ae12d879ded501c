//! `dwell rtt`: passive round-trip times, live or from a capture.

mod annotate;
mod live;
mod metrics;
mod replay;
mod report;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use clap::{ArgAction, ArgGroup, ValueEnum};
use dwell_engine::{
    histogram::Figure,
    measure::Method,
    rtt::{Aggregate, Config, Prefixes, RateLimit},
    units::nanos,
};
use dwell_probes::{Hook, TcHookKind};
use dwell_records::Verb;

use crate::{
    args::{duration, positive_duration},
    baseline::{Baseline, BaselineArgs, Settings},
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Vocabulary},
    names::NamesArgs,
    ranking::RankingArgs,
    served::MetricsArgs,
    source::{FilterArgs, HookName},
    stored::StoreArgs,
    written::WriteArgs,
};

/// Measure round-trip times of real traffic, watching it pass
///
/// Each sample names the sender of a packet (src), the end that answered it (dst), and the time until the answer came
/// by: the round trip from here to dst. With traffic in both directions, both sides of the path are measured.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("source").required(true).multiple(true).args(["interface", "read"]),
    after_help = "\
Examples:
  dwell rtt -i eth0                              one line per sample, until Ctrl-C
  dwell rtt -i eth0 --rate-limit 100ms --format jsonl > rtt.jsonl
  dwell rtt -i eth0 --aggregate --interval 10s   one table every 10 s, counted in the kernel
  dwell rtt -i eth0 --aggregate --metrics 127.0.0.1:9469
  dwell rtt -r capture.pcapng --summary          one line per flow and method
  dwell rtt -i eth0 -p 443 --summary --by p99 --top 10
  dwell rtt -i eth0 -n                           numbers only, no names of processes and hosts
  dwell rtt -r capture.pcapng --fail-if 'p99>50ms' --format none
  dwell rtt -i eth0 --aggregate --duration 2m --baseline FILE
                                                 record by prefix; later, show which changed
  dwell rtt -i eth0 --format none --store rtt.db
                                                 distributions by flow and second, for `dwell report`
  tcpdump -i eth0 -w - | dwell rtt -r -
  dwell rtt -r capture.pcapng --format none --annotate annotated.pcapng
                                                 samples as comments on packets, for Wireshark
  dwell rtt -i eth0 -f 10.0.0.0/8 -f '!10.1.0.0/16:53'"
)]
#[group(skip)]
pub struct Args {
    /// Interface to watch; may be given several times
    #[arg(short, long, value_name = "IF", conflicts_with = "read")]
    interface: Vec<String>,

    /// Capture to read instead: pcap or pcapng, also gzipped; - for a pipe
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["metrics", "otlp", "otlp_headers"])]
    read: Option<PathBuf>,

    /// Write the capture again, as pcapng, with each sample as a comment on the packet that completed it, as Wireshark
    /// shows it; FILE is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "interface")]
    annotate: Option<PathBuf>,

    /// What to measure, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "METHOD",
        default_value = "auto",
        value_parser = Choice::parse,
        hide_default_value = true,
        help = "What to measure, separated by commas: auto, tcp, tcp-timestamp, tcp-seq, icmp, icmpv6, dns, quic-spin, quic-spin-loop, quic-handshake; tcp chooses between its two methods for each flow [default: auto, which is tcp and all methods listed after tcp-seq]"
    )]
    methods: Vec<Choice>,

    #[command(flatten)]
    flows: FilterArgs,

    /// Minimum time between samples of each direction of a flow; 0 to sample every packet (QUIC samples are rare and
    /// not limited)
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    rate_limit: Duration,

    /// Take at most one sample per MULTIPLE round trips of a flow
    #[arg(long, value_name = "MULTIPLE", value_parser = multiple)]
    rtt_rate: Option<f64>,

    /// Count in histograms by prefix and print one table per interval instead of one line per sample
    #[arg(long)]
    aggregate: bool,

    /// Length of an interval; at least 10ms on an interface
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// Prefix length of IPv4 groups
    #[arg(long, value_name = "BITS", default_value_t = 24, value_parser = clap::value_parser!(u8).range(0..=32))]
    prefix4: u8,

    /// Prefix length of IPv6 groups
    #[arg(long, value_name = "BITS", default_value_t = 48, value_parser = clap::value_parser!(u8).range(0..=128))]
    prefix6: u8,

    /// List of prefixes that are groups of their own: per line a prefix and its name. The longest that contains an
    /// address counts; addresses in none are grouped by --prefix4 and --prefix6
    #[arg(long, value_name = "FILE")]
    prefixes: Option<PathBuf>,

    /// Time without a sample after which a group makes room for others
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = positive_duration)]
    group_timeout: Duration,

    /// Number of groups, each of one interface, method and prefix; bounds memory and metrics. One of them is `other`,
    /// for all samples beyond the limit
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_groups: u32,

    /// Do not tell flows apart by VLAN and tunnel, as where the two directions have different tags
    #[arg(long)]
    ignore_tunnels: bool,

    /// Report when flows open, give their first round trip, and close
    #[arg(long)]
    flow_events: bool,

    /// Maximum number of flows to keep apart at once; packets of others are counted as untracked
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(4..=16_000_000))]
    max_flows: u32,

    /// Time without a packet after which a flow makes room for others
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    idle_timeout: Duration,

    /// Measure SYN and SYN-ACK too, which some hosts answer late
    #[arg(long)]
    include_handshake: bool,

    /// Sample pure ACKs too, whose echo waits until the other side has data to send
    #[arg(long)]
    include_acks: bool,

    /// Treat spin-bit edges from one side less than this apart as reordering
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = duration)]
    spin_floor: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration, conflicts_with = "read")]
    duration: Option<Duration>,

    /// Hook for incoming packets: tc, or XDP, which comes before the stack; auto is tc
    #[arg(long, value_enum, value_name = "HOOK", default_value_t = HookName::Auto, conflicts_with = "read")]
    hook: HookName,

    /// How to attach at tc: auto uses tcx, or clsact where the kernel lacks it
    #[arg(long, value_enum, default_value_t = Attach::Auto, conflicts_with = "read")]
    attach: Attach,

    /// Output format: text, jsonl, ppviz, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    #[command(flatten)]
    names: NamesArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Print a summary at the end instead of samples, with one line per flow and method: count, minimum, percentiles,
    /// maximum, mean
    #[arg(long, action = ArgAction::SetTrue)]
    summary: bool,

    #[command(flatten)]
    ranking: RankingArgs,

    #[command(flatten)]
    baseline: BaselineArgs,

    /// Fail (exit status 1) if this holds for the round trips of the run, or cannot be judged because there are none:
    /// [METHOD] FIGURE>TIME, as in 'p99>50ms' or 'dns max>=1s or count<100'; FIGURE is count, mean, min, max, p50, p90, p95, p99 or p99.9; may be
    /// given several times
    #[arg(long, value_name = "CONDITION", value_parser = conditions)]
    fail_if: Vec<Conditions>,

    #[command(flatten)]
    metrics: MetricsArgs,
}

/// A word of `--methods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// All methods, those of TCP as by `Tcp`.
    Auto,
    /// The better of the two methods of TCP, for each flow.
    Tcp,
    /// One method.
    One(Method),
}

impl Choice {
    fn parse(text: &str) -> Result<Choice, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "tcp" => Ok(Choice::Tcp),
            name => Method::from_name(name).map(Choice::One).ok_or_else(|| {
                let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
                format!("unknown method; the methods are auto, tcp, {}", names.join(", "))
            }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::Tcp => "tcp",
            Choice::One(method) => method.name(),
        }
    }

    fn methods(self) -> Vec<Method> {
        match self {
            Choice::Auto => Method::ALL.to_vec(),
            Choice::Tcp => vec![Method::TcpTimestamp, Method::TcpSeq],
            Choice::One(method) => vec![method],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Attach {
    Auto,
    Tcx,
    Clsact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Jsonl,
    Ppviz,
    None,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
            Format::Ppviz => "ppviz",
            Format::None => "none",
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.read {
        Some(path) => replay::run(args, path),
        None => live::run(args),
    }
}

impl Args {
    fn config(&self, seed: u64) -> Result<Config, Failure> {
        let tcp_auto = self.methods.iter().any(|choice| matches!(choice, Choice::Auto | Choice::Tcp));
        let one =
            self.methods.iter().find(|choice| matches!(choice, Choice::One(Method::TcpTimestamp | Method::TcpSeq)));
        if let (true, Some(Choice::One(method))) = (tcp_auto, one) {
            return Err(Failure::usage(anyhow!(
                "--methods: auto and tcp choose between tcp-timestamp and tcp-seq themselves: leave out {method}"
            )));
        }
        Ok(Config {
            methods: self.methods.iter().flat_map(|choice| choice.methods()).collect(),
            tcp_auto,
            ignore_tunnels: self.ignore_tunnels,
            filter: self.flows.with_port()?,
            rate_limit: match self.rtt_rate {
                Some(multiple) => RateLimit::RoundTrips(multiple, nanos(self.rate_limit)),
                None => RateLimit::Interval(nanos(self.rate_limit)),
            },
            max_flows: self.max_flows,
            idle_timeout_ns: nanos(self.idle_timeout),
            spin_floor_ns: nanos(self.spin_floor),
            include_handshake: self.include_handshake,
            stamp_acks: self.include_acks,
            flow_events: self.flow_events,
            seed,
        })
    }

    /// Whether flows are printed, which may have names.
    fn shows_flows(&self) -> bool {
        let prints_names = matches!(self.write.format(self.format.name()), Some(format) if format.name != "ppviz");
        (prints_names || self.store.is_given()) && (!self.aggregate || self.summary || self.flow_events)
    }

    /// How samples are grouped.
    fn aggregation(&self) -> Result<Aggregate, Failure> {
        let prefixes = match &self.prefixes {
            None => Prefixes::default(),
            Some(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("cannot read the list of prefixes {}", path.display()))
                    .map_err(Failure::usage)?;
                Prefixes::parse(&text).with_context(|| path.display().to_string()).map_err(Failure::usage)?
            }
        };
        Ok(Aggregate {
            prefix4: self.prefix4,
            prefix6: self.prefix6,
            prefixes,
            max_groups: self.max_groups,
            idle_ns: nanos(self.group_timeout),
        })
    }

    /// Opens the baseline of groups. `host` is unknown for captures.
    fn baseline(&self, host: Option<String>) -> Result<Option<Baseline>, Failure> {
        let methods: Vec<_> = self.methods.iter().map(|choice| choice.name().to_owned()).collect();
        let settings = Settings::new("rtt", host)
            .with_time("--interval", self.interval)
            .with_list("--methods", &methods)
            .with_option("--port", self.flows.port)
            .with_list("--filter", &self.flows.filter)
            .with_time("--rate-limit", self.rate_limit)
            .with_option("--rtt-rate", self.rtt_rate)
            .with("--prefix4", self.prefix4)
            .with("--prefix6", self.prefix6)
            .with_option("--prefixes", self.prefixes.as_ref().map(|path| path.display().to_string()))
            .with_flag("--ignore-tunnels", self.ignore_tunnels)
            .with_flag("--include-handshake", self.include_handshake)
            .with_flag("--include-acks", self.include_acks)
            .with_time("--spin-floor", self.spin_floor)
            .with_name("--hook", &self.hook);
        self.baseline.open(Verb::Rtt, nanos(self.interval), settings)
    }

    fn ingress(&self) -> Hook {
        match self.hook {
            HookName::Auto | HookName::Tc => Hook::TcIngress,
            HookName::Xdp => Hook::Xdp,
        }
    }

    fn tc_kind(&self) -> TcHookKind {
        match self.attach {
            Attach::Auto => TcHookKind::Auto,
            Attach::Tcx => TcHookKind::Tcx,
            Attach::Clsact => TcHookKind::Clsact,
        }
    }
}

/// Parses conditions on round trips, of which a method may be named, or `tcp` for its two.
fn conditions(text: &str) -> Result<Conditions, String> {
    let names = ["tcp"].into_iter().chain(Method::ALL.iter().map(|method| method.name())).map(str::to_owned);
    fail_if::parse(text, &Vocabulary { kind: "method", names: names.collect(), figures: &Figure::ALL })
}

fn multiple(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|multiple| *multiple > 0.0 && *multiple <= 10_000.0)
        .ok_or_else(|| "write a number above 0, at most 10000".to_owned())
}
