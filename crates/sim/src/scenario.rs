//! Scenarios: what to simulate, read from a TOML file.

use std::{
    collections::HashSet,
    fmt::{self, Debug},
    fs,
    hash::Hash,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_app::args::duration;
use dwell_engine::steer::{
    HeavyShare, OutOfRange,
    zero_rtt::{HeavyConfig, MOST_SERVERS, OverloadConfig},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use crate::Policy;

/// What to simulate. Each key has a default, the value of the paper's synthetic trace where it gives one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Random seed of the first run. Each further run adds 1.
    pub seed: u64,
    /// Number of runs per policy and number of servers.
    pub runs: u32,
    /// Policies to compare.
    pub policies: Vec<Policy>,
    /// Numbers of servers to try.
    pub servers: Vec<usize>,
    /// If set, load is proportional to the number of servers, and that of the trace with this number.
    pub load_of_servers: Option<usize>,
    /// Maximum number of packets of a connection that counts as short.
    pub short: u32,
    /// Time between samples of load and imbalance, and length of the intervals over which busy time is counted.
    #[serde(deserialize_with = "time")]
    pub interval: Duration,
    /// The connections.
    pub trace: TraceConfig,
    /// The network between clients and balancer.
    pub network: Network,
    /// The servers, which are all alike.
    pub server: Server,
    /// Parameters of the policy `zero-rtt`.
    pub zero_rtt: ZeroRtt,
}

/// The source of connections.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum TraceConfig {
    /// Random connections: starts by a Poisson process, lengths by a Zipf distribution.
    Synthetic {
        /// Number of clients.
        #[serde(default = "clients")]
        clients: u32,
        /// Number of connections.
        #[serde(default = "connections")]
        connections: u64,
        /// Mean time between packets of all connections.
        #[serde(default = "packet_gap", deserialize_with = "time")]
        packet_gap: Duration,
        /// Mean time between packets of a connection.
        #[serde(default = "connection_gap", deserialize_with = "time")]
        connection_gap: Duration,
        /// Exponent of the Zipf distribution of connection lengths: the share of length n is proportional to n to the power
        /// of minus this.
        #[serde(default = "length_skew")]
        length_skew: f64,
        /// Number of packets of the longest possible connection.
        #[serde(default = "longest")]
        longest: u32,
        /// Skew of the Zipf distribution of clients. With 0 all clients are equally likely.
        #[serde(default)]
        client_skew: f64,
        /// Share of short connections. Without it, the lengths determine the share.
        #[serde(default)]
        short_part: Option<f64>,
        /// Whether all connections of a client have the same length, drawn once per run.
        #[serde(default)]
        same_length: bool,
    },
    /// Connections from a CSV file with the columns start in seconds, client, packets, bytes.
    Csv {
        /// The file.
        path: PathBuf,
        /// Mean time between packets of a connection.
        #[serde(default = "connection_gap", deserialize_with = "time")]
        connection_gap: Duration,
    },
    /// Connections to a port in a packet capture.
    Capture {
        /// The file.
        path: PathBuf,
        /// Port of the servers.
        #[serde(default = "port")]
        port: u16,
    },
}

/// Number of packets of the longest connection that a synthetic trace may have. With the paper's distribution, fewer than
/// one of 100 traces has a longer one.
const LONGEST_CONNECTION: u32 = 1 << 20;

fn clients() -> u32 {
    9_505
}
fn connections() -> u64 {
    100_629
}
fn packet_gap() -> Duration {
    Duration::from_micros(200)
}
fn connection_gap() -> Duration {
    Duration::from_millis(10)
}
fn length_skew() -> f64 {
    2.2
}
fn longest() -> u32 {
    LONGEST_CONNECTION
}
fn port() -> u16 {
    443
}

/// A time as in all of dwell's files and options: "200us", "1s", "0".
struct Time(Duration);

impl<'a> Deserialize<'a> for Time {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Time, D::Error> {
        struct InQuotes;
        impl Visitor<'_> for InQuotes {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in quotes, as in \"5ms\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                duration(text).map(Time).map_err(E::custom)
            }
        }
        from.deserialize_str(InQuotes)
    }
}

fn time<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
    Ok(Time::deserialize(from)?.0)
}

