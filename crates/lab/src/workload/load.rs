//! Loads whose clients know the truth: requests that pass the vantage point of a triangle while their answers go
//! around it, a capture of what passes, and a log of when each request was sent and answered.

mod capture;
mod client;
mod connection;
mod cost;
mod cross;
mod pace;
mod random;
pub mod report;
mod truth;
mod watch;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::memcached::{self, Memcached};
use super::web::{self, Discipline, ServerConfig, ServiceModel, Web};
use super::{collect, listen};
use crate::signals::Signals;
use crate::{
    BitsPerSecond, Emulation, Error, Guarded, Lab, LabOptions, LinkSpec, Namespace, Nanos, Result,
    Role, Topology,
};
use capture::Capture;
use client::ClientConfig;
pub use cost::Cost;
use cross::Cross;
pub use pace::Think;
pub(super) use random::{exponential, generator, normal};
pub(super) use truth::monotonic_ns;

/// In what pattern a connection sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A document, then what it names, then what that names.
    Page,
    /// As many as may be outstanding, then all their answers, then the next batch.
    Batch,
    /// As many as may be outstanding, and one more for each answer. It knows neither rate nor think time.
    Window,
}

/// What is asked of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Objects of the web, from a server of our own.
    Web {
        /// Pattern of the requests.
        mode: Mode,
        /// What the server does with the requests of a connection.
        discipline: Discipline,
        /// How long each takes it.
        service: ServiceModel,
    },
    /// Reads and writes of values, from memcached.
    Memcached {
        /// Pattern of the requests. They have no order of pages: `Page` is rounds of 64 requests.
        mode: Mode,
    },
}

impl Kind {
    fn port(self) -> u16 {
        match self {
            Self::Web { .. } => 80,
            Self::Memcached { .. } => 11211,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Web { .. } => "web",
            Self::Memcached { .. } => "memcached",
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Web { mode, .. } | Self::Memcached { mode } => mode,
        }
    }

    fn dialect(self, depth: usize, seed: u64, connection: u64) -> Box<dyn Dialect> {
        match self {
            Self::Web { mode, .. } => Box::new(Web::new(mode, depth, seed, connection)),
            Self::Memcached { mode } => Box::new(Memcached::new(mode, depth, seed, connection)),
        }
    }
}

/// A request that a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) class: &'static str,
    pub(super) bytes: u64,
    /// Where in its round the request is whose answer must have come before. It stands before this one.
    pub(super) parent: Option<usize>,
}

/// What a connection asks, and how that is said.
pub(super) trait Dialect: Send {
    /// The requests of the next round.
    fn round(&mut self) -> Vec<Task>;
    /// Appends the request of a task.
    fn request(&mut self, task: &Task, id: u64, out: &mut Vec<u8>);
    /// Takes what has been read, and adds the length of each answer that it completes; None where an answer does not
    /// tell it.
    fn answers(&mut self, bytes: &[u8], done: &mut Vec<Option<u64>>) -> Result<()>;
}

/// What load to make.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The dwell executable, or another that runs [`run_part`]: server and client are processes of it.
    pub exe: PathBuf,
    /// What is asked of whom.
    pub kind: Kind,
    /// Requests of a connection that may be outstanding.
    pub depth: usize,
    /// Threads of the client.
    pub threads: usize,
    /// Connections.
    pub connections: usize,
    /// Requests a second of all connections; as many as it goes if absent.
    pub rate: Option<f64>,
    /// Pause between rounds.
    pub think: Think,
    /// Whether requests that may go at the same time go in one write.
    pub coalesce: bool,
    /// For how long requests are sent.
    pub duration: Duration,
    /// Seed of all that is random.
    pub seed: u64,
    /// The network.
    pub topology: Topology,
    /// Other traffic each way between client and server.
    pub cross: Option<BitsPerSecond>,
    /// File for the truth log.
    pub truth: Option<PathBuf>,
    /// File for the capture.
    pub pcap: Option<PathBuf>,
}

