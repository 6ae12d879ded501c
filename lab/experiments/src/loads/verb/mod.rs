//! `dwell-lab load`: traffic whose client knows the truth about each request.

mod third_party;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Subcommand, ValueEnum};
use dwell_app::{
    Exit,
    args::{duration, positive_duration},
};
use dwell_engine::units::nanos;
use dwell_testbed::{BitsPerSecond, LinkSpec, Nanos, Probability, QueueLimit, Topology};

use crate::{
    Programs,
    print::say,
    values::{positive, rate, reorder, share},
};
use crate::{
    failure::Failure,
    loads::{
        self, Kind, LoadOptions, Mode, Think, Tunnel, load,
        third_party::{Program, ThirdPartyOptions, load as load_by_others},
        web::{Discipline, ServiceModel},
    },
};

#[derive(Debug, Subcommand)]
pub enum Load {
    /// HTTP/1.1 with persistent connections and pipelining
    Web(Web),
    /// HTTP/3, one stream per request; the server works on all requests at the same time
    Http3(Http3),
    /// Reads and writes of memcached, one of each on average, values of 40 to 10,000 bytes
    Memcached(Memcached),
    /// wrk with pipelining against nginx, which serves one static object. wrk reports the distribution of
    /// its latencies, and keeps no log
    Wrk(third_party::ThirdParty),
    /// redis-benchmark with pipelining, which reads one value of redis-server. It reports a few percentiles
    /// of its latencies, and keeps no log
    Redis(third_party::ThirdParty),
}

#[derive(Debug, clap::Args)]
pub struct Web {
    /// In what pattern a connection sends requests
    #[arg(long, value_enum, default_value_t = Mode::Page)]
    mode: Mode,
    /// How the server works on the requests of a connection; it answers in their order
    #[arg(long, value_enum, default_value_t = Discipline::InOrder)]
    discipline: Discipline,
    /// How long the server works on a request
    #[arg(long, value_enum, default_value_t = ServiceModel::Uniform)]
    service: ServiceModel,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub struct Http3 {
    /// In what pattern a connection sends requests
    #[arg(long, value_enum, default_value_t = Mode::Page)]
    mode: Mode,
    /// How long the server works on a request
    #[arg(long, value_enum, default_value_t = ServiceModel::Uniform)]
    service: ServiceModel,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Requests of a connection that may be outstanding [default: 4, memcached: 1]
    #[arg(long, value_name = "REQUESTS", value_parser = positive)]
    depth: Option<usize>,
    /// Connections of the client [default: 200, http3: 20, memcached: 10]. With several, one run each
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive)]
    connections: Vec<usize>,
    /// Threads of the client, which share its connections
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = positive)]
    threads: usize,
    /// Rate of all connections together, in requests per second, or `max`. With several, as in 500,1000,2000, a run
    /// each; its files are named FILE-rate-RATE
    #[arg(long, value_name = "RATE", default_value = "2000", value_delimiter = ',', value_parser = Requests::parse)]
    rate: Vec<Requests>,
    /// Pause after the last answer of a page or batch: 20ms, or exp:20ms for a random one of that mean
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    think: Think,
    /// Write requests that may go at the same time in one piece
    #[arg(long)]
    coalesce: bool,
    /// How long requests are sent
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for what the client knows of each request: JSON Lines, times of CLOCK_MONOTONIC
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// File for the packets at the vantage point
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    network: Network,
}

#[derive(Debug, clap::Args)]
struct Network {
    /// Round trip of the network: a quarter of it to the vantage point, a quarter on, half back
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration)]
    rtt: Duration,
    /// Share of packets lost on the path to the vantage point, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    loss: Option<Probability>,
    /// Share of packets held 5 ms longer on the path to the vantage point, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    reorder: Option<Probability>,
    /// Rate of the path to the vantage point, and of the path back: 10M, 1G. 1000 packets may wait
    #[arg(long, value_name = "RATE", value_parser = rate)]
    bottleneck: Option<u64>,
    /// Share of the bottleneck that other traffic takes each way, 0 to 0.95
    #[arg(long, value_name = "SHARE", value_parser = cross, requires = "bottleneck")]
    cross: Option<f64>,
    /// Put all connections into one encrypted tunnel between client and server
    #[arg(long, value_enum)]
    tunnel: Option<Encryption>,
}

