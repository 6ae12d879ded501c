//! What to simulate: a TOML file, or the paper's.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_engine::steer::{
    HeavyShare, OutOfRange,
    zero_rtt::{HeavyConfig, MOST_SERVERS, OverloadConfig},
};
use serde::{Deserialize, Serialize};

use crate::Policy;

/// What to simulate. `docs/guide/sim.md` tells what the keys mean; each has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Of the first run; the next has one more.
    pub seed: u64,
    /// Runs of each policy and number of servers.
    pub runs: u32,
    /// What to compare.
    pub policies: Vec<Policy>,
    /// Numbers of servers to try.
    pub servers: Vec<usize>,
    /// If there, load is in proportion to servers, and as the trace has it with so many.
    pub load_of_servers: Option<usize>,
    /// Connections of at most so many packets are short.
    pub short: u32,
    /// Load and imbalance are of intervals as long as this.
    pub interval_ms: f64,
    /// Who connects when.
    pub trace: TraceConfig,
    /// Between clients and balancer.
    pub network: Network,
    /// All servers are alike.
    pub server: Server,
    /// Of the policy `zero-rtt`.
    pub zero_rtt: ZeroRtt,
}

/// Who connects when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum TraceConfig {
    /// Made up.
    Synthetic {
        /// Who may connect.
        #[serde(default = "clients")]
        clients: u32,
        /// In all.
        #[serde(default = "connections")]
        connections: u64,
        /// Mean time between packets of all connections.
        #[serde(default = "packet_gap_ms")]
        packet_gap_ms: f64,
        /// Mean time between packets of a connection.
        #[serde(default = "connection_gap_ms")]
        connection_gap_ms: f64,
        /// Of the Zipf distribution of connections' lengths.
        #[serde(default = "length_skew")]
        length_skew: f64,
        /// Packets of the longest connection.
        #[serde(default = "longest")]
        longest: u32,
        /// Of the Zipf distribution of clients; 0: all alike.
        #[serde(default)]
        client_skew: f64,
        /// The part of connections that are short; as many as the lengths make, if it is not there.
        #[serde(default)]
        short_part: Option<f64>,
    },
    /// A file of flows: start in seconds, client, packets, bytes.
    Csv {
        /// Where it is.
        path: PathBuf,
        /// Mean time between packets of a connection.
        #[serde(default = "connection_gap_ms")]
        connection_gap_ms: f64,
    },
    /// Packets to a port in a capture.
    Capture {
        /// Where it is.
        path: PathBuf,
        /// Of the servers.
        #[serde(default = "port")]
        port: u16,
    },
}

fn clients() -> u32 {
    9_505
}
fn connections() -> u64 {
    100_629
}
fn packet_gap_ms() -> f64 {
    0.2
}
fn connection_gap_ms() -> f64 {
    10.0
}
fn length_skew() -> f64 {
    1.2
}
fn longest() -> u32 {
    100
}
fn port() -> u16 {
    443
}

impl TraceConfig {
    /// The paper's synthetic trace.
    pub fn paper() -> TraceConfig {
        TraceConfig::Synthetic {
            clients: clients(),
            connections: connections(),
            packet_gap_ms: packet_gap_ms(),
            connection_gap_ms: connection_gap_ms(),
            length_skew: length_skew(),
            longest: longest(),
            client_skew: 0.0,
            short_part: None,
        }
    }

    /// One like the paper's of DNS over HTTPS: as many clients, connections, and short ones.
    pub fn doh() -> TraceConfig {
        TraceConfig::Synthetic {
            clients: 2_910,
            connections: 45_776,
            packet_gap_ms: packet_gap_ms(),
            connection_gap_ms: connection_gap_ms(),
            length_skew: length_skew(),
            longest: longest(),
            client_skew: 0.8,
            short_part: Some(0.37),
        }
    }
}

/// Between clients and balancer; servers are beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// From, to: uniform, one way, of a client.
    pub trip_ms: [f64; 2],
    /// Before the first request of a TCP connection: 2 with TLS 1.3.
    pub tcp_round_trips: u32,
    /// Clients close at the last answer, which comes before the tickets if a connection with 0-RTT is short.
    pub closes_early: bool,
}

impl Default for Network {
    fn default() -> Network {
        Network { trip_ms: [1.0, 40.0], tcp_round_trips: 2, closes_early: false }
    }
}

/// A server: one queue, one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// From, to: uniform, of a packet.
    pub service_ms: [f64; 2],
    /// And for each byte so many nanoseconds, where the trace has bytes.
    pub byte_ns: f64,
    /// What a handshake without 0-RTT takes.
    pub handshake_ms: f64,
    /// Requests of which the estimate of the waiting time is.
    pub window: usize,
    /// Tickets a connection.
    pub tickets: u32,
    /// A connection's ID is made anew after so long; 0: never.
    pub restamp_ms: f64,
}