fn times<'a, D: Deserializer<'a>>(from: D) -> Result<[Duration; 2], D::Error> {
    let [low, high] = <[Time; 2]>::deserialize(from)?;
    Ok([low.0, high.0])
}

impl TraceConfig {
    /// The paper's synthetic trace.
    pub fn paper() -> TraceConfig {
        TraceConfig::Synthetic {
            clients: clients(),
            connections: connections(),
            packet_gap: packet_gap(),
            connection_gap: connection_gap(),
            length_skew: length_skew(),
            longest: longest(),
            client_skew: 0.0,
            short_part: None,
            same_length: false,
        }
    }

    /// A trace with as many clients, connections and short connections as the paper's trace of DNS over HTTPS.
    pub fn doh() -> TraceConfig {
        TraceConfig::Synthetic {
            clients: 2_910,
            connections: 45_776,
            packet_gap: packet_gap(),
            connection_gap: connection_gap(),
            length_skew: length_skew(),
            longest: longest(),
            client_skew: 0.8,
            short_part: Some(0.39),
            same_length: false,
        }
    }
}

/// The network between clients and balancer. Balancer and servers are at the same place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Range of clients' one-way latencies, uniformly distributed.
    #[serde(deserialize_with = "times")]
    pub one_way: [Duration; 2],
    /// Round trips before the first request of a TCP connection: 2 with TLS 1.3.
    pub tcp_round_trips: u32,
    /// Whether clients close at the last answer. On a short connection with 0-RTT, it arrives before the tickets.
    pub closes_early: bool,
}

impl Default for Network {
    fn default() -> Network {
        Network { one_way: [1, 40].map(Duration::from_millis), tcp_round_trips: 2, closes_early: false }
    }
}

/// A server with one queue and one worker.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Range of the service times of packets, uniformly distributed.
    #[serde(deserialize_with = "times")]
    pub service: [Duration; 2],
    /// Additional service time per byte, if the trace has bytes.
    pub byte_ns: f64,
    /// Service time of a handshake without 0-RTT.
    #[serde(deserialize_with = "time")]
    pub handshake: Duration,
    /// Number of requests over which the waiting time is estimated.
    pub window: usize,
    /// Number of tickets per connection.
    pub tickets: u32,
    /// Time after which a connection gets a new ID with a new load report; 0 for never.
    #[serde(deserialize_with = "time")]
    pub restamp: Duration,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            service: [0, 5].map(Duration::from_millis),
            byte_ns: 0.0,
            handshake: Duration::ZERO,
            window: 100,
            tickets: 2,
            restamp: Duration::ZERO,
        }
    }
}

/// Where a client must be heavy to count as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeavyScope {
    /// At its own server.
    Own,
    /// At any server.
    Any,
}

/// Parameters of the policy `zero-rtt`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZeroRtt {
    /// Number of heavy connections per server.
    pub heavy_most: u32,
    /// Share of a server's packets: as few of the heavy connections count as together have this share. With 0 all count.
    pub heavy_share: f64,
    /// Number of packets in half of the window in which connections are heavy.
    pub heavy_interval: u32,
    /// Where clients must be heavy to count as such.
    pub heavy: HeavyScope,
    /// Percentile of waiting times above which a server may be overloaded; 0 to 1.
    pub percentile: f64,
    /// Minimum gain of a detour, as a multiple of the mean round-trip time.
    pub alpha: f64,
    /// Time after which a load report expires; 0 for never.
    #[serde(deserialize_with = "time")]
    pub load_lifetime: Duration,
}

impl Default for ZeroRtt {
    fn default() -> ZeroRtt {
        let heavy = HeavyConfig::default();
        ZeroRtt {
            heavy_most: heavy.most,
            heavy_share: 0.0,
            heavy_interval: heavy.interval,
            heavy: HeavyScope::Own,
            percentile: 0.8,
            alpha: 1.0,
            load_lifetime: Duration::from_secs(10),
        }
    }
}

impl ZeroRtt {
    pub(crate) fn heavy(&self) -> HeavyConfig {
        HeavyConfig { most: self.heavy_most, interval: self.heavy_interval, ..HeavyConfig::default() }
    }

