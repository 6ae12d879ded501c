//! VIPs of QUIC whose packets are routed by connection ID.

use std::{fmt, time::Duration};

use crate::{
    abi,
    quic_lb::{self, Stamp},
    steer::zero_rtt::{HeavyConfig, LoadUpdate, MOST_SERVERS, OverloadConfig, update_load},
};

/// The ID of a server in connection IDs: a number, encoded in as many octets as the layout provides, in network byte
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u128);

impl ServerId {
    /// Encodes the ID in this number of octets; `None` if it does not fit.
    pub fn octets(self, bytes: u8) -> Option<Vec<u8>> {
        let octets = self.0.to_be_bytes();
        let (head, tail) = octets.split_at(octets.len().checked_sub(bytes.into())?);
        head.iter().all(|octet| *octet == 0).then(|| tail.to_vec())
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Which clients of an overloaded server are heavy, so that new connections of them go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeavyScope {
    /// Those with heavy connections at this server.
    #[default]
    Own,
    /// Those with heavy connections at any server.
    Any,
    /// All.
    All,
}

/// A backend with a server ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroServer {
    /// The number of the backend.
    pub real: u32,
    /// The ID in connection IDs.
    pub id: ServerId,
    /// Whether it gets new connections.
    pub state: ServerState,
}

/// Whether a server gets new connections, and what its tokens are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerState {
    /// The server gets new connections.
    #[default]
    Open,
    /// The server is down, and has its sessions still: its tokens are as none.
    Down,
    /// The server was drained or removed. Its tokens lead to its successor, which may have its sessions.
    Left,
}

impl ServerState {
    /// Converts to the core's flags.
    pub fn to_core(self) -> u32 {
        match self {
            ServerState::Open => 0,
            ServerState::Down => abi::DWELL_SERVER_OUT,
            ServerState::Left => abi::DWELL_SERVER_OUT | abi::DWELL_SERVER_LEFT,
        }
    }
}

/// How the packets of a VIP are routed.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroVip {
    /// The layouts, at most one per rotation.
    pub layouts: Vec<quic_lb::Config>,
    /// The servers, in any order; at most 1,024.
    pub servers: Vec<ZeroServer>,
    /// Which connections are heavy.
    pub heavy: HeavyConfig,
    /// Which servers are overloaded.
    pub overload: OverloadConfig,
    /// The greatest age of a connection ID in a long header.
    pub window: Duration,
    /// The time after its last packet for which a new connection stays at its server, before it uses the server's
    /// connection ID.
    pub attempt: Duration,
    /// Which clients are heavy.
    pub heavy_scope: HeavyScope,
    /// A short header without a server ID is routed as its connection started, instead of being dropped.
    pub is_unroutable_hashed: bool,
}

/// The slots of servers in all arrays of a VIP. A server that stays keeps its slot and its table of heavy hitters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSlots {
    /// The backend and the number of its table of heavy hitters, by server slot; (0, 0) for a free slot.
    pub slots: Vec<(u32, u32)>,
}

impl ServerSlots {
    /// Converts from the core's format.
    pub fn from_core(vip: &abi::dwell_zero_vip) -> ServerSlots {
        let used = (vip.servers as usize).min(MOST_SERVERS);
        let slots = vip.server[..used].iter();
        ServerSlots { slots: slots.map(|server| (server.real, server.heavy)).collect() }
    }

    /// Assigns slots: servers that stay keep theirs, and new servers get a free slot and a number from `free`. Returns
    /// the slots of new servers too, or `None` if there are not enough slots.
    pub fn assign(
        &self,
        servers: &[ZeroServer],
        mut free: impl Iterator<Item = u32>,
    ) -> Option<(ServerSlots, Vec<usize>)> {
        let is_wanted = |real: u32| servers.iter().any(|server| server.real == real);
        let mut slots: Vec<(u32, u32)> = self.slots.clone();
        for slot in &mut slots {
            if !is_wanted(slot.0) {
                *slot = (0, 0);
            }
        }
        let mut new = Vec::new();
        for server in servers {
            if slots.iter().any(|(real, _)| *real == server.real) {
                continue;
            }
            let at = match slots.iter().position(|(real, _)| *real == 0) {
                Some(at) => at,
                None => {
                    slots.push((0, 0));
                    slots.len() - 1
                }
            };
            if at >= MOST_SERVERS {
                return None;
            }
            slots[at] = (server.real, free.next()?);
            new.push(at);
        }
        Some((ServerSlots { slots }, new))
    }

    /// Returns the slot of a backend.
    pub fn slot_of(&self, real: u32) -> Option<usize> {
        self.slots.iter().position(|(other, _)| *other == real)
    }
}

