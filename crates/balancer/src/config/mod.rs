//! The configuration of a balancer: a TOML file, parsed into types that cannot hold invalid values.
//!
//! Each fault names file, line, key and remedy, and all faults are reported at once.

mod backend;
mod check;
mod latency;
mod overlap;
mod shared;
mod table;
mod value;
mod vip;
mod zero_rtt;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use dwell_engine::{balance::is_special, rtt::Prefix};
use dwell_metrics::otlp::Endpoint;
use dwell_probes::XdpMode;
use toml::de::{DeTable, DeValue};

use self::{
    table::{Problem, Source, Table},
    value::{choice, parsed, socket, text, time, whole},
    vip::VipDefaults,
};

pub use dwell_engine::{
    balance::{Forward, Protocol, VipKey, WhenStale},
    response::Estimator,
};

pub use self::{
    backend::{Backend, MAX_WEIGHT, check_weight, is_same_part},
    check::{Check, CheckKind, CheckTls},
    latency::Latency,
    shared::{MOST_BACKENDS, Secret, SharedSettings, StoreIdentity, StoreUrl},
    table::Fault,
    vip::{Choices, PolicyName, Vip},
    zero_rtt::ZeroRtt,
};

/// The configuration of a balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file that the configuration was read from.
    pub path: PathBuf,
    /// The interface that receives clients' packets.
    pub interface: String,
    /// The interval of the control loop, which is also the epoch of the latency estimation.
    pub interval: Duration,
    /// The estimator of response latency. `Pirate`, the paper's, is there for experiments.
    pub estimator: Estimator,
    /// A connection without a packet for this time is forgotten, or, while the connection table has room, much later.
    pub idle_timeout: Duration,
    /// A connection with a packet within this time counts as active.
    pub active_timeout: Duration,
    /// The seed of connection hashes. All balancers of a VIP must have the same, so that they select the same backends.
    /// `None`: the balancer draws one, or takes that of the others from the store. Whoever knows it can direct connections
    /// to a backend of his choice.
    pub hash_seed: Option<u64>,
    /// The store through which the balancers of these VIPs agree on weights; none if each decides alone.
    pub shared: Option<SharedSettings>,
    /// The folder of a BPF file system where maps and link are pinned.
    pub pin: PathBuf,
    /// The slot of another XDP program's array to occupy, instead of attaching to the interface: `MAP:SLOT[:NEXT]`.
    pub chain: Option<String>,
    /// What runs the program; `Any` selects it by the interface.
    pub xdp: XdpMode,
    /// The sizes of the kernel's maps.
    pub limits: Limits,
    /// The source addresses of encapsulating headers.
    pub tunnel: Tunnel,
    /// The Unix socket that accepts requests.
    pub socket: PathBuf,
    /// How metrics leave the process.
    pub metrics: MetricsSettings,
    /// What the health checks of all VIPs share.
    pub health: HealthSettings,
    /// What the data plane does without this process.
    pub heartbeat: HeartbeatSettings,
    /// The VIPs, in the order of the file.
    pub vips: Vec<Vip>,
    /// The keys from which nothing follows, in the order of the file.
    pub warnings: Vec<Fault>,
}

/// The sizes of the kernel's maps. Their memory is allocated at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of connections that are tracked at once.
    pub connections: u32,
    /// The number of connections that are measured at once.
    pub measured: u32,
    /// The number of VIPs.
    pub vips: u32,
    /// The number of backends of all VIPs, including those that are leaving.
    pub reals: u32,
    /// The number of VIPs with the policy `zero-rtt`.
    pub zero_rtt_vips: u16,
    /// The number of backends of those VIPs, including those that are leaving.
    pub zero_rtt_servers: u32,
}

/// The source addresses of encapsulating headers. The remaining bits vary by connection, so that the network spreads
/// tunnels over its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The source of encapsulating IPv4 headers. Its first 16 bits count; the others vary by connection.
    pub source4: Ipv4Addr,
    /// The source of encapsulating IPv6 headers. Its first 64 bits count; the others vary by connection.
    pub source6: Ipv6Addr,
}

/// How metrics leave the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address that serves them; none if they are not served.
    pub listen: Option<SocketAddr>,
    /// The receiver to which they are pushed by OTLP; none if they are not pushed.
    pub otlp: Option<Endpoint>,
    /// The file of headers that are sent with each push.
    pub otlp_headers: Option<PathBuf>,
}

/// What the health checks of all VIPs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthSettings {
    /// The greatest number of threads. Each waits for one answer at a time.
    pub threads: usize,
    /// The time in which a backend that comes back regains its whole weight.
    pub ramp: Duration,
}

/// What the data plane does while no process renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatSettings {
    /// The time without a sign of life from which on it is stale.
    pub stale_after: Duration,
    /// What it does then.
    pub when_stale: WhenStale,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration '{}': {io}; name a TOML file, as in examples/lb.toml", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        io: io::Error,
    },
    /// The file has faults, one per line of the message.
    #[error("{}", join_lines(.0))]
    Faults(Vec<Fault>),
}

fn join_lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}

