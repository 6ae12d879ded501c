//! Where new QUIC connections go so that 0-RTT works: to the server that their
//! client's address hashes to, unless that is overloaded and the client is one of
//! those who load it ("TrafficGrinder: A 0-RTT-Aware QUIC Load Balancer"). The
//! steps are the C core's, as in the kernel.
#![allow(unsafe_code)]

use std::{fmt, net::IpAddr, ops::RangeInclusive, time::Duration};

use super::{
    Constant, HeavyWindow, OutOfRange,
    range::{check_all, constants, in_range},
};
use crate::{
    abi,
    balance::to_core,
    measure::{self, Endpoint},
    quic_lb::{Load, Stamp},
};

/// Servers that a VIP may have.
pub const MOST_SERVERS: usize = abi::DWELL_SERVERS_MAX as usize;

/// Connections that can be kept of a server.
pub const MOST_HEAVY: u32 = abi::DWELL_HEAVY_MAX;

/// Which connections of a server are heavy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyConfig {
    /// So many are kept; 1 to [`MOST_HEAVY`].
    pub most: u32,
    /// And of these so many are heavy, those with most packets; from 1, beyond `most` all.
    pub top: u32,
    /// By packets in a window of two intervals of so many packets; 16 to 2^30. It
    /// ends as an interval does, and so is one to two of them long.
    pub interval: u32,
}

impl Default for HeavyConfig {
    /// The paper's 20. Its interval is not known: see `docs/method/simulation.md`.
    fn default() -> HeavyConfig {
        HeavyConfig { most: 20, top: MOST_HEAVY, interval: 1000 }
    }
}

impl HeavyConfig {
    /// All constants.
    pub const CONSTANTS: [Constant<HeavyConfig>; 3] = constants! { HeavyConfig:
        most in 1 ..= MOST_HEAVY as u32;
        top in 1 ..= MOST_HEAVY as u32;
        interval in 16 ..= 0x4000_0000 as u32;
    };

    /// # Errors
    ///
    /// The first number that is out of its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        check_all(&Self::CONSTANTS, self)
    }

    /// For the kernel.
    pub fn to_core(&self) -> abi::dwell_heavy_config {
        abi::dwell_heavy_config { most: self.most, interval: self.interval, top: self.top, reserved: 0 }
    }
}

/// A heavy connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heavy {
    /// The client's end, as far as the balancer keeps it apart.
    pub client: Endpoint,
    /// In the window. Those of whom it took the place are counted with it.
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
    /// # Errors
    ///
    /// A number of the configuration is out of its range.
    pub fn new(config: HeavyConfig) -> Result<HeavyHitters, OutOfRange> {
        config.check()?;
        Ok(HeavyHitters { core: Box::default(), config })
    }

    /// Of the connections that are kept so many are heavy from now on.
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

    /// What its window shows.
    pub fn window(&self) -> HeavyWindow {
        HeavyWindow::of(&self.core, self.config)
    }

    /// A packet of a client to this server. `random` is uniform.
    pub fn note(&mut self, client: IpAddr, port: u16, random: u32) {
        // SAFETY: the core writes within the table and keeps no pointer.
        unsafe {
            abi::dwell_steer_heavy_count(&mut *self.core, &to_core(client), port, random, &self.config.to_core());
        }
    }

    /// Whether a connection of this client is heavy.
    pub fn has(&self, client: IpAddr) -> bool {
        // SAFETY: the core reads within the table and keeps no pointer.
        unsafe { abi::dwell_steer_heavy_has(&*self.core, &to_core(client), &self.config.to_core()) != 0 }
    }

    /// All of them, the heaviest first.
    pub fn connections(&self) -> Vec<Heavy> {
        heavy_of(&self.core)
    }
}

/// The heavy connections in a table of the kernel's, the heaviest first.
pub fn heavy_of(table: &abi::dwell_heavy) -> Vec<Heavy> {
    let is_taken = |place: &usize| table.tags[place / 4] >> (16 * (place % 4)) & 0xffff != 0;
    let places = (0..MOST_HEAVY as usize).filter(is_taken);
    let mut heavy: Vec<Heavy> = places
        .map(|place| Heavy {
            client: measure::endpoint(table.client[place].address, table.client[place].port),
            packets: table.count[place].saturating_add(table.before[place]),
        })
        .collect();
    heavy.sort_by_key(|heavy| (std::cmp::Reverse(heavy.packets), heavy.client));
    heavy
}

