//! `dwell response`: response latency from the client's packets alone.

mod baseline;
mod constants;
mod live;
mod metrics;
mod replay;
mod report;
mod summary;

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::anyhow;
use clap::{ArgGroup, ValueEnum};
use dwell_engine::{
    abi,
    filter::Filter,
    histogram::Figure,
    response::{Config, Estimator, Key, Method, Watch},
    rtt::Prefix,
    units::nanos,
};
use dwell_probes::Chain;
use dwell_records::Verb;

use self::{baseline::Epochs, constants::Constant};
use crate::{
    args::{FormatOrNone, epoch, positive_duration},
    baseline::{BaselineArgs, Settings},
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Vocabulary},
    names::NamesArgs,
    ranking::RankingArgs,
    served::MetricsArgs,
    source::{FilterArgs, HookName},
    stored::StoreArgs,
    written::WriteArgs,
};

/// Estimate response latency from the client's packets alone
///
/// For encrypted traffic, and where only the packets from clients to servers pass: a packet that a
/// response triggers stands in for the response. Each epoch of a flow gives an estimate of the time
/// from a request to the last byte of its response, with a confidence, or the reason why there is
/// none.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("source").required(true).multiple(true).args(["interface", "read"]),
    after_help = "\
Examples:
  dwell response -i eth0                         one line per epoch and flow, until Ctrl-C
  dwell response -i eth0 --server 192.0.2.0/24:443 --format jsonl > response.jsonl
  dwell response -i eth0 --format none --metrics 127.0.0.1:9470 --prefix4 32
  dwell response -r clients.pcap --summary=server --by p99 --top 10
  dwell response -r clients.pcap --fail-if 'p99>200ms' --format none
  dwell response -i eth0 --duration 2m --baseline FILE
                                                 record by server; later, show which changed
  dwell response -r clients.pcap --estimator pirate --set show-modes=true"
)]
#[group(skip)]
pub struct Args {
    /// Interface to watch; may be given several times
    #[arg(short, long, value_name = "IF", conflicts_with = "read")]
    interface: Vec<String>,

