//! `[vip.zero_rtt]`: how a VIP of QUIC is routed by connection ID.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use dwell_engine::{
    balance::ServerId,
    quic_lb,
    steer::zero_rtt::{HeavyConfig, OverloadConfig},
};
use toml::de::DeValue;

use super::{
    DAY, MINUTE, Protocol,
    table::{Table, Wrong},
    value::{choice, flag, number, text, time, whole},
    vip::Backend,
};

/// How a VIP of QUIC is routed by connection ID.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroRtt {
    /// Layouts and keys of connection IDs, one a rotation at most.
    pub layouts: Vec<quic_lb::Config>,
    /// Whose connections are heavy.
    pub heavy: HeavyConfig,
    /// The part of a server's packets that as few of those as can are to have; none: all of them count.
    pub heavy_share: Option<f64>,
    /// Heavy at any server, not only at the client's own.
    pub is_any_heavy: bool,
    /// Which servers are overloaded.
    pub overload: OverloadConfig,
    /// A connection ID in a long header is not older.
    pub window: Duration,
    /// So long a new connection is kept together before it knows a connection ID.
    pub attempt: Duration,
    /// Short headers without a server's ID go as their connection began, not nowhere.
    pub is_unroutable_hashed: bool,
}

impl ZeroRtt {
    /// Whether connection IDs of all layouts can name a server so.
    pub fn has_room_for(&self, server_id: u64) -> bool {
        let id = ServerId(server_id.into());
        let mut layouts = self.layouts.iter();
        layouts.all(|layout| id.octets(layout.server_id_bytes()).is_some())
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Of a server without new connections there is news when it renews the connection IDs of those it has. With the
/// heartbeat of `dwell-quic` (40 s) that is each 80 s, as quinn does so at every second one; and a server may take some
/// time to send one, and its client to use it.
const LOAD_LIFETIME: Duration = Duration::from_secs(100);
const KEY_REMEDY: &str = "write 32 hexadecimal digits, as of `openssl rand -hex 16`, the same as the servers have";

/// Reads the table of a VIP with the policy `zero-rtt`, and checks what it wants of the VIP.
pub(super) fn read(
    parent: &mut Table<'_>,
    path: &Path,
    (protocol, port): (Protocol, Option<u16>),
    backends: &[Backend],
) -> Option<ZeroRtt> {
    if protocol == Protocol::Tcp {
        let wrong = Wrong::new("QUIC is no TCP", "write protocol = \"udp\"");
        parent.fault(wrong, "policy");
    }
    if port.is_none() {
        let wrong = Wrong::new("QUIC to any port is not told from other UDP", "write a port");
        parent.fault(wrong, "port");
    }
    let Some(mut table) = parent.table("zero_rtt") else {
        let wrong = Wrong::new(
            "the policy \"zero-rtt\" needs the key of connection IDs",
            "write [vip.zero_rtt] with layout = [{ rotation = 0, key_file = \"cid.key\" }]",
        );
        parent.fault(wrong, "zero_rtt");
        return None;
    };
    let layouts = read_layouts(&mut table, path);
    let mut heavy = HeavyConfig::default();
    heavy.most = table.get("heavy_most", whole(1..=32)).unwrap_or(heavy.most);
    let interval = table.get("heavy_interval", whole(16..=1 << 30));
    heavy.interval = interval.unwrap_or(heavy.interval);
    let heavy_share = table.get("heavy_share", number(0.01..=1.0));
    let alpha = table.get("alpha", number(0.0..=100.0)).unwrap_or(1.0);
    let rtt = table.get("rtt", time(Duration::ZERO..=MINUTE / 2));
    let rtt = rtt.unwrap_or(Duration::from_millis(20));
    let overload = OverloadConfig {
        percentile: table.get("percentile", number(0.0..=1.0)).unwrap_or(0.8),
        margin: rtt.mul_f64(alpha).min(60 * MINUTE),
        stale: Some(table.get("load_lifetime", time(SECOND..=DAY)).unwrap_or(LOAD_LIFETIME)),
        slack: table.get("clock_slack", time(Duration::ZERO..=60 * MINUTE)).unwrap_or(5 * SECOND),
    };
    let zero = ZeroRtt {
        heavy,
        heavy_share,
        overload,
        is_any_heavy: table.get("heavy", choice(&[("own", false), ("any", true)])).unwrap_or(false),
        window: table.get("window", time(SECOND..=DAY)).unwrap_or(MINUTE),
        attempt: table.get("attempt", time(SECOND..=10 * MINUTE)).unwrap_or(10 * SECOND),
        is_unroutable_hashed: table.get("unroutable", choice(&[("drop", false), ("hash", true)])).unwrap_or(false),
        layouts,
    };
    table.finish();
    check_ids(parent, &zero, backends);
    Some(zero)
}

/// Each backend has an ID of its own, which each layout has room for.
fn check_ids(parent: &Table<'_>, zero: &ZeroRtt, backends: &[Backend]) {
    let mut taken = BTreeMap::new();
    for backend in backends {
        let name = &backend.name;
        let wrong = match backend.server_id {
            None => Some(Wrong::new(
                format!("backend '{name}' has no server_id, by which connection IDs name it"),
                "write server_id = and the number that this server puts into them",
            )),
            Some(id) => match taken.insert(id, name) {
                Some(other) => Some(Wrong::new(
                    format!("backends '{other}' and '{name}' both have the server_id {id}"),
                    "write another for one of them",
                )),
                None => zero
                    .layouts
                    .iter()
                    .find(|layout| ServerId(id.into()).octets(layout.server_id_bytes()).is_none())
                    .map(|layout| {
                        Wrong::new(
                            format!(
                                "the server_id {id} of backend '{name}' does not fit into {} octets",
                                layout.server_id_bytes()
                            ),
                            "write a smaller one",
                        )
                    }),
            },
        };
        if let Some(wrong) = wrong {
            parent.fault(wrong, "backend.server_id");
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
            let wrong = Wrong::new(format!("another layout has the rotation {rotation}"), "write another: 0 to 6");
            table.fault(wrong, "rotation");
        }
        let made = match (key, clear) {
            (Some(key), _) if (server, nonce) == (2, 14) => Some(quic_lb::Config::own(rotation, key)),
            (Some(key), _) => Some(quic_lb::Config::new(rotation, server, nonce, Some(key))),
            (None, true) => Some(quic_lb::Config::new(rotation, server, nonce, None)),
            (None, false) => None,
        };
        match made {
            Some(Ok(layout)) => layouts.push(layout),
            Some(Err(error)) => {
                let wrong = Wrong::new(error.to_string(), "write fewer octets");
                table.fault(wrong, "nonce_bytes");
            }
            None => {}
        }
        table.finish();
    }
    if layouts.is_empty() && !parent.has("layout") {
        let wrong = Wrong::new(
            "there is no layout of connection IDs",
            "write layout = [{ rotation = 0, key_file = \"cid.key\" }]",
        );
        parent.fault(wrong, "layout");
    }
    layouts
}

/// None if there is none, which is told where there should be one.
fn read_key(table: &mut Table<'_>, path: &Path, clear: bool) -> Option<[u8; 16]> {
    let key = table.get("key", hex_key);
    let file = table.get("key_file", text);
    let given = usize::from(table.has("key")) + usize::from(table.has("key_file"));
    if given + usize::from(clear) != 1 {
        let wrong = match given + usize::from(clear) {
            0 => Wrong::new(
                "nothing says how connection IDs are encrypted",
                "write key_file = \"cid.key\", or key = and 32 hexadecimal digits, or clear = true",
            ),
            _ => Wrong::new("it has more than one of key, key_file and clear", "keep one"),
        };
        table.fault(wrong, "key");
        return None;
    }
    let Some(file) = file else {
        return key;
    };
    let file = path.parent().unwrap_or(Path::new("")).join(file);
    let read = fs::read_to_string(&file)
        .map_err(|io| Wrong::new(format!("cannot read '{}': {io}", file.display()), KEY_REMEDY))
        .and_then(|text| {
            from_hex(text.trim()).ok_or_else(|| Wrong::new(format!("'{}' has no key", file.display()), KEY_REMEDY))
        });
    read.map_err(|wrong| table.fault(wrong, "key_file")).ok()
}

/// The key itself is never told.
fn hex_key(value: &DeValue<'_>) -> Result<[u8; 16], Wrong> {
    value.as_str().and_then(from_hex).ok_or_else(|| Wrong::new("it is no key", KEY_REMEDY))
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