    pub(crate) fn share(&self) -> Result<Option<HeavyShare>, OutOfRange> {
        let is_set = self.heavy_share > 0.0;
        is_set.then(|| HeavyShare::new(self.heavy_share, self.heavy_most)).transpose()
    }

    pub(crate) fn overload(&self, mean_rtt: Duration) -> OverloadConfig {
        OverloadConfig {
            percentile: self.percentile,
            margin: mean_rtt.mul_f64(self.alpha),
            stale: Some(self.load_lifetime).filter(|lifetime| !lifetime.is_zero()),
            ..OverloadConfig::default()
        }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            seed: 1,
            runs: 1,
            policies: vec![Policy::ZeroRtt, Policy::LeastLoaded],
            servers: vec![64],
            load_of_servers: None,
            short: 5,
            interval: Duration::from_secs(1),
            trace: TraceConfig::paper(),
            network: Network::default(),
            server: Server::default(),
            zero_rtt: ZeroRtt::default(),
        }
    }
}

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario '{}': {source}; name a TOML file, as in examples/sim.toml", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not valid TOML, or it has unknown keys.
    #[error("the scenario '{}' is not valid: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The error with its position.
        source: Box<toml::de::Error>,
    },
    /// A value is out of its range.
    #[error("the scenario's {key} is {value}; it may be {range}")]
    Range {
        /// The key, as in the file.
        key: &'static str,
        /// The value.
        value: String,
        /// The valid range, in words.
        range: &'static str,
    },
}

