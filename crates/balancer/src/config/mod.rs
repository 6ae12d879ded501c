//! The configuration of a balancer: a TOML file, read into types that cannot be wrong.
//!
//! Each fault names file, line, key and remedy, and all are told at once.

mod overlap;
mod table;
mod value;
mod vip;
mod zero_rtt;

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use toml::de::DeTable;

use self::{
    table::{Source, Table, Wrong},
    value::{parsed, socket, text, time, whole},
};

pub use dwell_engine::balance::{Forward, Protocol, VipKey};

pub use self::{
    table::Fault,
    vip::{Backend, Check, Kind, Latency, PolicyName, Tls, Vip},
    zero_rtt::ZeroRtt,
};

/// What a balancer is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file that it came from.
    pub path: PathBuf,
    /// The interface that clients' packets come in by.
    pub interface: String,
    /// How long an interval of the control loop is, and an epoch of a connection.
    pub interval: Duration,
    /// A connection without a packet for so long is forgotten.
    pub idle_timeout: Duration,
    /// A connection with a packet within this time counts as active.
    pub active_timeout: Duration,
    /// What all balancers of a VIP must share, so that they place alike.
    pub hash_seed: u64,
    /// Where maps and link are pinned, in a BPF file system.
    pub pin: PathBuf,
    /// A slot of another XDP program's array to take in place of the interface: `MAP:SLOT[:NEXT]`.
    pub chain: Option<String>,
    /// Most of each that there may be.
    pub limits: Limits,
    /// Headers of tunnels.
    pub tunnel: Tunnel,
    /// Where requests are taken: a Unix socket.
    pub socket: PathBuf,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// How checks are made, whatever they check.
    pub checking: Checking,
    /// The VIPs, in the order of the file.
    pub vips: Vec<Vip>,
}

/// Most of each that there may be. Memory for it is taken at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections followed at once.
    pub connections: u32,
    /// VIPs.
    pub vips: u32,
    /// Backends over all VIPs, with those that are leaving.
    pub reals: u32,
    /// VIPs with the policy `zero-rtt`.
    pub zero_rtt_vips: u16,
    /// Their backends, with those that are leaving.
    pub zero_rtt_servers: u32,
}

/// Headers of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The first 16 bits of the outer source address; the others are of the connection.
    pub source4: Ipv4Addr,
    /// The first 64 bits of the same.
    pub source6: Ipv6Addr,
}

/// How checks are made, whatever they check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checking {
    /// Threads at most. Each waits for one answer at a time.
    pub threads: usize,
    /// A backend that comes back has its whole weight after this time.
    pub ramp: Duration,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration '{}': {io}; name a TOML file, as in examples/lb.toml", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
    /// The file has faults: a line each.
    #[error("{}", lines(.0))]
    Faults(Vec<Fault>),
}

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// All that is wrong with it at once.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = fs::read_to_string(path).map_err(|io| ConfigError::Read { path: path.into(), io })?;
        Config::parse(&text, path)
    }

    /// The same of a text. `path` is told in faults, and where other files are named, these are
    /// looked for beside it.
    ///
    /// # Errors
    ///
    /// All that is wrong with it at once.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let source = Source::new(path.into(), text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            let wrong =
                Wrong::new(format!("this is no TOML: {}", error.message().trim()), "toml.io tells how it is written");
            source.fault(source.line(at), "", wrong);
        }
        if !errors.is_empty() {
            return Err(ConfigError::Faults(source.into_faults()));
        }
        let config = read_root(&source, root.get_ref(), path);
        let faults = source.into_faults();
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(ConfigError::Faults(faults)),
        }
    }

    /// Of how many backends it tells, over all VIPs.
    pub fn backends(&self) -> usize {
        self.vips.iter().map(|vip| vip.backends.len()).sum()
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn read_root<'a>(source: &'a Source, root: &'a DeTable<'a>, path: &Path) -> Option<Config> {
    let mut table = Table::new(source, "", root, 0..0);
    let interface = table.require("interface", "\"eth0\"", text);
    let name = interface.clone().unwrap_or_default();
    let limits = read_limits(&mut table);
    let tunnel = read_tunnel(&mut table);
    let latency = Latency::read(&mut table, &Latency::default());
    let (vips, places) = vip::read_all(&mut table, path, &latency);
    let config = Config {
        path: path.into(),
        interface: name.clone(),
        interval: table.get("interval", time(100 * MILLISECOND..=MINUTE)).unwrap_or(Duration::from_secs(1)),
        idle_timeout: table.get("idle_timeout", time(Duration::from_secs(1)..=DAY)).unwrap_or(MINUTE),
        active_timeout: table.get("active_timeout", time(10 * MILLISECOND..=DAY)).unwrap_or(Duration::from_secs(5)),
        hash_seed: table.get("hash_seed", whole(0..=i64::MAX)).unwrap_or(0x64_7765_6c6c) as u64,
        pin: table.get("pin", text).map_or_else(|| default_pin(&name), PathBuf::from),
        chain: table.get("chain", chain),
        limits,
        tunnel,
        socket: read_socket(&mut table),
        metrics: read_metrics(&mut table),
        checking: read_checking(&mut table),
        vips,
    };
    overlap::check(&config, &places, &table);
    table.finish();
    interface.map(|_| config)
}

