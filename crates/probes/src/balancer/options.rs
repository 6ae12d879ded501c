//! The options of a data plane, and the sizes of its maps that follow.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use dwell_engine::{
    abi, balance,
    response::{Config, Key, Watch},
};

use crate::{Chain, XdpMode, vantage::jiffy_ns};

/// A VIP's tables: its own, the one of equal weights, that of what its entries had recently, and the list of its backends.
pub(super) const TABLES_PER_VIP: u32 = 4;

/// The options of a data plane.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaneOptions {
    /// The number of connections in the connection table, rounded up to a power of two; see
    /// [`connection_bytes`](PlaneOptions::connection_bytes). The table is full slightly earlier; connections that find no slot go where the Maglev table says.
    pub max_connections: u32,
    /// The number of connections that are measured at the same time, where that many are to be, at most `max_connections`. Further
    /// ones are forwarded like all others.
    pub max_measured: u32,
    /// The greatest number of a VIP; the least is 1.
    pub max_vips: u32,
    /// The greatest number of a backend, below 2^24; the least is 1.
    pub max_reals: u32,
    /// The number of VIPs that route by connection ID: their slots are 1 to this.
    pub max_zero_vips: u16,
    /// The number of all servers of those VIPs; each takes 1.2 kB.
    pub max_zero_servers: u32,
    /// A connection without a packet for this time makes room for others.
    pub idle_timeout: Duration,
    /// A connection without a packet for this time is not active.
    pub active_timeout: Duration,
    /// The settings of the latency estimation.
    pub response: Config,
    /// The seed of backend selection: the same on all balancers of a VIP.
    pub hash_seed: u64,
    /// The seed of the connection table, so that nobody can target one of its slots; 0 draws one. A data plane that is
    /// taken over keeps its own.
    pub table_seed: u64,
    /// The source of encapsulating IPv4 headers: the upper 16 bits count, the others vary by flow.
    pub outer_v4: Ipv4Addr,
    /// The source of encapsulating IPv6 headers: the upper 64 bits count.
    pub outer_v6: Ipv6Addr,
    /// The slot of another XDP program that calls this one, instead of attaching to the interface.
    pub chain: Option<Chain>,
    /// What runs the program.
    pub mode: XdpMode,
    /// Frames leave the device where they arrived by a redirect to it. A veth needs that: what a program sends back
    /// waits in its peer's queue, unless the peer has a program too.
    pub redirects_back: bool,
}

impl Default for PlaneOptions {
    fn default() -> PlaneOptions {
        PlaneOptions {
            max_connections: 1 << 20,
            max_measured: 1 << 20,
            max_vips: 1024,
            max_reals: 16_384,
            max_zero_vips: 8,
            max_zero_servers: 1024,
            idle_timeout: Duration::from_secs(300),
            active_timeout: Duration::from_secs(1),
            response: Config::default(),
            hash_seed: 0x6477_656c_6c6c_6221,
            table_seed: 0,
            outer_v4: Ipv4Addr::new(172, 16, 0, 0),
            outer_v6: Ipv6Addr::new(0x0100, 0, 0, 0, 0, 0, 0, 0),
            chain: None,
            mode: XdpMode::Any,
            redirects_back: false,
        }
    }
}

impl PlaneOptions {
    /// Returns the number of buckets in the connection table: a power of two.
    pub(super) fn buckets(&self) -> u32 {
        let slots = self.max_connections.clamp(64, 1 << 24).next_power_of_two();
        slots / abi::DWELL_WAYS
    }

    /// Returns the number of slots in the connection table.
    pub(super) fn slots(&self) -> u32 {
        self.buckets() * abi::DWELL_WAYS
    }

    /// Returns the number of states of connections that are measured.
    pub(super) fn states(&self) -> u32 {
        self.max_measured.clamp(1, self.slots().min((1 << 24) - 1))
    }

    /// Returns the bytes that the connection table and the ring buffer of its epochs take in the kernel.
    pub fn connection_bytes(&self) -> u64 {
        u64::from(self.buckets()) * size_of::<abi::dwell_slot_bucket>() as u64
            + u64::from(self.slots()) * u64::from(balance::slot_bytes())
            + u64::from(self.states()) * u64::from(balance::STATE_BYTES)
            + u64::from(self.ring_bytes())
    }

