//! `[vip.zero_rtt]`: how the packets of a QUIC VIP are routed by connection ID.

use std::{collections::BTreeMap, fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use dwell_engine::{
    balance::{HeavyScope, Protocol, ServerId},
    quic_lb,
    steer::zero_rtt::{HeavyConfig, MOST_HEAVY, OverloadConfig},
};
use toml::de::DeValue;

use super::{
    DAY, MINUTE,
    backend::Backend,
    table::{Problem, Table},
    value::{choice, flag, number, text, time, whole},
};

/// How the packets of a QUIC VIP are routed by connection ID.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroRtt {
    /// Layouts and keys of connection IDs, at most one per rotation.
    pub layouts: Vec<quic_lb::Config>,
    /// Which clients count as heavy.
    pub heavy: HeavyConfig,
    /// The part of a server's packets, from 0.01 to 1, that its heavy connections should carry: as few connections as
    /// possible count as heavy. None if all that are tracked do.
    pub heavy_share: Option<f64>,
    /// Where clients must be heavy to count as such.
    pub heavy_scope: HeavyScope,
    /// Which servers count as overloaded.
    pub overload: OverloadConfig,
    /// The greatest age of a connection ID in a long header.
    pub window: Duration,
    /// The time for which a new connection stays at its server before it has a connection ID of that server.
    pub attempt: Duration,
    /// Whether packets with a short header but without a known server ID are routed by hash; otherwise they are
    /// dropped.
    pub is_unroutable_hashed: bool,
}

impl ZeroRtt {
    /// Reads the table of a VIP with the policy `zero-rtt`, and checks that the rest of the VIP fits it.
    pub(super) fn read(
        parent: &mut Table<'_>,
        path: &Path,
        (protocol, port): (Protocol, Option<u16>),
        backends: &[Backend],
    ) -> Option<ZeroRtt> {
        if protocol == Protocol::Tcp {
            let problem = Problem::new("QUIC does not run over TCP", "write protocol = \"udp\"");
            parent.fault(problem, "policy");
        }
        if port.is_none() {
            let problem = Problem::new("without a port, QUIC cannot be distinguished from other UDP", "write a port");
            parent.fault(problem, "port");
        }
        let Some(mut table) = parent.table("zero_rtt") else {
            let problem = Problem::new(
                "the policy \"zero-rtt\" needs the key of the connection IDs",
                "write [vip.zero_rtt] with layout = [{ rotation = 0, key_file = \"cid.key\" }]",
            );
            parent.fault(problem, "zero_rtt");
            return None;
        };
        let layouts = read_layouts(&mut table, path);
        let mut heavy = HeavyConfig::default();
        heavy.most = table.get("heavy_most", whole(1..=MOST_HEAVY)).unwrap_or(heavy.most);
        let interval = table.get("heavy_interval", whole(16..=1 << 30));
        heavy.interval = interval.unwrap_or(heavy.interval);
        let heavy_share = table.get("heavy_share", number(0.01..=1.0));
        let alpha = table.get("alpha", number(0.0..=100.0)).unwrap_or(1.0);
        let rtt = table.get("rtt", time(Duration::ZERO..=MINUTE / 2));
        let rtt = rtt.unwrap_or(Duration::from_millis(20));
        let overload = OverloadConfig {
            percentile: table.get("percentile", number(0.0..=1.0)).unwrap_or(0.8),
            margin: rtt.mul_f64(alpha).min(*OverloadConfig::MARGIN.end()),
            stale: Some(table.get("load_lifetime", time(OverloadConfig::STALE)).unwrap_or(LOAD_LIFETIME)),
            slack: table.get("clock_slack", time(OverloadConfig::SLACK)).unwrap_or(5 * SECOND),
        };
        let zero = ZeroRtt {
            heavy,
            heavy_share,
            overload,
            heavy_scope: table.get("heavy", choice(HEAVY_SCOPES)).unwrap_or_default(),
            window: table.get("window", time(SECOND..=DAY)).unwrap_or(MINUTE),
            attempt: table.get("attempt", time(SECOND..=10 * MINUTE)).unwrap_or(10 * SECOND),
            is_unroutable_hashed: table.get("unroutable", choice(&[("drop", false), ("hash", true)])).unwrap_or(false),
            layouts,
        };
        table.finish();
        check_server_ids(parent, &zero, backends);
        Some(zero)
    }

    /// Whether a server ID fits into the connection IDs of all layouts.
    pub fn has_room_for(&self, server_id: u64) -> bool {
        let id = ServerId(server_id.into());
        let mut layouts = self.layouts.iter();
        layouts.all(|layout| id.octets(layout.server_id_bytes()).is_some())
    }
}

const HEAVY_SCOPES: &[(&str, HeavyScope)] =
    &[("own", HeavyScope::Own), ("any", HeavyScope::Any), ("all", HeavyScope::All)];
const SECOND: Duration = Duration::from_secs(1);
/// The default of `load_lifetime`. A server without new connections reports its load when it renews the connection IDs
/// of its open connections. With the heartbeat of `dwell-quic` (40 s) that happens every 80 s, since quinn renews them
/// at every second heartbeat; the server may then take some time to send an ID, and its client to use it.
const LOAD_LIFETIME: Duration = Duration::from_secs(100);
const KEY_REMEDY: &str =
    "write 32 hexadecimal digits, as printed by `openssl rand -hex 16`: the key that the servers have";