impl Config {
    /// Reads the configuration in a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or with all of its faults.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = fs::read_to_string(path).map_err(|io| ConfigError::Read { path: path.into(), io })?;
        Config::parse(&text, path)
    }

    /// Parses a configuration. `path` is named in faults, and other files are looked up next to it.
    ///
    /// # Errors
    ///
    /// With all faults of the text.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let source = Source::new(path.into(), text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            let problem = Problem::new(
                format!("this is not valid TOML: {}", error.message().trim()),
                "see toml.io for the syntax",
            );
            source.fault(source.line(at), "", problem);
        }
        if !errors.is_empty() {
            return Err(ConfigError::Faults(source.into_faults().0));
        }
        let config = read_root(&source, root.get_ref(), path);
        let (faults, warnings) = source.into_faults();
        match config {
            Some(config) if faults.is_empty() => Ok(Config { warnings, ..config }),
            _ => Err(ConfigError::Faults(faults)),
        }
    }

    /// Returns the warnings as texts.
    pub fn warning_texts(&self) -> Vec<String> {
        self.warnings.iter().map(ToString::to_string).collect()
    }

    /// Returns the number of backends of all VIPs.
    pub fn backends(&self) -> usize {
        self.vips.iter().map(|vip| vip.backends.len()).sum()
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// The seed that was built in before each balancer drew its own.
const KNOWN_SEED: i64 = 0x64_7765_6c6c;
const WHEN_STALE: [(&str, WhenStale); 2] = [("keep", WhenStale::Keep), ("equal", WhenStale::Equal)];
const XDP: [(&str, XdpMode); 3] = [("auto", XdpMode::Any), ("native", XdpMode::Native), ("generic", XdpMode::Generic)];
const ESTIMATORS: [(&str, Estimator); 2] = [("auto", Estimator::Auto), ("pirate", Estimator::Pirate)];

fn read_root<'a>(source: &'a Source, root: &'a DeTable<'a>, path: &Path) -> Option<Config> {
    let mut table = Table::new(source, "", root, 0..0);
    let interface = table.require("interface", "\"eth0\"", text);
    let name = interface.clone().unwrap_or_default();
    let limits = read_limits(&mut table);
    let tunnel = read_tunnel(&mut table);
    let latency = Latency::read(&mut table, &Latency::default());
    let hash_seed = table.get("hash_seed", seed);
    let defaults = VipDefaults { latency: &latency, is_one_of_several: hash_seed.is_some() || table.has("shared") };
    let (vips, lines) = Vip::read_all(&mut table, path, &defaults);
    let backends = vips.iter().map(|vip| vip.backends.len()).sum();
    let config = Config {
        path: path.into(),
        interface: name.clone(),
        interval: table.get("interval", time(100 * MILLISECOND..=MINUTE)).unwrap_or(Duration::from_secs(1)),
        estimator: table.get("estimator", choice(&ESTIMATORS)).unwrap_or(Estimator::Auto),
        idle_timeout: table.get("idle_timeout", time(Duration::from_secs(1)..=DAY)).unwrap_or(MINUTE),
        active_timeout: table.get("active_timeout", time(10 * MILLISECOND..=DAY)).unwrap_or(Duration::from_secs(5)),
        hash_seed,
        shared: SharedSettings::read(&mut table, path, backends),
        pin: table.get("pin", text).map_or_else(|| default_pin(&name), PathBuf::from),
        chain: table.get("chain", chain),
        xdp: table.get("xdp", choice(&XDP)).unwrap_or_default(),
        limits,
        tunnel,
        socket: read_socket(&mut table),
        metrics: read_metrics(&mut table),
        health: read_health(&mut table),
        heartbeat: read_heartbeat(&mut table),
        vips,
        warnings: Vec::new(),
    };
    overlap::check(&config, &lines, &table);
    table.finish();
    interface.map(|_| config)
}

/// Returns the folder where the balancer of an interface is pinned by default.
pub fn default_pin(interface: &str) -> PathBuf {
    Path::new("/sys/fs/bpf/dwell").join(format!("lb-{interface}"))
}

/// The default path of the socket that accepts requests.
pub const DEFAULT_SOCKET: &str = "/run/dwell/lb.sock";

fn chain(value: &toml::de::DeValue<'_>) -> Result<String, Problem> {
    let chain: dwell_probes::Chain = parsed("a slot of a program array", "\"/sys/fs/bpf/slots:1:2\"")(value)?;
    Ok(chain.to_string())
}

/// Reads a seed of connection hashes.
fn seed(value: &DeValue<'_>) -> Result<u64, Problem> {
    let seed = whole(0..=i64::MAX)(value)?;
    if seed == KNOWN_SEED {
        return Err(Problem::new(
            "it was the same on every installation of an early version, so that anybody can direct connections to a \
             backend of his choice",
            "remove the key where there is one balancer; give several the same random number (shuf -n 1 -i \
             0-9223372036854775807)",
        ));
    }
    Ok(seed as u64)
}