impl ZeroVip {
    /// Creates a configuration with these layouts and these servers (given as backend numbers and IDs) and default
    /// constants. All servers get new connections.
    pub fn new(layouts: Vec<quic_lb::Config>, servers: impl IntoIterator<Item = (u32, ServerId)>) -> ZeroVip {
        let servers = servers.into_iter().map(|(real, id)| ZeroServer { real, id, state: ServerState::Open });
        ZeroVip {
            layouts,
            servers: servers.collect(),
            heavy: HeavyConfig::default(),
            overload: OverloadConfig::default(),
            window: Duration::from_secs(60),
            attempt: Duration::from_secs(10),
            heavy_scope: HeavyScope::Own,
            is_unroutable_hashed: false,
        }
    }

    /// Converts to the core's format.
    pub fn to_core(&self, slots: &ServerSlots) -> Box<abi::dwell_zero_vip> {
        let mut core = Box::<abi::dwell_zero_vip>::default();
        for layout in &self.layouts {
            core.layout[usize::from(layout.rotation())] = layout.to_core();
        }
        core.overload = self.overload.to_core();
        core.heavy = self.heavy.to_core();
        core.servers = slots.slots.len() as u32;
        core.window_s = self.window.as_secs().try_into().unwrap_or(u32::MAX / 2);
        core.attempt_coarse = (self.attempt.as_nanos() >> 20).try_into().unwrap_or(u32::MAX / 2);
        let scope = match self.heavy_scope {
            HeavyScope::Own => 0,
            HeavyScope::Any => abi::DWELL_ZERO_ANY,
            HeavyScope::All => abi::DWELL_ZERO_ALL,
        };
        core.flags = scope | if self.is_unroutable_hashed { abi::DWELL_ZERO_HASH } else { 0 };
        for (server, (real, heavy)) in core.server.iter_mut().zip(&slots.slots) {
            (server.real, server.heavy) = (*real, *heavy);
        }
        core
    }

    /// Returns server slots plus 1, by server ID: for dwell's own layout as an array, and for other layouts as names.
    pub fn ids(&self, slot: u16, slots: &ServerSlots) -> (Box<abi::dwell_zero_ids>, Vec<(abi::dwell_zero_name, u32)>) {
        let mut own = Box::<abi::dwell_zero_ids>::default();
        let mut names: Vec<(abi::dwell_zero_name, u32)> = Vec::new();
        for server in &self.servers {
            let Some(server_slot) = slots.slot_of(server.real) else {
                continue;
            };
            for layout in &self.layouts {
                let Some(octets) = server.id.octets(layout.server_id_bytes()) else {
                    continue;
                };
                if layout.is_stamped() {
                    own.server[server.id.0 as usize & 0xffff] = server_slot as u16 + 1;
                    continue;
                }
                let mut name = abi::dwell_zero_name { slot: slot.into(), bytes: layout.server_id_bytes(), id: [0; 15] };
                name.id[..octets.len()].copy_from_slice(&octets);
                names.push((name, server_slot as u32 + 1));
            }
        }
        (own, names)
    }
}

/// State that all VIPs with connection IDs share.
#[derive(Debug, Clone, Default)]
pub struct ZeroState(abi::dwell_zero_state);

/// Takes over the loads of servers that were reported elsewhere, by the number of each backend, at a Unix time: those that
/// are newer than what is known, and can be true. Returns whether there were any.
pub fn take_loads(
    vip: &abi::dwell_zero_vip,
    loads: &mut abi::dwell_zero_loads,
    stamps: &[(u32, Stamp)],
    now: Duration,
) -> bool {
    let slots = ServerSlots::from_core(vip);
    stamps.iter().fold(false, |is_newer, (real, stamp)| {
        let load = slots.slot_of(*real).map(|place| &mut loads.server[place]);
        is_newer | load.is_some_and(|load| update_load(load, *stamp, now, &vip.overload) == LoadUpdate::Newest)
    })
}

impl ZeroState {
    /// Converts from the core's format.
    pub fn from_core(state: abi::dwell_zero_state) -> ZeroState {
        ZeroState(state)
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_zero_state {
        self.0
    }

    /// Invalidates the cache of connection IDs.
    pub fn invalidate(&mut self) {
        self.0.generation = self.0.generation.wrapping_add(1).max(1);
    }

    /// Sets Unix time minus the kernel's clock, in seconds. Returns whether it changed.
    pub fn set_offset(&mut self, seconds: u32) -> bool {
        std::mem::replace(&mut self.0.unix_offset_s, seconds) != seconds
    }

    /// Marks the address and port as possibly belonging to such a VIP.
    pub fn mark_possible(&mut self, key: &super::VipKey) {
        let bit = super::zero_bit(key.address, key.port.unwrap_or(0));
        self.0.vip_filter[bit / 64] |= 1 << (bit % 64);
    }
}