#[derive(Debug, clap::Args)]
pub struct Memcached {
    /// In what pattern a connection sends requests. Batch: wait for all answers before the next. Window: one more request for each answer
    #[arg(long, value_enum, default_value_t = Flow::Batch)]
    mode: Flow,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Flow {
    Batch,
    Window,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Encryption {
    Wireguard,
}

/// Requests per second; `None` for as many as possible.
#[derive(Debug, Clone, Copy)]
struct Requests(Option<f64>);

pub fn run(args: &Load) -> Result<Exit, Failure> {
    match args.loads()? {
        Loads::Own(runs) => {
            for run in runs {
                let report = load(&run.options)?;
                say(&format!("{}{report}", run.heading()))?;
            }
            Ok(Exit::Done)
        }
        Loads::ThirdParty(options) => say(&load_by_others(&options)?.to_string()),
    }
}

/// The loads that the arguments ask for.
pub enum Loads {
    /// Loads by the laboratory's own clients.
    Own(Vec<Run>),
    /// A load by a third-party client.
    ThirdParty(Box<ThirdPartyOptions>),
}

/// A run of a load.
pub struct Run {
    /// The name that distinguishes it from the other runs, such as `rate-500`; `None` if it is the only one.
    name: Option<String>,
    pub options: LoadOptions,
}

impl Run {
    /// Returns a line that names the run; empty if it is the only one.
    pub fn heading(&self) -> String {
        let name = self.name.as_ref();
        name.map_or(String::new(), |name| format!("{}\n", name.replace('-', " ")))
    }

    /// Returns the file of this run: `run.svg` becomes `run-rate-500.svg`.
    pub fn file(&self, file: &Path) -> PathBuf {
        match &self.name {
            Some(name) => with_name(file, name),
            None => file.to_owned(),
        }
    }
}

impl Load {
    /// Returns the loads: for the laboratory's own clients, a run per rate and number of connections.
    pub fn loads(&self) -> Result<Loads, Failure> {
        let by_others = |args: &third_party::ThirdParty, program| {
            let options = args.options(program)?;
            Ok(Loads::ThirdParty(Box::new(options)))
        };
        match self {
            Self::Web(web) => web.common.runs(web.kind(), (200, 4)),
            Self::Http3(http3) => http3.common.runs(http3.kind(), (20, 4)),
            Self::Memcached(memcached) => memcached.common.runs(memcached.kind(), (10, 1)),
            Self::Wrk(args) => return by_others(args, Program::Wrk),
            Self::Redis(args) => return by_others(args, Program::Redis),
        }
        .map(Loads::Own)
    }
}

impl Web {
    fn kind(&self) -> Kind {
        Kind::Web { mode: self.mode, discipline: self.discipline, service: self.service }
    }
}

impl Http3 {
    fn kind(&self) -> Kind {
        Kind::Http3 { mode: self.mode, service: self.service }
    }
}

impl Memcached {
    fn kind(&self) -> Kind {
        Kind::Memcached {
            mode: match self.mode {
                Flow::Batch => Mode::Batch,
                Flow::Window => Mode::Window,
            },
        }
    }
}

impl Common {
    fn runs(&self, kind: Kind, (connections, depth): (usize, usize)) -> Result<Vec<Run>, Failure> {
        let numbers = match self.connections.as_slice() {
            [] => &[connections],
            numbers => numbers,
        };
        let mut runs = Vec::new();
        for &connections in numbers {
            for &rate in &self.rate {
                let several = [
                    (numbers.len() > 1).then(|| format!("connections-{connections}")),
                    (self.rate.len() > 1).then(|| format!("rate-{rate}")),
                ];
                let name = several.into_iter().flatten().collect::<Vec<_>>().join("-");
                let mut run = Run {
                    name: Some(name).filter(|name| !name.is_empty()),
                    options: self.options(kind, connections, depth, rate)?,
                };
                run.options.truth = self.truth.as_deref().map(|file| run.file(file));
                run.options.pcap = self.pcap.as_deref().map(|file| run.file(file));
                runs.push(run);
            }
        }
        Ok(runs)
    }

    fn options(&self, kind: Kind, connections: usize, depth: usize, rate: Requests) -> Result<LoadOptions, Failure> {
        Ok(LoadOptions {
            programs: Programs::find()?,
            kind,
            depth: self.depth.unwrap_or(depth),
            threads: self.threads,
            connections,
            rate: rate.0,
            think: self.think,
            coalesce: self.coalesce,
            duration: self.duration,
            seed: self.seed,
            network: self.network.with_seed(self.seed),
            truth: None,
            pcap: None,
        })
    }
}

impl Network {
    fn with_seed(&self, seed: u64) -> loads::Network {
        loads::Network {
            topology: self.topology(seed),
            cross: self.cross_rate(),
            tunnel: self.tunnel.map(|Encryption::Wireguard| Tunnel::Wireguard),
        }
    }

    fn topology(&self, seed: u64) -> Topology {
        let rtt = nanos(self.rtt);
        let narrow = LinkSpec {
            rate_bits_per_second: self.bottleneck.and_then(BitsPerSecond::new),
            queue: self.bottleneck.map(|_| QueueLimit::Packets(1000)),
            seed,
            ..LinkSpec::default()
        };
        Topology::Triangle {
            client_to_vantage: LinkSpec {
                delay_ns: Nanos(rtt / 4),
                loss: self.loss.unwrap_or_default(),
                reorder: self.reorder.map(reorder),
                ..narrow.clone()
            },
            vantage_to_server: LinkSpec::delay(Nanos(rtt / 4)),
            server_to_client: LinkSpec { delay_ns: Nanos(rtt - rtt / 4 * 2), ..narrow },
        }
    }

    fn cross_rate(&self) -> Option<BitsPerSecond> {
        let rate = self.bottleneck? as f64 * self.cross?;
        BitsPerSecond::new(rate as u64)
    }
}

/// `run.pcap` becomes `run-NAME.pcap`.
fn with_name(file: &Path, run: &str) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{run}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

impl Requests {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            _ if text == "max" => Ok(Self(None)),
            Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(Self(Some(rate))),
            _ => Err("write requests per second, or max".into()),
        }
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => write!(f, "{rate}"),
            None => f.write_str("max"),
        }
    }
}

