//! Placement of new QUIC connections so that 0-RTT works: each goes to the server that its client's address hashes to,
//! unless that server is overloaded and the client is one of those that load it ("TrafficGrinder: A 0-RTT-Aware QUIC
//! Load Balancer"). The steps are the core's, as in the kernel.

use std::{fmt, net::IpAddr, ops::RangeInclusive, time::Duration};

use super::{
    Constant, HeavyWindow, OutOfRange, native,
    range::{check_all, constants, in_range},
};
use crate::{
    abi,
    measure::{self, Endpoint},
    quic_lb::{Load, Stamp},
};

/// The greatest number of servers of a VIP.
pub const MOST_SERVERS: usize = abi::DWELL_SERVERS_MAX as usize;

/// The greatest number of connections that are recorded of a server.
pub const MOST_HEAVY: u32 = abi::DWELL_HEAVY_MAX;

/// The greatest number of packets in an interval.
const LONGEST_INTERVAL: u32 = 1 << 30;

/// Which connections of a server are heavy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyConfig {
    /// The number of connections that are recorded; 1 to [`MOST_HEAVY`].
    pub most: u32,
    /// The number of recorded connections that are heavy, those with most packets; from 1. Above `most`, all are heavy.
    pub top: u32,
    /// The number of packets in an interval; 16 to 2^30. Connections are ranked by their packets in a window that ends
    /// with the current packet and is one to two intervals long.
    pub interval: u32,
}

impl Default for HeavyConfig {
    /// The paper's number of connections, 20. The paper does not give the interval: see `docs/method/simulation.md`.
    fn default() -> HeavyConfig {
        HeavyConfig { most: 20, top: MOST_HEAVY, interval: 1000 }
    }
}

impl HeavyConfig {
    /// All constants, with their ranges.
    pub const CONSTANTS: [Constant<HeavyConfig>; 3] = constants! { HeavyConfig:
        most in 1 ..= MOST_HEAVY as u32;
        top in 1 ..= MOST_HEAVY as u32;
        interval in 16 ..= LONGEST_INTERVAL as u32;
    };

    /// Checks that all constants are in their ranges.
    ///
    /// # Errors
    ///
    /// The first constant that is out of its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check_all(&Self::CONSTANTS, self)
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_heavy_config {
        abi::dwell_heavy_config { most: self.most, interval: self.interval, top: self.top, reserved: 0 }
    }
}

/// A heavy connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heavy {
    /// The client's endpoint, as far as the balancer distinguishes it.
    pub client: Endpoint,
    /// The number of packets in the window, including those of connections that it replaced.
    pub packets: u32,
}

/// The heavy connections of one server.
#[derive(Clone)]
pub struct HeavyHitters {
    core: Box<abi::dwell_heavy>,
    config: HeavyConfig,
}

impl fmt::Debug for HeavyHitters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(heavy_of(&self.core)).finish()
    }
}

impl HeavyHitters {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn new(config: HeavyConfig) -> Result<HeavyHitters, OutOfRange> {
        config.check()?;
        Ok(HeavyHitters { core: Box::default(), config })
    }

    /// Creates a table that has these connections, each with its packets; of more than `config.most` the first.
    ///
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn of(heavy: &[Heavy], config: HeavyConfig) -> Result<HeavyHitters, OutOfRange> {
        // One interval, however many they are.
        let mut table = HeavyHitters::new(HeavyConfig { interval: LONGEST_INTERVAL, ..config })?;
        for (place, heavy) in heavy.iter().take(config.most as usize).enumerate() {
            // The first free entry is the next one.
            table.count(heavy.client.address, heavy.client.port, 0);
            table.core.count[place] = heavy.packets.max(1);
        }
        Ok(table)
    }

    /// Returns the table in the core's format.
    pub fn core(&self) -> &abi::dwell_heavy {
        &self.core
    }

    /// Sets how many of the recorded connections are heavy.
    ///
    /// # Errors
    ///
    /// The number is out of its range.
    pub fn set_top(&mut self, top: u32) -> Result<(), OutOfRange> {
        let config = HeavyConfig { top, ..self.config };
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// Returns the window.
    pub fn window(&self) -> HeavyWindow {
        HeavyWindow::of(&self.core, self.config)
    }

    /// Counts a packet of a client to this server. `random` must be uniform.
    pub fn count(&mut self, client: IpAddr, port: u16, random: u32) {
        native::count(&mut self.core, client, port, random, &self.config.to_core());
    }

    /// Returns whether a connection of this client is heavy.
    pub fn contains(&self, client: IpAddr) -> bool {
        native::contains(&self.core, client, &self.config.to_core())
    }

    /// Returns all heavy connections, the heaviest first.
    pub fn connections(&self) -> Vec<Heavy> {
        heavy_of(&self.core)
    }
}

/// Returns the heavy connections in a table of the core, the heaviest first.
pub fn heavy_of(table: &abi::dwell_heavy) -> Vec<Heavy> {
    let is_used = |slot: &usize| table.tags[slot / 4] >> (16 * (slot % 4)) & 0xffff != 0;
    let slots = (0..MOST_HEAVY as usize).filter(is_used);
    let mut heavy: Vec<Heavy> = slots
        .map(|slot| Heavy {
            client: measure::endpoint(table.client[slot].address, table.client[slot].port),
            packets: table.count[slot].saturating_add(table.before[slot]),
        })
        .collect();
    heavy.sort_by_key(|heavy| (std::cmp::Reverse(heavy.packets), heavy.client));
    heavy
}

/// When a server is overloaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverloadConfig {
    /// Its wait must exceed this percentile of all servers' waits; 0 to 1.
    pub percentile: f64,
    /// Its wait must also exceed the shortest wait by this much (a multiple of the mean RTT).
    pub margin: Duration,
    /// The time without a report after which the load of a server is unknown, in whole seconds; `None` for never.
    pub stale: Option<Duration>,
    /// The greatest difference between the clocks of servers and balancer, in whole seconds.
    pub slack: Duration,
}