/// When a server is overloaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverloadConfig {
    /// Its wait is above this percentile of all servers' waits; 0 to 1.
    pub percentile: f64,
    /// And above the least of them by more than this: a multiple of the mean RTT.
    pub margin: Duration,
    /// After so long without news of a server nothing is known of it; whole seconds, none: never.
    pub stale: Option<Duration>,
    /// By how much clocks of servers and balancer may differ; whole seconds.
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

    /// # Errors
    ///
    /// The first number that is out of its range.
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

    /// For the kernel.
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

/// What became of what a server said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is the newest.
    Newest,
    /// Not newer than what is known.
    Old,
    /// Of a time that is still to come: refused.
    Ahead,
    /// So old that it says nothing: refused.
    Stale,
}

/// What the servers of a VIP say of their load.
#[derive(Debug, Clone)]
pub struct Loads {
    /// As many as the core may touch.
    servers: Vec<abi::dwell_server_load>,
    count: u32,
    config: abi::dwell_overload_config,
}

impl Loads {
    /// Of so many servers, at most [`MOST_SERVERS`]; nothing is known of them.
    ///
    /// # Errors
    ///
    /// A number is out of its range.
    pub fn new(servers: usize, config: OverloadConfig) -> Result<Loads, OutOfRange> {
        config.check()?;
        let count = u32::try_from(servers).unwrap_or(u32::MAX);
        in_range("servers", count.into(), 1.0, MOST_SERVERS as f64)?;
        Ok(Loads { servers: vec![abi::dwell_server_load::default(); MOST_SERVERS], count, config: config.to_core() })
    }

    /// A server has said this, at a time since the epoch of Unix.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn note(&mut self, server: usize, stamp: Stamp, now: Duration) -> Noted {
        let load = &mut self.servers[..self.count as usize][server];
        let now_s = now.as_secs();
        // SAFETY: the core writes the one entry and keeps no pointer.
        let noted = unsafe { abi::dwell_steer_load_update(load, stamp.to_word(), now_s, now_s as u32, &self.config) };
        match noted {
            abi::DWELL_LOAD_ACCEPTED => Noted::Newest,
            abi::DWELL_LOAD_FUTURE => Noted::Ahead,
            abi::DWELL_LOAD_STALE => Noted::Stale,
            _ => Noted::Old,
        }
    }

    /// Whether a server gets anything new: one that is down or drained does not.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn set_usable(&mut self, server: usize, is_usable: bool) {
        let load = &mut self.servers[..self.count as usize][server];
        load.flags = if is_usable { 0 } else { abi::DWELL_SERVER_OUT };
    }

    /// What is known of a server: how long one waits there, if it can be given anything.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn load(&self, server: usize, now: Duration) -> Load {
        let load = &self.servers[..self.count as usize][server];
        // SAFETY: the core reads the one entry and keeps no pointer.
        let code = unsafe { abi::dwell_steer_load(load, now.as_secs() as u32, &self.config) };
        Load::from_code(code)
    }

    /// The server that should be given a heavy client's connection instead of this
    /// one, if this one is overloaded. Where several wait least, the first of them from
    /// `from` on.
    ///
    /// # Panics
    ///
    /// If there is no server of one of these numbers.
    pub fn divert(&self, server: usize, from: usize, now: Duration) -> Option<usize> {
        let count = self.count as usize;
        assert!(server < count && from < count, "a server of {count}");
        let mut least = 0;
        // SAFETY: there are as many entries as the core may read.
        let diverts = unsafe {
            abi::dwell_steer_divert(
                self.servers.as_ptr(),
                self.count,
                server as u32,
                from as u32,
                now.as_secs() as u32,
                &self.config,
                &mut least,
            )
        };
        (diverts != 0).then_some(least as usize)
    }
}