impl Default for Server {
    fn default() -> Server {
        Server { service_ms: [0.0, 5.0], byte_ns: 0.0, handshake_ms: 0.0, window: 100, tickets: 2, restamp_ms: 0.0 }
    }
}

/// Of the policy `zero-rtt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZeroRtt {
    /// Heavy connections of a server.
    pub heavy: u32,
    /// As few of those as have this part of a server's packets; 0: all of them.
    pub heavy_share: f64,
    /// Packets in half of the window in which they are heavy.
    pub heavy_interval: u32,
    /// Heavy at any server counts, and not only at the client's own.
    pub heavy_any: bool,
    /// Of waiting times, above which a server may be overloaded; 0 to 1.
    pub percentile: f64,
    /// So many mean round-trip times a detour must gain.
    pub alpha: f64,
    /// After so many seconds without news nothing is known of a server; 0: never.
    pub stale_s: u32,
}

impl Default for ZeroRtt {
    fn default() -> ZeroRtt {
        let heavy = HeavyConfig::default();
        ZeroRtt {
            heavy: heavy.most,
            heavy_share: 0.0,
            heavy_interval: heavy.interval,
            heavy_any: false,
            percentile: 0.8,
            alpha: 1.0,
            stale_s: 10,
        }
    }
}

impl ZeroRtt {
    pub(crate) fn heavy(&self) -> HeavyConfig {
        HeavyConfig { most: self.heavy, interval: self.heavy_interval, ..HeavyConfig::default() }
    }

    pub(crate) fn share(&self) -> Result<Option<HeavyShare>, OutOfRange> {
        let is_asked = self.heavy_share > 0.0;
        is_asked.then(|| HeavyShare::new(self.heavy_share, self.heavy)).transpose()
    }