/// Where a balancer of an interface is pinned unless told otherwise.
pub fn default_pin(interface: &str) -> PathBuf {
    Path::new("/sys/fs/bpf/dwell").join(format!("lb-{interface}"))
}

/// Where requests are taken unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/dwell/lb.sock";

fn chain(value: &toml::de::DeValue<'_>) -> Result<String, Wrong> {
    let chain: dwell_probes::Chain = parsed("a slot of a program array", "\"/sys/fs/bpf/slots:1:2\"")(value)?;
    Ok(chain.to_string())
}

fn read_limits(root: &mut Table<'_>) -> Limits {
    let mut limits =
        Limits { connections: 1_000_000, vips: 1024, reals: 16_384, zero_rtt_vips: 8, zero_rtt_servers: 1024 };
    let Some(mut table) = root.table("limits") else {
        return limits;
    };
    for (key, limit, range) in [
        ("connections", &mut limits.connections, 4..=16_000_000),
        ("vips", &mut limits.vips, 1..=65_536),
        ("reals", &mut limits.reals, 1..=1_000_000),
    ] {
        *limit = table.get(key, whole(range)).unwrap_or(*limit);
    }
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
    if let Some(source4) = table.get("source4", parsed("an IPv4 address", "\"172.16.0.0\"")) {
        tunnel.source4 = source4;
    }
    if let Some(source6) = table.get("source6", parsed("an IPv6 address", "\"100::\"")) {
        tunnel.source6 = source6;
    }
    table.finish();
    tunnel
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

fn read_metrics(root: &mut Table<'_>) -> Option<SocketAddr> {
    let mut table = root.table("metrics")?;
    let listen = table.require("listen", "\"127.0.0.1:9469\"", socket);
    table.finish();
    listen
}

fn read_checking(root: &mut Table<'_>) -> Checking {
    let mut checking = Checking { threads: 256, ramp: Duration::from_secs(10) };
    let Some(mut table) = root.table("health") else {
        return checking;
    };
    if let Some(threads) = table.get("threads", whole(1..=4096)) {
        checking.threads = threads as usize;
    }
    if let Some(ramp) = table.get("ramp", time(Duration::ZERO..=60 * MINUTE)) {
        checking.ramp = ramp;
    }
    table.finish();
    checking
}

/// Lines of what belongs together, for faults that follow from several.
#[derive(Debug, Default)]
struct Places {
    vips: Vec<VipPlace>,
}

#[derive(Debug)]
struct VipPlace {
    name: usize,
    address: usize,
    table_size: usize,
    /// Name and address of each backend.
    backends: Vec<(usize, usize)>,
}

type ByAddress<T> = BTreeMap<IpAddr, T>;