/// Checks that each backend has a server ID, unique within the VIP, that fits every layout.
fn check_server_ids(parent: &Table<'_>, zero: &ZeroRtt, backends: &[Backend]) {
    let mut used = BTreeMap::new();
    for backend in backends {
        let name = &backend.name;
        let problem = match backend.server_id {
            None => Some(Problem::new(
                format!("backend '{name}' has no server_id, which connection IDs must carry"),
                "write server_id = and the number that this server puts into its connection IDs",
            )),
            Some(id) => match used.insert(id, name) {
                Some(other) => Some(Problem::new(
                    format!("backends '{other}' and '{name}' both have the server_id {id}"),
                    "change one of them",
                )),
                None => zero
                    .layouts
                    .iter()
                    .find(|layout| ServerId(id.into()).octets(layout.server_id_bytes()).is_none())
                    .map(|layout| {
                        Problem::new(
                            format!(
                                "the server_id {id} of backend '{name}' does not fit into {} octets",
                                layout.server_id_bytes()
                            ),
                            "write a smaller one",
                        )
                    }),
            },
        };
        if let Some(problem) = problem {
            parent.fault(problem, "backend.server_id");
        }
    }
}

fn read_layouts(parent: &mut Table<'_>, path: &Path) -> Vec<quic_lb::Config> {
    let mut layouts: Vec<quic_lb::Config> = Vec::new();
    for mut table in parent.tables("layout") {
        let rotation = table.require("rotation", "0", whole(0..=6u8));
        let server = table.get("server_id_bytes", whole(1..=15u8)).unwrap_or(2);
        let nonce = table.get("nonce_bytes", whole(4..=18u8)).unwrap_or(14);
        let clear = table.get("clear", flag).unwrap_or(false);
        let key = read_key(&mut table, path, clear);
        let Some(rotation) = rotation else {
            table.finish();
            continue;
        };
        if layouts.iter().any(|other| other.rotation() == rotation) {
            let problem = Problem::new(format!("another layout has the rotation {rotation}"), "write another: 0 to 6");
            table.fault(problem, "rotation");
        }
        let layout = match (key, clear) {
            (Some(key), _) if (server, nonce) == (2, 14) => Some(quic_lb::Config::own(rotation, key)),
            (Some(key), _) => Some(quic_lb::Config::new(rotation, server, nonce, Some(key))),
            (None, true) => Some(quic_lb::Config::new(rotation, server, nonce, None)),
            (None, false) => None,
        };
        match layout {
            Some(Ok(layout)) => layouts.push(layout),
            Some(Err(error)) => {
                let problem = Problem::new(error.to_string(), "write fewer octets");
                table.fault(problem, "nonce_bytes");
            }
            None => {}
        }
        table.finish();
    }
    if layouts.is_empty() && !parent.has("layout") {
        let problem = Problem::new(
            "there is no layout of connection IDs",
            "write layout = [{ rotation = 0, key_file = \"cid.key\" }]",
        );
        parent.fault(problem, "layout");
    }
    layouts
}

/// Reads the key of a layout. None for a layout without encryption, and after a fault.
fn read_key(table: &mut Table<'_>, path: &Path, clear: bool) -> Option<[u8; 16]> {
    let key = table.get("key", hex_key);
    let file = table.get("key_file", text);
    let sources = usize::from(table.has("key")) + usize::from(table.has("key_file"));
    if sources + usize::from(clear) != 1 {
        let problem = match sources + usize::from(clear) {
            0 => Problem::new(
                "the encryption of connection IDs is not configured",
                "write key_file = \"cid.key\", or key = and 32 hexadecimal digits, or clear = true",
            ),
            _ => Problem::new("only one of key, key_file and clear may be set", "keep one"),
        };
        table.fault(problem, "key");
        return None;
    }
    let Some(file) = file else {
        return key;
    };
    let file = path.parent().unwrap_or(Path::new("")).join(file);
    read_key_file(&file).map_err(|problem| table.fault(problem, "key_file")).ok()
}

fn read_key_file(path: &Path) -> Result<[u8; 16], Problem> {
    let shown = path.display();
    let failed = |io| Problem::new(format!("cannot read '{shown}': {io}"), KEY_REMEDY);
    let mut file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        let problem = format!("every user of this host can reach the key in '{shown}'");
        return Err(Problem::new(problem, format!("chmod 600 {shown}")));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    from_hex(text.trim()).ok_or_else(|| Problem::new(format!("'{shown}' contains no key"), KEY_REMEDY))
}

/// Reads a key from hexadecimal digits. Faults never show the key.
fn hex_key(value: &DeValue<'_>) -> Result<[u8; 16], Problem> {
    value.as_str().and_then(from_hex).ok_or_else(|| Problem::new("it is not a key", KEY_REMEDY))
}

fn from_hex(digits: &str) -> Option<[u8; 16]> {
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 16];
    for (octet, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}
