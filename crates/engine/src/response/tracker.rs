//! Configuration of a tracker, and the records that it leaves.

use std::{fmt, mem::offset_of};

use zerocopy::FromBytes;

use crate::{
    abi,
    filter::Filter,
    measure::{Endpoint, Protocol, Tunnel, endpoint},
    response::{Config, Epoch},
    table,
};

/// What identifies a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Key {
    /// The most specific of the other keys that the packet allows.
    Auto = abi::DWELL_KEY_AUTO,
    /// Addresses, ports and protocol.
    FiveTuple = abi::DWELL_KEY_5TUPLE,
    /// Addresses and protocol.
    IpPair = abi::DWELL_KEY_IP_PAIR,
    /// Addresses and the security parameter index of ESP.
    Esp = abi::DWELL_KEY_ESP,
    /// Addresses and the receiver index of WireGuard data.
    WireGuard = abi::DWELL_KEY_WIREGUARD,
    /// Addresses, ports and protocol, and QUIC's destination connection ID when they change.
    QuicCid = abi::DWELL_KEY_QUIC_CID,
    /// Addresses and protocol of the outermost IP header.
    Outer = abi::DWELL_KEY_OUTER,
}

impl Key {
    /// All keys.
    pub const ALL: [Key; 7] =
        [Key::Auto, Key::FiveTuple, Key::IpPair, Key::Esp, Key::WireGuard, Key::QuicCid, Key::Outer];

    /// Returns whether flows of this key have ports.
    pub fn has_ports(self) -> bool {
        matches!(self, Key::FiveTuple | Key::QuicCid)
    }

    /// Returns the name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Key::Auto => "auto",
            Key::FiveTuple => "5tuple",
            Key::IpPair => "ip-pair",
            Key::Esp => "esp",
            Key::WireGuard => "wireguard",
            Key::QuicCid => "quic-cid",
            Key::Outer => "outer",
        }
    }
}

/// Configuration of a [`Tracker`](super::Tracker).
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// How responses are estimated.
    pub config: Config,
    /// What identifies a flow.
    pub key: Key,
    /// Endpoints that are servers. Without any, the server is recognized by the SYN, by ports, or by who sends first.
    pub servers: Filter,
    /// The flows to follow.
    pub filter: Filter,
    /// The number of flows that the table must be able to hold at once.
    pub max_flows: u32,
    /// A flow without a packet for this time makes room for others.
    pub idle_timeout_ns: u64,
    /// Tell no flows apart by what encloses them.
    pub ignore_tunnels: bool,
    /// Seeds the flow hash, so that nobody can target one bucket.
    pub seed: u64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            config: Config::default(),
            key: Key::Auto,
            servers: Filter::default(),
            filter: Filter::default(),
            max_flows: 100_000,
            idle_timeout_ns: 30_000_000_000,
            ignore_tunnels: false,
            seed: 0,
        }
    }
}

impl Watch {
    /// Returns the number of buckets of the flow table.
    pub fn buckets(&self) -> u32 {
        table::buckets(self.max_flows)
    }

    /// Converts to the core's format.
    pub fn to_core(&self) -> abi::dwell_response_program {
        abi::dwell_response_program {
            table: table::to_core(&self.filter, self.max_flows, self.idle_timeout_ns, self.seed),
            response: self.config.to_core(),
            servers: self.servers.to_core(),
            key_kind: self.key as u8,
            ignore_tunnels: self.ignore_tunnels.into(),
            alias_mask: match self.key {
                Key::Auto | Key::QuicCid => self.buckets() * abi::DWELL_WAYS - 1,
                _ => 0,
            },
            ..Default::default()
        }
    }
}

/// An epoch of a flow.
#[derive(Debug, Clone)]
pub struct Record {
    /// The client.
    pub src: Endpoint,
    /// The server.
    pub dst: Endpoint,
    /// The transport protocol, as far as it is known.
    pub protocol: Protocol,
    /// What identified the flow.
    pub key: Key,
    /// The security parameter index, the receiver index, or a number of the QUIC connection that survives changes of
    /// its addresses; for keys that have one.
    pub id: Option<u32>,
    /// The source's number of the interface.
    pub interface: u32,
    /// What encloses the client's packets.
    pub tunnel: Tunnel,
    /// At a balancer, the number of the backend; otherwise 0.
    pub real: u32,
    /// At a balancer, the number of the VIP; otherwise 0.
    pub vip: u32,
    /// The record of the epoch.
    pub epoch: Box<Epoch>,
}

impl Record {
    /// Returns the flow as text: `192.0.2.1:40000 → 198.51.100.1:443`, with the identifier of its key and what encloses it, if any.
    pub fn flow(&self) -> impl fmt::Display + '_ {
        Flow(self)
    }

    /// Decodes a record of the kernel's ring buffer, which may end before its modes. Returns `None` if it is not one of
    /// ours, which callers should count.
    pub fn from_kernel(bytes: &[u8]) -> Option<Record> {
        const MODES: usize = offset_of!(abi::dwell_response_event, epoch) + offset_of!(abi::dwell_epoch, mode);
        let mut whole = [0; size_of::<abi::dwell_response_event>()];
        (bytes.len() >= MODES).then(|| whole.get_mut(..bytes.len()))??.copy_from_slice(bytes);
        let raw = abi::dwell_response_event::read_from_bytes(&whole).ok()?;
        (u32::from(raw.event) == abi::DWELL_EVENT_RESPONSE).then_some(())?;
        let key = Key::ALL.into_iter().find(|key| *key as u32 == u32::from(raw.key_kind))?;
        Some(Record {
            src: endpoint(raw.src, raw.src_port),
            dst: endpoint(raw.dst, raw.dst_port),
            protocol: Protocol(raw.proto),
            key,
            id: matches!(key, Key::Esp | Key::WireGuard | Key::QuicCid).then_some(raw.id),
            interface: raw.interface,
            tunnel: Tunnel(raw.tunnel),
            real: raw.real,
            vip: raw.vip,
            epoch: Box::new(raw.epoch),
        })
    }
}

struct Flow<'a>(&'a Record);

impl fmt::Display for Flow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow(record) = self;
        let (src, dst) = (&record.src, &record.dst);
        match record.key.has_ports() {
            true => write!(f, "{src} → {dst}")?,
            false => write!(f, "{} → {}", src.address, dst.address)?,
        }
        if let Some(id) = record.id {
            write!(f, " {} {id:#010x}", record.key.name())?;
        }
        if !record.tunnel.is_none() {
            write!(f, "  in {}", record.tunnel)?;
        }
        Ok(())
    }
}