/// What came of it, as the client measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests, all of them answered.
    pub requests: u64,
    /// Of all answers.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub lasted_ns: Nanos,
    /// Median latency of a request.
    pub p50_ns: Option<Nanos>,
    /// 95th percentile.
    pub p95_ns: Option<Nanos>,
    /// About the capture, if there was one.
    pub capture: Option<CaptureReport>,
}

/// How the capture went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// Packets that tcpdump missed.
    pub missed: u64,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from(self.lasted_ns).as_secs_f64();
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let time = |time: Option<Nanos>| time.map_or("-".to_owned(), |time| time.to_string());
        writeln!(
            f,
            "{} requests in {seconds:.1} s, {:.0} a second, {:.1} Mbit/s of answers",
            self.requests,
            rate(self.requests as f64),
            rate(self.bytes as f64 * 8e-6),
        )?;
        write!(
            f,
            "latency: median {}, 95th percentile {}",
            time(self.p50_ns),
            time(self.p95_ns)
        )?;
        if let Some(CaptureReport { missed: 1.. }) = self.capture {
            let missed = self.capture.map_or(0, |capture| capture.missed);
            write!(f, "\ncapture: {missed} packets missed")?;
        }
        Ok(())
    }
}

/// Makes a triangle, runs the load in it, and removes it; on SIGINT and SIGTERM too, which give
/// [`Error::Interrupted`].
pub fn load(options: &LoadOptions) -> Result<LoadReport> {
    let signals = Signals::watch()?;
    let (report, ()) = load_observed(options, &signals, |_| Ok(()), |()| Ok(()))?;
    Ok(report)
}

/// The same with something that observes: started before the client, finished after it, while the triangle is there.
fn load_observed<T, Seen>(
    options: &LoadOptions,
    signals: &Signals,
    start: impl FnOnce(&Lab) -> Result<T>,
    finish: impl FnOnce(T) -> Result<Seen>,
) -> Result<(LoadReport, Seen)> {
    let lab = Lab::start(&LabOptions {
        name: "load".to_owned(),
        topology: options.topology.clone(),
        emulation: emulation(&options.topology, &options.exe),
    })?;
    let server = SocketAddr::from((Lab::address_v4(Role::Server), options.kind.port()));
    let _server = start_server(lab.server(), server, options)?;
    let capture = options.pcap.as_deref();
    let capture = capture
        .map(|file| Capture::at_vantage(lab.vantage(), file))
        .transpose()?;
    let observer = start(&lab)?;
    let cross = options.cross;
    let _cross = cross
        .map(|rate| Cross::start(&lab, rate, options.seed))
        .transpose()?;
    let client = Part::Client(client_config(server, options));
    let said = collect(
        lab.client(),
        options.exe.as_os_str(),
        &client.arguments()?,
        &signals.stop,
    )?;
    let mut report: LoadReport = from_json("report of the client", &said)?;
    if let Some(capture) = capture {
        let missed = capture.finish(signals)?;
        report.capture = Some(CaptureReport { missed });
    }
    let seen = finish(observer)?;
    check_that_answers_went_around(lab.vantage(), report.requests)?;
    Ok((report, seen))
}

/// Nobody, where all links are perfect: then packets do not leave the kernel's own path.
fn emulation(topology: &Topology, exe: &Path) -> Emulation {
    let is_perfect = |link: &LinkSpec| {
        let seed = link.seed;
        *link
            == LinkSpec {
                seed,
                ..LinkSpec::default()
            }
    };
    match topology {
        Topology::Triangle {
            client_to_vantage,
            vantage_to_server,
            server_to_client,
        } if [client_to_vantage, vantage_to_server, server_to_client]
            .into_iter()
            .all(is_perfect) =>
        {
            Emulation::None
        }
        _ => Emulation::Process(exe.to_owned()),
    }
}

