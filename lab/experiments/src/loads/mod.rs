//! Loads whose clients know the truth: requests that pass the vantage point of a triangle while their answers go
//! around it, a capture of what passes, and a log of when each request was sent and answered.

mod agenda;
pub(crate) mod capture;
mod client;
mod connection;
pub(crate) mod cost;
mod cross;
mod http3;
mod memcached;
mod pace;
/// A QUIC client and server that spin, whose client knows the round trips.
pub mod quic;
pub(crate) mod random;
pub mod report;
mod stage;
pub mod third_party;
pub(crate) mod truth;
mod tunnel;
pub(crate) mod verb;
pub(crate) mod watch;
pub mod web;

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::ValueEnum;
use client::ClientConfig;
use dwell_testbed::{
    Error, Guarded, Lab, Nanos, Result,
    signals::Signals,
    workload::{collect, listen},
};
use http3::Trust;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stage::{Stage, StageOptions};

use self::{
    memcached::Memcached,
    web::{Discipline, Limit, ServerConfig, ServiceModel, Web},
};
use crate::Programs;

pub use cost::Cost;
pub use pace::Think;
pub use stage::Network;
pub use tunnel::Tunnel;

pub(super) use random::{exponential, generator, normal};

/// In what pattern a connection sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A document, then what it names, then what that names
    Page,
    /// As many as may be outstanding, then all their answers, then the next batch
    Batch,
    /// As many as may be outstanding, and one more for each answer; without rate and think time
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
    /// Objects of the web over HTTP/3, from a server of our own, which works on all requests at the same time.
    Http3 {
        /// Pattern of the requests.
        mode: Mode,
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
            Self::Http3 { .. } => 443,
            Self::Memcached { .. } => 11211,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Web { .. } => "web",
            Self::Http3 { .. } => "http3",
            Self::Memcached { .. } => "memcached",
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Web { mode, .. } | Self::Http3 { mode, .. } | Self::Memcached { mode } => mode,
        }
    }

    /// How long requests take a server of our own.
    fn service(self) -> Option<ServiceModel> {
        match self {
            Self::Web { service, .. } | Self::Http3 { service, .. } => Some(service),
            Self::Memcached { .. } => None,
        }
    }

    fn dialect(self, depth: usize, seed: u64, connection: u64) -> Box<dyn Dialect> {
        match self {
            // HTTP/3 asks for the same, and says it in its own way.
            Self::Web { mode, .. } | Self::Http3 { mode, .. } => Box::new(Web::new(mode, depth, seed, connection)),
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
    pub programs: Programs,
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
    /// Random seed.
    pub seed: u64,
    /// What lies between client and server.
    pub network: Network,
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
            "{} requests in {seconds:.1} s, {:.0} per second, {:.1} Mbit/s of answers",
            self.requests,
            rate(self.requests as f64),
            rate(self.bytes as f64 * 8e-6),
        )?;
        write!(f, "latency: median {}, 95th percentile {}", time(self.p50_ns), time(self.p95_ns))?;
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

/// Runs a load with an observer, which starts before the client and finishes after it, while the network still exists.
fn load_observed<T, Observed>(
    options: &LoadOptions,
    signals: &Signals,
    start: impl FnOnce(&Lab) -> Result<T>,
    finish: impl FnOnce(T) -> Result<Observed>,
) -> Result<(LoadReport, Observed)> {
    let stage = Stage::start(
        signals,
        StageOptions {
            lab: &options.programs.lab,
            network: &options.network,
            seed: options.seed,
            pcap: options.pcap.as_deref(),
        },
    )?;
    let server = SocketAddr::from((stage.server(), options.kind.port()));
    let config = client_config(server, options);
    let is_limited = options.kind.service() == Some(ServiceModel::Limited);
    let limit = is_limited.then(|| Limit::start(options.seed)).transpose()?;
    let server_config = |discipline, service| ServerConfig {
        address: server,
        discipline,
        service,
        seed: options.seed,
        group: limit.as_ref().map(|limit| limit.group.clone()),
    };
    let (_server, client) = match options.kind {
        Kind::Web { discipline, service, .. } => {
            let part = Part::WebServer(server_config(discipline, service));
            (start_server(&stage, &part, server, "tcp", options)?, Part::Client(config))
        }
        Kind::Http3 { service, .. } => {
            let trust = Trust::new()?;
            let at_once = server_config(Discipline::Concurrent, service);
            let part = Part::Http3Server(trust.server(at_once));
            (start_server(&stage, &part, server, "udp", options)?, Part::Http3Client(trust.client(config)))
        }
        Kind::Memcached { .. } => (memcached::start(stage.lab.server(), server)?, Part::Client(config)),
    };
    let watchers = stage.watch()?;
    let observer = start(&stage.lab)?;
    let said = collect(stage.lab.client(), options.programs.lab.as_os_str(), &client.arguments()?, &signals.stop)?;
    let mut report: LoadReport = from_json("report of the client", &said)?;
    report.capture = stage.finish(watchers)?;
    let seen = finish(observer)?;
    stage.check_that_answers_went_around(report.requests)?;
    Ok((report, seen))
}

/// A server of our own, a process of this executable.
fn start_server(
    stage: &Stage<'_>,
    part: &Part,
    address: SocketAddr,
    table: &'static str,
    options: &LoadOptions,
) -> Result<Guarded> {
    let arguments = part.arguments()?;
    let configure = |command: &mut std::process::Command| {
        command.args(arguments);
    };
    let (namespace, program) = (stage.lab.server(), options.programs.lab.as_os_str());
    listen(namespace, program, configure, table, address.port())
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

/// What a process of a load is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    WebServer(ServerConfig),
    Http3Server(http3::ServerPart),
    Client(ClientConfig),
    Http3Client(http3::ClientPart),
}

impl Part {
    fn arguments(&self) -> Result<Vec<String>> {
        let json = serde_json::to_string(self).map_err(|why| Error::invalid("part of a load", why))?;
        Ok(["load-part", "--config", &json].map(str::to_owned).to_vec())
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

/// The whole of the process `dwell-lab load-part`. A client gives its report, as JSON; a server runs until it is
/// killed.
pub fn run_part(config: &PartConfig) -> Result<String> {
    let told =
        |report: LoadReport| serde_json::to_string(&report).map_err(|why| Error::invalid("report of the client", why));
    match &config.0 {
        Part::WebServer(config) => web::serve(config).map(|()| String::new()),
        Part::Http3Server(part) => http3::serve(part.clone()).map(|()| String::new()),
        Part::Client(config) => client::run(config).and_then(told),
        Part::Http3Client(part) => http3::run(part).and_then(told),
    }
}

fn from_json<T: DeserializeOwned>(what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|why| Error::invalid(what, why))
}
