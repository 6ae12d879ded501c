//! A VIP of QUIC whose packets go where their connection ID says.

use std::{fmt, time::Duration};

use crate::{
    abi, quic_lb,
    steer::zero_rtt::{HeavyConfig, MOST_SERVERS, OverloadConfig},
};

/// By which connection IDs name a server: a number, written with as many octets as the layout
/// has for it, the highest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u128);

impl ServerId {
    /// In so many octets; none if it has more.
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

/// A backend that has an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroServer {
    /// Its number as a backend.
    pub real: u32,
    /// Its name in connection IDs.
    pub id: ServerId,
    /// It gets no new connections: it is down, or drained.
    pub is_out: bool,
}

/// How a VIP's packets are routed.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroVip {
    /// A layout a rotation at most.
    pub layouts: Vec<quic_lb::Config>,
    /// Its servers, in any order; at most 1,024.
    pub servers: Vec<ZeroServer>,
    /// Whose connections are heavy.
    pub heavy: HeavyConfig,
    /// Which servers are overloaded.
    pub overload: OverloadConfig,
    /// A connection ID in a long header is not older.
    pub window: Duration,
    /// For so long after its last packet a new connection stays at its server before it knows a
    /// connection ID.
    pub attempt: Duration,
    /// A client that is heavy at any server is heavy.
    pub is_any_heavy: bool,
    /// A short header without a server's ID goes as its connection began, not nowhere.
    pub is_unroutable_hashed: bool,
}

/// Where servers are in all arrays of a VIP: who was there keeps place and number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seating {
    /// Real and number of the table of heavy hitters by place; 0: nobody.
    pub places: Vec<(u32, u32)>,
}

impl Seating {
    /// What the core has.
    pub fn from_core(vip: &abi::dwell_zero_vip) -> Seating {
        let used = (vip.servers as usize).min(MOST_SERVERS);
        let places = vip.server[..used].iter();
        Seating { places: places.map(|server| (server.real, server.heavy)).collect() }
    }

    /// Who stays keeps its place; who is new takes one that is free, and a number that `free` has.
    /// None if there is none left. Returns the places of those who are new as well.
    pub fn seat(&self, servers: &[ZeroServer], mut free: impl Iterator<Item = u32>) -> Option<(Seating, Vec<usize>)> {
        let is_wanted = |real: u32| servers.iter().any(|server| server.real == real);
        let mut places: Vec<(u32, u32)> = self.places.clone();
        for place in &mut places {
            if !is_wanted(place.0) {
                *place = (0, 0);
            }
        }
        let mut new = Vec::new();
        for server in servers {
            if places.iter().any(|(real, _)| *real == server.real) {
                continue;
            }
            let at = match places.iter().position(|(real, _)| *real == 0) {
                Some(at) => at,
                None => {
                    places.push((0, 0));
                    places.len() - 1
                }
            };
            if at >= MOST_SERVERS {
                return None;
            }
            places[at] = (server.real, free.next()?);
            new.push(at);
        }
        Some((Seating { places }, new))
    }

    /// The place of a backend.
    pub fn place(&self, real: u32) -> Option<usize> {
        self.places.iter().position(|(other, _)| *other == real)
    }
}

impl ZeroVip {
    /// Of these layouts and these servers, by the numbers of backends, with usual constants. All
    /// servers get new connections.
    pub fn new(layouts: Vec<quic_lb::Config>, servers: impl IntoIterator<Item = (u32, ServerId)>) -> ZeroVip {
        let servers = servers.into_iter().map(|(real, id)| ZeroServer { real, id, is_out: false });
        ZeroVip {
            layouts,
            servers: servers.collect(),
            heavy: HeavyConfig::default(),
            overload: OverloadConfig::default(),
            window: Duration::from_secs(60),
            attempt: Duration::from_secs(10),
            is_any_heavy: false,
            is_unroutable_hashed: false,
        }
    }

    /// As the core has it.
    pub fn to_core(&self, seating: &Seating) -> Box<abi::dwell_zero_vip> {
        let mut core = Box::<abi::dwell_zero_vip>::default();
        for layout in &self.layouts {
            core.layout[usize::from(layout.rotation())] = *layout.to_core();
        }
        core.overload = self.overload.to_core();
        core.heavy = self.heavy.to_core();
        core.servers = seating.places.len() as u32;
        core.window_s = self.window.as_secs().try_into().unwrap_or(u32::MAX / 2);
        core.attempt_coarse = (self.attempt.as_nanos() >> 20).try_into().unwrap_or(u32::MAX / 2);
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        core.flags =
            flag(self.is_unroutable_hashed, abi::DWELL_ZERO_HASH) | flag(self.is_any_heavy, abi::DWELL_ZERO_ANY);
        for (server, (real, heavy)) in core.server.iter_mut().zip(&seating.places) {
            (server.real, server.heavy) = (*real, *heavy);
        }
        core
    }

    /// Places plus 1 by IDs of our own layout, and by those of others.
    pub fn ids(&self, slot: u16, seating: &Seating) -> (Box<abi::dwell_zero_ids>, Vec<(abi::dwell_zero_name, u32)>) {
        let mut own = Box::<abi::dwell_zero_ids>::default();
        let mut names: Vec<(abi::dwell_zero_name, u32)> = Vec::new();
        for server in &self.servers {
            let Some(place) = seating.place(server.real) else {
                continue;
            };
            for layout in &self.layouts {
                let Some(octets) = server.id.octets(layout.server_id_bytes()) else {
                    continue;
                };
                if layout.is_stamped() {
                    own.server[server.id.0 as usize & 0xffff] = place as u16 + 1;
                    continue;
                }
                let mut name = abi::dwell_zero_name { slot: slot.into(), bytes: layout.server_id_bytes(), id: [0; 15] };
                name.id[..octets.len()].copy_from_slice(&octets);
                names.push((name, place as u32 + 1));
            }
        }
        (own, names)
    }
}

/// What all these VIPs share.
#[derive(Debug, Clone, Default)]
pub struct ZeroState(abi::dwell_zero_state);

impl ZeroState {
    /// What the core has.
    pub fn from_core(state: abi::dwell_zero_state) -> ZeroState {
        ZeroState(state)
    }

    /// As the core has it.
    pub fn to_core(&self) -> abi::dwell_zero_state {
        self.0
    }

    /// What was cached is not so any more.
    pub fn forget(&mut self) {
        self.0.generation = self.0.generation.wrapping_add(1).max(1);
    }

    /// Unix time less the kernel's clock, in seconds; true if it is another.
    pub fn set_offset(&mut self, seconds: u32) -> bool {
        std::mem::replace(&mut self.0.unix_offset_s, seconds) != seconds
    }

    /// Packets to here may be of such a VIP.
    pub fn may_be(&mut self, key: &super::VipKey) {
        let bit = super::zero_bit(key.address, key.port.unwrap_or(0));
        self.0.vip_filter[bit / 64] |= 1 << (bit % 64);
    }
}