    /// Capture to read instead: pcap or pcapng, also gzipped; - for a pipe
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["metrics", "otlp", "otlp_headers"])]
    read: Option<PathBuf>,

    /// Estimator: auto picks one for each flow; pirate uses modes of the gaps between packets; gap uses a threshold;
    /// syn-ack uses the handshake of TCP
    #[arg(long, value_enum, default_value_t = EstimatorName::Auto)]
    estimator: EstimatorName,

    /// Length of an interval, called epoch, which gives one estimate per flow: 10ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = epoch)]
    interval: Duration,

    /// Key that identifies a flow
    #[arg(long, value_enum, default_value_t = KeyName::Auto)]
    flow_key: KeyName,

    /// Do not tell flows apart by VLAN and tunnel, as where a flow's packets may take one or the other
    #[arg(long)]
    ignore_tunnels: bool,

    /// Ends that are servers: PREFIX[:PORT[-PORT]] or :PORT[-PORT]; may be given up to 16 times [default: inferred from
    /// --port below 32768, the SYN, the ports, or which end sends first]
    #[arg(long, value_name = "RULE")]
    server: Vec<String>,

    #[command(flatten)]
    flows: FilterArgs,

    /// The largest IP packet that the path carries, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(68..))]
    mtu: u16,

    /// Size in bytes above which an IP packet with unreadable headers is not a transport ACK
    #[arg(long, value_name = "BYTES", default_value_t = 160)]
    ack_size: u16,

    /// Maximum number of flows to keep apart at once; packets of others are counted as untracked
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(4..=16_000_000))]
    max_flows: u32,

    /// Time without a packet after which a flow makes room for others
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    idle_timeout: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration, conflicts_with = "read")]
    duration: Option<Duration>,

    /// Hook for incoming packets: XDP, which comes before the stack, or tc; auto uses XDP unless another program holds
    /// it
    #[arg(long, value_enum, value_name = "HOOK", default_value_t = HookName::Auto, conflicts_with = "read")]
    hook: HookName,

    /// Instead of attaching to incoming packets, use this slot of the pinned program array into which another XDP
    /// program makes tail calls; continue with slot NEXT, or pass the packet
    #[arg(long, value_name = "MAP:SLOT[:NEXT]", conflicts_with_all = ["read", "hook"])]
    tail_call: Option<Chain>,

    /// Output format: text, jsonl, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::Text)]
    format: FormatOrNone,

    #[command(flatten)]
    names: NamesArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Print a summary at the end instead of epochs, with one line per flow, server (address and port) or prefix of
    /// servers: epochs, share with an estimate, number of responses and their percentiles [default: flow]
    #[arg(long, value_enum, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "flow")]
    summary: Option<SummaryBy>,

    #[command(flatten)]
    ranking: RankingArgs,

    #[command(flatten)]
    baseline: BaselineArgs,

    /// Fail (exit status 1) if this holds for the responses of the run, or cannot be judged because there are none:
    /// [METHOD] FIGURE>TIME, as in 'p99>50ms' or 'turns max>=1s or count<100'; FIGURE is count, mean, min, max, p50, p90, p95, p99 or p99.9; may be
    /// given several times
    #[arg(long, value_name = "CONDITION", value_parser = conditions)]
    fail_if: Vec<Conditions>,

    /// Set KEY to VALUE, for experiments: a constant of an estimator, threshold, modes, merge-distance, rto, floor,
    /// heuristics, idle-gap or show-modes; see docs/method/response.md. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = constants::constant)]
    set: Vec<Constant>,

    #[command(flatten)]
    metrics: MetricsArgs,

    /// Prefix length of IPv4 groups: servers that share metrics, or a line of --summary=prefix [default: 24]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(0..=32))]
    prefix4: Option<u8>,

    /// Prefix length of IPv6 groups: servers that share metrics, or a line of --summary=prefix [default: 48]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(0..=128))]
    prefix6: Option<u8>,

    /// Number of groups that have metrics, each of one interface, method and prefix; those beyond it are `other`
    #[arg(long, value_name = "N", default_value_t = 512, requires = "MetricsArgs", conflicts_with = "read", value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_groups: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EstimatorName {
    Auto,
    Pirate,
    Gap,
    SynAck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeyName {
    /// The most specific of the other keys that the packet has
    Auto,
    /// Addresses, ports and protocol
    #[value(name = "5tuple")]
    FiveTuple,
    /// Addresses and protocol
    IpPair,
    /// Addresses and security parameter index
    Esp,
    /// Addresses and receiver index
    #[value(name = "wireguard")]
    WireGuard,
    /// Addresses, ports and protocol; QUIC connections are followed when they change
    QuicCid,
    /// Addresses and protocol of the outermost IP header
    Outer,
}

/// How many bits of their addresses servers of a group have in common.
#[derive(Debug, Clone, Copy)]
struct PrefixLengths {
    v4: u8,
    v6: u8,
}

impl PrefixLengths {
    fn group(self, server: IpAddr) -> Prefix {
        Prefix::of(server, if server.is_ipv4() { self.v4 } else { self.v6 })
    }
}

/// What a line of the summary is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SummaryBy {
    Flow,
    Server,
    Prefix,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.read {
        Some(path) => replay::run(args, path),
        None => live::run(args),
    }
}

impl Args {
    fn watch(&self, seed: u64, phase_ns: u64) -> Result<Watch, Failure> {
        Ok(Watch {
            config: Config { phase_ns, ..self.config()? },
            key: match self.flow_key {
                KeyName::Auto => Key::Auto,
                KeyName::FiveTuple => Key::FiveTuple,
                KeyName::IpPair => Key::IpPair,
                KeyName::Esp => Key::Esp,
                KeyName::WireGuard => Key::WireGuard,
                KeyName::QuicCid => Key::QuicCid,
                KeyName::Outer => Key::Outer,
            },
            servers: self.servers()?,
            filter: self.flows.with_port()?,
            max_flows: self.max_flows,
            idle_timeout_ns: nanos(self.idle_timeout),
            ignore_tunnels: self.ignore_tunnels,
            seed,
        })
    }