    pub(crate) fn overload(&self, mean_rtt: Duration) -> OverloadConfig {
        OverloadConfig {
            percentile: self.percentile,
            margin: mean_rtt.mul_f64(self.alpha),
            stale: (self.stale_s > 0).then(|| Duration::from_secs(self.stale_s.into())),
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
            short: 10,
            interval_ms: 10_000.0,
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
    #[error("cannot read the scenario '{}': {io}; name a TOML file, as in examples/sim.toml", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        io: io::Error,
    },
    /// It is no TOML, or has keys that are not known.
    #[error("the scenario '{}' is wrong: {toml}", path.display())]
    Toml {
        /// Which.
        path: PathBuf,
        /// Where and why.
        toml: Box<toml::de::Error>,
    },
    /// A value is out of its range.
    #[error("the scenario's {key} is {value}; it may be {range}")]
    Range {
        /// As in the file.
        key: &'static str,
        /// What was given.
        value: String,
        /// What may be given, in words.
        range: &'static str,
    },
}

impl Scenario {
    /// Reads a file. Paths in it are beside it.
    ///
    /// # Errors
    ///
    /// It cannot be read or is wrong.
    pub fn read(path: &Path) -> Result<Scenario, ScenarioError> {
        let text = fs::read_to_string(path).map_err(|io| ScenarioError::Read { path: path.to_owned(), io })?;
        let mut scenario = Scenario::of_text(&text, path)?;
        if let TraceConfig::Csv { path: file, .. } | TraceConfig::Capture { path: file, .. } = &mut scenario.trace
            && let Some(folder) = path.parent()
        {
            *file = folder.join(&file);
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// One in no file.
    ///
    /// # Errors
    ///
    /// It is wrong.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::of_text(text, Path::new("-"))?;
        scenario.check()?;
        Ok(scenario)
    }

    fn of_text(text: &str, path: &Path) -> Result<Scenario, ScenarioError> {
        toml::from_str(text).map_err(|toml| ScenarioError::Toml { path: path.to_owned(), toml: Box::new(toml) })
    }

    /// The mean of round-trip times.
    pub fn mean_rtt(&self) -> Duration {
        Duration::from_secs_f64((self.network.trip_ms[0] + self.network.trip_ms[1]) / 1e3)
    }

    /// # Errors
    ///
    /// The first value that is out of its range.
    pub fn check(&self) -> Result<(), ScenarioError> {
        fn each<T: std::fmt::Debug>(
            key: &'static str,
            value: T,
            is_right: bool,
            range: &'static str,
        ) -> Result<(), ScenarioError> {
            let value = || format!("{value:?}");
            is_right.then_some(()).ok_or_else(|| ScenarioError::Range { key, value: value(), range })
        }
        let pair = |pair: [f64; 2]| (0.0..=60_000.0).contains(&pair[0]) && (pair[0]..=60_000.0).contains(&pair[1]);
        let has_servers =
            |servers: &[usize]| !servers.is_empty() && servers.iter().all(|n| (1..=MOST_SERVERS).contains(n));
        each("runs", self.runs, (1..=10_000).contains(&self.runs), "1 to 10000")?;
        each("policies", &self.policies, !self.policies.is_empty(), "one at least")?;
        each("servers", &self.servers, has_servers(&self.servers), "numbers of 1 to 1024")?;
        let of = self.load_of_servers.unwrap_or(1);
        each("load_of_servers", of, has_servers(&[of]), "1 to 1024")?;
        let interval = self.interval_ms;
        each("interval_ms", interval, (1.0..=3.6e6).contains(&interval), "1 to 3600000")?;
        each(
            "network.trip_ms",
            self.network.trip_ms,
            pair(self.network.trip_ms),
            "two times, the lesser first, 0 to 60000",
        )?;
        let round_trips = self.network.tcp_round_trips;
        each("network.tcp_round_trips", round_trips, (1..=10).contains(&round_trips), "1 to 10")?;
        let server = &self.server;
        each(
            "server.service_ms",
            server.service_ms,
            pair(server.service_ms),
            "two times, the lesser first, 0 to 60000",
        )?;
        each("server.byte_ns", server.byte_ns, (0.0..=1e6).contains(&server.byte_ns), "0 to 1000000")?;
        each(
            "server.handshake_ms",
            server.handshake_ms,
            (0.0..=60_000.0).contains(&server.handshake_ms),
            "0 to 60000",
        )?;
        each("server.window", server.window, (2..=100_000).contains(&server.window), "2 to 100000")?;
        each("server.tickets", server.tickets, server.tickets <= 8, "0 to 8")?;
        each("server.restamp_ms", server.restamp_ms, (0.0..=3.6e6).contains(&server.restamp_ms), "0 to 3600000")?;
        let zero = &self.zero_rtt;
        each("zero_rtt.heavy", zero.heavy, zero.heavy().check().is_ok() || zero.heavy_interval < 16, "1 to 32")?;
        each("zero_rtt.heavy_interval", zero.heavy_interval, zero.heavy().check().is_ok(), "16 to 2^30")?;
        each("zero_rtt.heavy_share", zero.heavy_share, (0.0..=1.0).contains(&zero.heavy_share), "0 to 1")?;
        each("zero_rtt.percentile", zero.percentile, (0.0..=1.0).contains(&zero.percentile), "0 to 1")?;
        each("zero_rtt.alpha", zero.alpha, (0.0..=1000.0).contains(&zero.alpha), "0 to 1000")?;
        each("zero_rtt.stale_s", zero.stale_s, zero.stale_s <= 86_400, "0 to 86400")?;
        self.trace.check(each)
    }
}

impl TraceConfig {
    fn check(
        &self,
        each: impl Fn(&'static str, f64, bool, &'static str) -> Result<(), ScenarioError>,
    ) -> Result<(), ScenarioError> {
        let gap = |key, ms: f64| each(key, ms, ms > 0.0 && ms <= 60_000.0, "above 0, up to 60000");
        match self {
            TraceConfig::Synthetic {
                clients,
                connections,
                packet_gap_ms,
                connection_gap_ms,
                length_skew,
                longest,
                client_skew,
                short_part,
            } => {
                let most = 1 << 24;
                each("trace.clients", f64::from(*clients), (1..=most).contains(clients), "1 to 2^24")?;
                each("trace.connections", *connections as f64, (1..=1 << 32).contains(connections), "1 to 2^32")?;
                gap("trace.packet_gap_ms", *packet_gap_ms)?;
                gap("trace.connection_gap_ms", *connection_gap_ms)?;
                let is_skew = |skew: &f64| (0.0..=10.0).contains(skew);
                each("trace.length_skew", *length_skew, is_skew(length_skew), "0 to 10")?;
                each("trace.longest", f64::from(*longest), (1..=1 << 20).contains(longest), "1 to 2^20")?;
                each("trace.client_skew", *client_skew, is_skew(client_skew), "0 to 10")?;
                let part = short_part.unwrap_or(0.0);
                each("trace.short_part", part, (0.0..=1.0).contains(&part), "0 to 1")
            }
            TraceConfig::Csv { connection_gap_ms, .. } => gap("trace.connection_gap_ms", *connection_gap_ms),
            TraceConfig::Capture { port, .. } => each("trace.port", f64::from(*port), *port > 0, "1 to 65535"),
        }
    }
}