impl Default for OverloadConfig {
    fn default() -> OverloadConfig {
        OverloadConfig {
            percentile: 0.8,
            margin: Duration::from_millis(20),
            stale: Some(Duration::from_secs(10)),
            slack: Duration::from_secs(5),
        }
    }
}

impl OverloadConfig {
    /// The range of `margin`.
    pub const MARGIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
    /// The range of `stale`.
    pub const STALE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
    /// The range of `slack`.
    pub const SLACK: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

    /// Checks that all constants are in their ranges.
    ///
    /// # Errors
    ///
    /// The first constant that is out of its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        in_range("percentile", self.percentile, 0.0, 1.0)?;
        let seconds = |name, value: Duration, range: RangeInclusive<Duration>| {
            in_range(name, value.as_secs_f64(), range.start().as_secs_f64(), range.end().as_secs_f64())
        };
        seconds("margin", self.margin, Self::MARGIN)?;
        if let Some(stale) = self.stale {
            seconds("stale", stale, Self::STALE)?;
        }
        seconds("slack", self.slack, Self::SLACK)
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_overload_config {
        abi::dwell_overload_config {
            margin_ns: self.margin.as_nanos() as u64,
            percentile: (self.percentile * 1000.0).round() as u32,
            stale_s: self.stale.map_or(0, |stale| stale.as_secs() as u32),
            slack_s: self.slack.as_secs() as u32,
            reserved: 0,
        }
    }
}

/// The result of a load report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadUpdate {
    /// The report is the newest.
    Newest,
    /// The report is not newer than what is known.
    Old,
    /// The report is from the future: refused.
    Ahead,
    /// The report is too old to be useful: refused.
    Stale,
}

/// Records the report of a server in a table of the core, at a Unix time.
pub fn update_load(
    load: &mut abi::dwell_server_load,
    stamp: Stamp,
    now: Duration,
    config: &abi::dwell_overload_config,
) -> LoadUpdate {
    match native::update(load, stamp, now, config) {
        abi::DWELL_LOAD_ACCEPTED => LoadUpdate::Newest,
        abi::DWELL_LOAD_FUTURE => LoadUpdate::Ahead,
        abi::DWELL_LOAD_STALE => LoadUpdate::Stale,
        _ => LoadUpdate::Old,
    }
}

/// The load reports of the servers of a VIP.
#[derive(Debug, Clone)]
pub struct Loads {
    /// As many as the core may access.
    servers: Vec<abi::dwell_server_load>,
    count: u32,
    config: abi::dwell_overload_config,
}

impl Loads {
    /// Creates the loads of this number of servers, at most [`MOST_SERVERS`], all unknown.
    ///
    /// # Errors
    ///
    /// A constant is out of its range.
    pub fn new(servers: usize, config: OverloadConfig) -> Result<Loads, OutOfRange> {
        config.check()?;
        let count = u32::try_from(servers).unwrap_or(u32::MAX);
        in_range("servers", count.into(), 1.0, MOST_SERVERS as f64)?;
        Ok(Loads { servers: vec![abi::dwell_server_load::default(); MOST_SERVERS], count, config: config.to_core() })
    }

    /// Records the report of a server, at a Unix time.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn update(&mut self, server: usize, stamp: Stamp, now: Duration) -> LoadUpdate {
        update_load(&mut self.servers[..self.count as usize][server], stamp, now, &self.config)
    }

    /// Sets whether a server gets new connections: one that is down or drained does not.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn set_usable(&mut self, server: usize, is_usable: bool) {
        let load = &mut self.servers[..self.count as usize][server];
        load.flags = if is_usable { 0 } else { abi::DWELL_SERVER_OUT };
    }

    /// Returns the load of a server, unknown if the server gets no new connections.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn load(&self, server: usize, now: Duration) -> Load {
        let load = &self.servers[..self.count as usize][server];
        native::load(load, now, &self.config)
    }

    /// Returns the server that a heavy client's new connection should go to instead, if this one is overloaded: the one
    /// with the shortest wait, and of several the first from `from` on.
    ///
    /// # Panics
    ///
    /// If there is no server with one of these numbers.
    pub fn divert(&self, server: usize, from: usize, now: Duration) -> Option<usize> {
        let count = self.count as usize;
        assert!(server < count && from < count, "a server of {count}");
        native::divert(&self.servers, (self.count, server, from), now, &self.config)
    }
}