impl Scenario {
    /// Reads a scenario from a file. Paths in it are relative to the folder of this file.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`], if the file cannot be read or is not valid.
    pub fn read(path: &Path) -> Result<Scenario, ScenarioError> {
        let text = fs::read_to_string(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let mut scenario = Scenario::from_toml(&text, path)?;
        if let TraceConfig::Csv { path: file, .. } | TraceConfig::Capture { path: file, .. } = &mut scenario.trace
            && let Some(folder) = path.parent()
        {
            *file = folder.join(&file);
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// Parses a scenario from a text.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`], if the text is not valid.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::from_toml(text, Path::new("-"))?;
        scenario.check()?;
        Ok(scenario)
    }

    fn from_toml(text: &str, path: &Path) -> Result<Scenario, ScenarioError> {
        toml::from_str(text).map_err(|source| ScenarioError::Toml { path: path.to_owned(), source: Box::new(source) })
    }

    /// Mean round-trip time of clients.
    pub fn mean_rtt(&self) -> Duration {
        self.network.one_way[0] + self.network.one_way[1]
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Range`] for the first value that is out of its range.
    pub fn check(&self) -> Result<(), ScenarioError> {
        fn require<T: Debug>(
            key: &'static str,
            value: T,
            is_valid: bool,
            range: &'static str,
        ) -> Result<(), ScenarioError> {
            let value = || format!("{value:?}");
            is_valid.then_some(()).ok_or_else(|| ScenarioError::Range { key, value: value(), range })
        }
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let pair = |pair: [Duration; 2]| (pair[0]..=minute).contains(&pair[1]);
        let has_servers =
            |servers: &[usize]| !servers.is_empty() && servers.iter().all(|n| (1..=MOST_SERVERS).contains(n));
        require("runs", self.runs, (1..=10_000).contains(&self.runs), "1 to 10000")?;
        let are_policies = !self.policies.is_empty() && are_different(&self.policies);
        require("policies", &self.policies, are_policies, "one at least, and each once")?;
        let are_servers = has_servers(&self.servers) && are_different(&self.servers);
        require("servers", &self.servers, are_servers, "numbers of 1 to 1024, and each once")?;
        let of = self.load_of_servers.unwrap_or(1);
        require("load_of_servers", of, has_servers(&[of]), "1 to 1024")?;
        let interval = self.interval;
        require("interval", interval, (Duration::from_millis(1)..=hour).contains(&interval), "1ms to 1h")?;
        let one_way = self.network.one_way;
        require("network.one_way", one_way, pair(one_way), "two times, the lesser first, up to 1m")?;
        let round_trips = self.network.tcp_round_trips;
        require("network.tcp_round_trips", round_trips, (1..=10).contains(&round_trips), "1 to 10")?;
        let server = &self.server;
        require("server.service", server.service, pair(server.service), "two times, the lesser first, up to 1m")?;
        require("server.byte_ns", server.byte_ns, (0.0..=1e6).contains(&server.byte_ns), "0 to 1000000")?;
        require("server.handshake", server.handshake, server.handshake <= minute, "0 to 1m")?;
        require("server.window", server.window, (2..=100_000).contains(&server.window), "2 to 100000")?;
        require("server.tickets", server.tickets, server.tickets <= 8, "0 to 8")?;
        require("server.restamp", server.restamp, server.restamp <= hour, "0 to 1h")?;
        let zero = &self.zero_rtt;
        let with = |change: fn(&mut HeavyConfig, &HeavyConfig)| {
            let mut config = HeavyConfig::default();
            change(&mut config, &zero.heavy());
            config.check().is_ok()
        };
        let (is_most, is_interval) =
            (with(|new, own| new.most = own.most), with(|new, own| new.interval = own.interval));
        require("zero_rtt.heavy_most", zero.heavy_most, is_most, "1 to 32")?;
        require("zero_rtt.heavy_interval", zero.heavy_interval, is_interval, "16 to 2^30")?;
        require("zero_rtt.heavy_share", zero.heavy_share, (0.0..=1.0).contains(&zero.heavy_share), "0 to 1")?;
        require("zero_rtt.percentile", zero.percentile, (0.0..=1.0).contains(&zero.percentile), "0 to 1")?;
        let (longest_ns, margins) = (self.mean_rtt().as_nanos() as f64 * zero.alpha, OverloadConfig::MARGIN);
        let is_margin = (0.0..=1000.0).contains(&zero.alpha) && longest_ns <= margins.end().as_nanos() as f64;
        require("zero_rtt.alpha", zero.alpha, is_margin, "0 to 1000, and times the mean round trip up to 1h")?;
        let lifetime = zero.load_lifetime;
        let is_lifetime = lifetime.is_zero() || OverloadConfig::STALE.contains(&lifetime);
        require("zero_rtt.load_lifetime", lifetime, is_lifetime, "0, or 1s to 24h")?;
        self.trace.check(
            |key, value, is_valid, range| require(key, value, is_valid, range),
            |key, gap| require(key, gap, !gap.is_zero() && gap <= minute, "above 0, up to 1m"),
        )
    }
}

fn are_different<T: Eq + Hash>(values: &[T]) -> bool {
    values.iter().collect::<HashSet<_>>().len() == values.len()
}

impl TraceConfig {
    fn check(
        &self,
        require: impl Fn(&'static str, &dyn Debug, bool, &'static str) -> Result<(), ScenarioError>,
        gap: impl Fn(&'static str, Duration) -> Result<(), ScenarioError>,
    ) -> Result<(), ScenarioError> {
        match self {
            TraceConfig::Synthetic {
                clients,
                connections,
                packet_gap,
                connection_gap,
                length_skew,
                longest,
                client_skew,
                short_part,
                same_length: _,
            } => {
                let most = 1 << 24;
                require("trace.clients", clients, (1..=most).contains(clients), "1 to 2^24")?;
                require("trace.connections", connections, (1..=1 << 32).contains(connections), "1 to 2^32")?;
                gap("trace.packet_gap", *packet_gap)?;
                gap("trace.connection_gap", *connection_gap)?;
                let is_skew = |skew: &f64| (0.0..=10.0).contains(skew);
                require("trace.length_skew", length_skew, is_skew(length_skew), "0 to 10")?;
                require("trace.longest", longest, (1..=LONGEST_CONNECTION).contains(longest), "1 to 2^20")?;
                require("trace.client_skew", client_skew, is_skew(client_skew), "0 to 10")?;
                let part = short_part.unwrap_or(0.0);
                require("trace.short_part", &part, (0.0..=1.0).contains(&part), "0 to 1")
            }
            TraceConfig::Csv { connection_gap, .. } => gap("trace.connection_gap", *connection_gap),
            TraceConfig::Capture { port, .. } => require("trace.port", port, *port > 0, "1 to 65535"),
        }
    }
}