    /// The ends that are servers: those that the user named, or else the one whose port was, unless it may be a client's.
    fn servers(&self) -> Result<Filter, Failure> {
        let named =
            self.flows.port.filter(|port| u32::from(*port) < abi::DWELL_EPHEMERAL_PORT && self.server.is_empty());
        let of_port = named.map(|port| format!(":{port}"));
        let rules: Vec<String> = self.server.iter().cloned().chain(of_port).collect();
        Filter::parse_servers(&rules).map_err(Failure::usage)
    }

    fn config(&self) -> Result<Config, Failure> {
        self.refuse_options_without_effect()?;
        let mut config = Config {
            estimator: match self.estimator {
                EstimatorName::Auto => Estimator::Auto,
                EstimatorName::Pirate => Estimator::Pirate,
                EstimatorName::Gap => Estimator::Gap(300_000),
                EstimatorName::SynAck => Estimator::SynAck,
            },
            epoch_ns: nanos(self.interval),
            mtu: self.mtu,
            ack_bytes: self.ack_size,
            ..Config::default()
        };
        for constant in &self.set {
            constant.apply(&mut config);
        }
        Ok(config)
    }

    /// Opens the baseline: of prefixes of servers where the summary has these, or else of servers. `host` is unknown for
    /// captures.
    fn baseline(&self, host: Option<String>) -> Result<Option<Epochs>, Failure> {
        let prefixes = (self.summary == Some(SummaryBy::Prefix)).then(|| self.prefixes());
        let constants: Vec<_> = self.set.iter().map(|constant| format!("{constant:?}")).collect();
        let settings = Settings::new("response", host)
            .with_time("--interval", self.interval)
            .with_name("--estimator", &self.estimator)
            .with_list("--set", &constants)
            .with_name("--flow-key", &self.flow_key)
            .with_flag("--ignore-tunnels", self.ignore_tunnels)
            .with_list("--server", &self.server)
            .with_option("--port", self.flows.port)
            .with_list("--filter", &self.flows.filter)
            .with("--mtu", self.mtu)
            .with("--ack-size", self.ack_size)
            .with("key", if prefixes.is_some() { "prefix" } else { "server" })
            .with_option("--prefix4", prefixes.map(|lengths| lengths.v4))
            .with_option("--prefix6", prefixes.map(|lengths| lengths.v6));
        let epoch_ns = nanos(self.interval);
        let baseline = self.baseline.open(Verb::Response, epoch_ns, settings)?;
        Ok(baseline.map(|baseline| Epochs::new(baseline, prefixes, epoch_ns)))
    }

    fn prefixes(&self) -> PrefixLengths {
        PrefixLengths { v4: self.prefix4.unwrap_or(24), v6: self.prefix6.unwrap_or(48) }
    }

    /// Whether flows are printed, which may have names.
    fn shows_flows(&self) -> bool {
        self.store.is_given()
            || self.write.format(self.format.name()).is_some() && self.summary != Some(SummaryBy::Prefix)
    }

    fn shows_modes(&self) -> bool {
        self.set.contains(&Constant::ShowModes(true))
    }

    fn refuse_options_without_effect(&self) -> Result<(), Failure> {
        for constant in &self.set {
            let (key, estimators) = constant.estimators();
            if !estimators.is_empty() && !estimators.contains(&self.estimator) {
                let names = estimators.iter().filter_map(ValueEnum::to_possible_value);
                let names: Vec<_> = names.map(|name| name.get_name().to_owned()).collect();
                return Err(Failure::usage(anyhow!(
                    "--set {key} is for --estimator {}: give that too, or leave it out",
                    names.join(" or ")
                )));
            }
        }
        let has_prefix = self.prefix4.is_some() || self.prefix6.is_some();
        if has_prefix && !self.metrics.is_given() && self.summary != Some(SummaryBy::Prefix) {
            return Err(Failure::usage(anyhow!(
                "--prefix4 and --prefix6 are for --metrics, --otlp and --summary=prefix: give one of these too, or leave them out"
            )));
        }
        Ok(())
    }
}

/// Parses conditions on responses, of which a method may be named.
fn conditions(text: &str) -> Result<Conditions, String> {
    let names = Method::ALL.map(|method| method.name().to_owned()).into();
    fail_if::parse(text, &Vocabulary { kind: "method", names, figures: &Figure::ALL })
}