fn start_server(
    namespace: &Namespace,
    address: SocketAddr,
    options: &LoadOptions,
) -> Result<Guarded> {
    let (discipline, service) = match options.kind {
        Kind::Web {
            discipline,
            service,
            ..
        } => (discipline, service),
        Kind::Memcached { .. } => return memcached::start(namespace, address),
    };
    let part = Part::WebServer(ServerConfig {
        address,
        discipline,
        service,
        seed: options.seed,
    });
    let arguments = part.arguments()?;
    let configure = |command: &mut std::process::Command| {
        command.args(arguments);
    };
    listen(
        namespace,
        options.exe.as_os_str(),
        configure,
        "tcp",
        address.port(),
    )
}

fn client_config(server: SocketAddr, options: &LoadOptions) -> ClientConfig {
    ClientConfig {
        server,
        kind: options.kind,
        depth: options.depth,
        threads: options.threads,
        connections: options.connections,
        rate: options.rate,
        think: options.think,
        coalesce: options.coalesce,
        duration: options.duration,
        seed: options.seed,
        truth: options.truth.clone(),
    }
}

/// An answer is a packet at least. What a host says of itself on a new wire (MLD) are a few.
fn check_that_answers_went_around(vantage: &Namespace, requests: u64) -> Result<()> {
    let table = vantage.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
    let table = table.map_err(Error::io("read the vantage point's interfaces"))?;
    match received_packets(&table, "server0") {
        Some(packets) if packets == 0 || packets < requests => Ok(()),
        Some(packets) => Err(Error::invalid(
            "load",
            format!("{packets} packets from the server passed the vantage point"),
        )),
        None => Err(Error::invalid("the vantage point's interfaces", table)),
    }
}

/// From the kernel's table of interfaces: name, then bytes and packets received.
fn received_packets(table: &str, interface: &str) -> Option<u64> {
    let counters = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    counters.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a process of a load is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    WebServer(ServerConfig),
    Client(ClientConfig),
}

impl Part {
    fn arguments(&self) -> Result<Vec<String>> {
        let json =
            serde_json::to_string(self).map_err(|why| Error::invalid("part of a load", why))?;
        Ok(["lab", "load-part", "--config", &json]
            .map(str::to_owned)
            .to_vec())
    }
}

/// A server or client of a load, as the process that is one gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartConfig(Part);

impl FromStr for PartConfig {
    type Err = Error;
    fn from_str(json: &str) -> Result<Self> {
        from_json("part of a load", json).map(Self)
    }
}

/// The whole of the process `dwell lab load-part`. A client gives its report, as JSON; a server runs until it is
/// killed.
pub fn run_part(config: &PartConfig) -> Result<String> {
    match &config.0 {
        Part::WebServer(config) => web::serve(config).map(|()| String::new()),
        Part::Client(config) => {
            let report = client::run(config)?;
            serde_json::to_string(&report)
                .map_err(|why| Error::invalid("report of the client", why))
        }
    }
}

fn from_json<T: DeserializeOwned>(what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|why| Error::invalid(what, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_links_are_not_emulated_whatever_their_seed() {
        let triangle = |client_to_vantage| Topology::Triangle {
            client_to_vantage,
            vantage_to_server: LinkSpec::default(),
            server_to_client: LinkSpec::default(),
        };
        let seeded = LinkSpec {
            seed: 7,
            ..LinkSpec::default()
        };
        let exe = Path::new("/dwell");
        assert_eq!(emulation(&triangle(seeded), exe), Emulation::None);
        let delayed = triangle(LinkSpec::delay(Nanos(1)));
        assert_eq!(emulation(&delayed, exe), Emulation::Process(exe.to_owned()));
    }

    #[test]
    fn received_packets_are_the_second_column() {
        let table =
            "Inter-|   Receive\n face |bytes packets\n  client0: 900 7 0 0\nserver0:5 3 1 1\n";
        assert_eq!(received_packets(table, "client0"), Some(7));
        assert_eq!(received_packets(table, "server0"), Some(3));
        assert_eq!(received_packets(table, "server"), None);
    }
}