fn read_limits(root: &mut Table<'_>) -> Limits {
    let mut limits = Limits {
        connections: 1_000_000,
        measured: 1_000_000,
        vips: 1024,
        reals: 16_384,
        zero_rtt_vips: 8,
        zero_rtt_servers: 1024,
    };
    let Some(mut table) = root.table("limits") else {
        return limits;
    };
    for (key, limit, range) in [
        ("connections", &mut limits.connections, 4..=16_000_000),
        ("vips", &mut limits.vips, 1..=65_535),
        ("reals", &mut limits.reals, 1..=1_000_000),
    ] {
        *limit = table.get(key, whole(range)).unwrap_or(*limit);
    }
    limits.measured = table.get("measured", whole(1..=limits.connections)).unwrap_or(limits.connections);
    limits.zero_rtt_vips = table.get("zero_rtt_vips", whole(0..=1024)).unwrap_or(limits.zero_rtt_vips);
    limits.zero_rtt_servers = table.get("zero_rtt_servers", whole(1..=65_536)).unwrap_or(limits.zero_rtt_servers);
    table.finish();
    limits
}

fn read_tunnel(root: &mut Table<'_>) -> Tunnel {
    let mut tunnel =
        Tunnel { source4: Ipv4Addr::new(172, 16, 0, 0), source6: Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0) };
    let Some(mut table) = root.table("tunnel") else {
        return tunnel;
    };
    if let Some(source4) = table.get("source4", sender("an IPv4 address", "\"172.16.0.0\"", 16)) {
        tunnel.source4 = source4;
    }
    if let Some(source6) = table.get("source6", sender("an IPv6 address", "\"100::\"", 64)) {
        tunnel.source6 = source6;
    }
    table.finish();
    tunnel
}

/// Reads a source of tunnels, of which the first `bits` count.
fn sender<T>(what: &'static str, example: &'static str, bits: u8) -> impl FnOnce(&DeValue<'_>) -> Result<T, Problem>
where
    T: FromStr + Copy + Into<IpAddr>,
{
    move |value| {
        let source: T = parsed(what, example)(value)?;
        let address: IpAddr = source.into();
        if [address, Prefix::of(address, bits).address].into_iter().any(is_special) {
            return Err(Problem::new(
                format!("{address} is a loopback, link-local, multicast, broadcast or unspecified address"),
                format!("routers drop packets of such a sender: use a network that no host is in, as in {example}"),
            ));
        }
        Ok(source)
    }
}

fn read_socket(root: &mut Table<'_>) -> PathBuf {
    let mut path = PathBuf::from(DEFAULT_SOCKET);
    if let Some(mut table) = root.table("api") {
        if let Some(text) = table.get("socket", text) {
            path = text.into();
        }
        table.finish();
    }
    path
}

fn read_metrics(root: &mut Table<'_>) -> MetricsSettings {
    let Some(mut table) = root.table("metrics") else {
        return MetricsSettings::default();
    };
    let (listen_at, push_to) = ("\"127.0.0.1:9475\"", "\"http://127.0.0.1:4318\"");
    if !table.has("otlp") && table.has("otlp_headers") {
        let problem = Problem::new("it is missing, but otlp_headers is there", format!("write otlp = {push_to}"));
        table.fault(problem, "otlp");
    }
    let listen = match table.has("otlp") {
        true => table.get("listen", socket),
        false => table.require("listen", listen_at, socket),
    };
    let settings = MetricsSettings {
        listen,
        otlp: table.get("otlp", parsed("a URL at which OTLP is received over HTTP", push_to)),
        otlp_headers: table.get("otlp_headers", text).map(PathBuf::from),
    };
    table.finish();
    settings
}

fn read_health(root: &mut Table<'_>) -> HealthSettings {
    let mut settings = HealthSettings { threads: 256, ramp: Duration::from_secs(10) };
    let Some(mut table) = root.table("health") else {
        return settings;
    };
    if let Some(threads) = table.get("threads", whole(1..=4096)) {
        settings.threads = threads as usize;
    }
    if let Some(ramp) = table.get("ramp", time(Duration::ZERO..=60 * MINUTE)) {
        settings.ramp = ramp;
    }
    table.finish();
    settings
}

fn read_heartbeat(root: &mut Table<'_>) -> HeartbeatSettings {
    let mut settings = HeartbeatSettings { stale_after: Duration::from_secs(10), when_stale: WhenStale::Keep };
    let Some(mut table) = root.table("heartbeat") else {
        return settings;
    };
    if let Some(stale_after) = table.get("stale_after", time(Duration::from_secs(1)..=60 * MINUTE)) {
        settings.stale_after = stale_after;
    }
    if let Some(when_stale) = table.get("when_stale", choice(&WHEN_STALE)) {
        settings.when_stale = when_stale;
    }
    table.finish();
    settings
}

/// Returns a VIP with these keys and backends, for tests.
#[cfg(test)]
pub(crate) fn vip_with(keys: &str, backends: &str) -> Vip {
    let text = format!(
        "interface = \"eth0\"\n[[vip]]\nname = \"web\"\naddress = \"198.51.100.1\"\nport = 80\nforward = \"l2\"\n\
         {keys}\nbackend = [{backends}]"
    );
    Config::parse(&text, Path::new("lb.toml")).expect("the configuration is valid").vips.remove(0)
}