    /// Returns the options with a seed of the connection table, drawn if there is none.
    pub(super) fn seeded(&self) -> PlaneOptions {
        let drawn = RandomState::new().hash_one(std::process::id()) | 1;
        let table_seed = match self.table_seed {
            0 => drawn,
            seed => seed,
        };
        PlaneOptions { table_seed, ..self.clone() }
    }

    pub(super) fn program(&self) -> abi::dwell_response_program {
        let watch = Watch {
            config: self.response.clone(),
            key: Key::FiveTuple,
            idle_timeout_ns: self.idle_timeout.as_nanos().try_into().unwrap_or(u64::MAX),
            seed: self.table_seed,
            ..Watch::default()
        };
        let mut program = watch.to_core();
        program.table.bucket_mask = self.buckets() - 1;
        program.table.slots = self.slots();
        program.jiffy_ns = jiffy_ns();
        program.stores_in_order = cfg!(any(target_arch = "x86_64", target_arch = "s390x")).into();
        let next = self.chain.as_ref().and_then(|chain| chain.next);
        program.chain_next = next.map_or(0, |next| next.saturating_add(1));
        program
    }

    pub(super) fn config(&self) -> abi::dwell_balance_config {
        abi::dwell_balance_config {
            cid_mask: self.cached_cids() - 1,
            redirects_back: self.redirects_back.into(),
            max_vips: self.max_vips,
            states: self.states(),
            ..balance::config(self.hash_seed, self.outer_v4, self.outer_v6, self.active_timeout)
        }
    }

    /// Returns the number of decrypted connection IDs that each CPU caches: 512 kB.
    fn cached_cids(&self) -> u32 {
        match self.max_zero_vips {
            0 => 1,
            _ => 8192,
        }
    }

    /// Returns the size of the ring buffer. The epochs of all connections may end at once; the sweep then pauses for
    /// them to be read.
    pub(super) fn ring_bytes(&self) -> u32 {
        let event_bytes = size_of::<abi::dwell_response_event>() as u32;
        (self.max_connections / 4).saturating_mul(event_bytes).clamp(1 << 22, 1 << 24).next_power_of_two()
    }

    /// Returns the layout that pinned maps must have to be taken over, except for the seed.
    pub(super) fn layout(&self) -> abi::dwell_balance_layout {
        abi::dwell_balance_layout {
            layout: abi::DWELL_BALANCE_LAYOUT,
            slot_bytes: balance::slot_bytes() + balance::STATE_BYTES,
            table_seed: self.table_seed,
            estimator: self.program().response.estimator.into(),
            chain_slot: self.chain.as_ref().map_or(0, |chain| chain.slot + 1),
        }
    }

    /// Returns the number of entries of a map that is sized by the options.
    pub(super) fn entries(&self, map: &str) -> Option<u32> {
        Some(match map {
            "buckets" => self.buckets(),
            "slots" => self.slots(),
            "states" => self.states(),
            "events" => self.ring_bytes(),
            // A number may have several keys, and each address has one for ICMP.
            "vips" => self.max_vips.saturating_mul(4),
            // Behind the tables of all VIPs are those of equal weights, and those of what entries had recently.
            "tables" => TABLES_PER_VIP * self.max_vips + 1,
            "vip_counts" => self.max_vips + 1,
            "reals" | "real_counts" | "actives" | "open" | "pending" => self.max_reals + 1,
            "zero_vips" | "zero_ids" | "zero_loads" => u32::from(self.max_zero_vips) + 1,
            "zero_numbers" => self.max_reals + 1,
            "heavies" | "other_heavies" => self.max_zero_servers + 1,
            // A server may have an ID in each layout.
            "zero_names" => self.max_zero_servers.saturating_mul(7).max(1),
            "cids" => self.cached_cids() + 1,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_connections_a_quarter_of_which_are_measured_take_less_than_200_megabytes() {
        let options = PlaneOptions { max_measured: 1 << 18, ..PlaneOptions::default() };
        assert!(options.slots() >= 1_000_000);
        let bytes = options.connection_bytes();
        assert!((150_000_000..200_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn seeds_are_drawn_unless_they_are_given() {
        let drawn = || PlaneOptions::default().seeded().table_seed;
        assert_ne!(drawn(), 0);
        assert_ne!(drawn(), drawn());
        let given = PlaneOptions { table_seed: 7, ..PlaneOptions::default() };
        assert_eq!(given.seeded().table_seed, 7);
    }
}