fn cross(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=0.95).contains(&share) => Ok(share),
        _ => Err("write a number from 0 to 0.95".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(subcommand)]
        load: Load,
    }

    fn files(words: &str) -> Vec<PathBuf> {
        let words = words.split(' ');
        let command = <Command as clap::Parser>::try_parse_from(words).unwrap();
        let Loads::Own(runs) = command.load.loads().unwrap() else {
            panic!("a load of our own");
        };
        let files = runs.into_iter().map(|run| run.options.pcap.unwrap());
        files.collect()
    }

    #[test]
    fn each_run_of_a_sweep_has_files_of_its_own() {
        let web = |more: &str| files(&format!("lab web --pcap /a.b/run.pcap{more}"));
        assert_eq!(web(""), [Path::new("/a.b/run.pcap")]);
        assert_eq!(web(" --rate 500,max"), ["/a.b/run-rate-500.pcap", "/a.b/run-rate-max.pcap"].map(Path::new));
        let both = web(" --rate 500,1000 --connections 10,100");
        assert_eq!(both.len(), 4);
        assert_eq!(both[1], Path::new("/a.b/run-connections-10-rate-1000.pcap"));
        assert_eq!(with_name(Path::new("run"), "rate-5"), Path::new("run-rate-5"));
    }

    #[test]
    fn other_traffic_is_a_share_of_the_bottleneck() {
        let network = |bottleneck, cross| Network {
            rtt: Duration::from_millis(70),
            loss: None,
            reorder: None,
            bottleneck,
            cross,
            tunnel: None,
        };
        let rate = |network: Network| network.cross_rate().map(u64::from);
        assert_eq!(rate(network(Some(10_000_000), Some(0.4))), Some(4_000_000));
        assert_eq!(rate(network(Some(10_000_000), Some(0.0))), None);
        assert_eq!(rate(network(None, None)), None);
        let trip = network(None, None).topology(1).end_to_end_rtt();
        assert_eq!(trip, Nanos(70_000_000));
    }
}
