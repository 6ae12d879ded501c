//! The per-packet part with its flow table, run in user space.
#![allow(unsafe_code)]

use std::{fmt, mem::offset_of};

use zerocopy::FromBytes;

use crate::{
    abi,
    measure::{Endpoint, Protocol, endpoint},
    observe::Observation,
    response::{Config, Epoch},
    rtt::{Counters, FilterRule},
    table::{self, Sweep},
};

/// What tells the packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Key {
    /// Whatever the packet is: the most telling of the others.
    Auto = abi::DWELL_KEY_AUTO,
    /// Addresses, ports and protocol.
    FiveTuple = abi::DWELL_KEY_5TUPLE,
    /// Addresses and protocol.
    IpPair = abi::DWELL_KEY_IP_PAIR,
    /// Addresses and the security parameter index of ESP.
    Esp = abi::DWELL_KEY_ESP,
    /// Addresses and the receiver index of WireGuard data.
    WireGuard = abi::DWELL_KEY_WIREGUARD,
    /// Addresses, ports and protocol, and QUIC's destination connection ID where
    /// they change.
    QuicCid = abi::DWELL_KEY_QUIC_CID,
    /// Addresses and protocol of the outermost IP header.
    Outer = abi::DWELL_KEY_OUTER,
}

impl Key {
    /// All of them.
    pub const ALL: [Key; 7] =
        [Key::Auto, Key::FiveTuple, Key::IpPair, Key::Esp, Key::WireGuard, Key::QuicCid, Key::Outer];

    /// Whether flows that it tells have ports.
    pub fn has_ports(self) -> bool {
        matches!(self, Key::FiveTuple | Key::QuicCid)
    }

    /// Its name in options and output.
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

/// What to watch, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Watch {
    /// How responses are estimated.
    pub config: Config,
    /// What tells flows apart.
    pub key: Key,
    /// Ends that are servers; none: told by the SYN, by ports, or by who sends first.
    pub servers: Vec<FilterRule>,
    /// Which flows to follow.
    pub filter: Vec<FilterRule>,
    /// Flows that the table must hold at once.
    pub max_flows: u32,
    /// A flow without a packet for so long makes room for others.
    pub idle_timeout_ns: u64,
    /// Seeds the flow hash, so that nobody can aim at one bucket.
    pub seed: u64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            config: Config::default(),
            key: Key::Auto,
            servers: Vec::new(),
            filter: Vec::new(),
            max_flows: 100_000,
            idle_timeout_ns: 30_000_000_000,
            seed: 0,
        }
    }
}

impl Watch {
    /// Buckets of the flow table.
    pub fn buckets(&self) -> u32 {
        table::buckets(self.max_flows)
    }

    /// The same in the core's terms.
    pub fn to_core(&self) -> abi::dwell_response_program {
        abi::dwell_response_program {
            table: table::to_core(&self.filter, self.max_flows, self.idle_timeout_ns, self.seed),
            response: self.config.to_core(),
            servers: FilterRule::all_to_core(&self.servers),
            key_kind: self.key as u8,
            slots: self.buckets() * abi::DWELL_WAYS,
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
    /// The transport, as far as it is known.
    pub protocol: Protocol,
    /// What told the flow.
    pub key: Key,
    /// Security parameter index, receiver index, or a number of the QUIC
    /// connection that stays when its addresses change; for keys that have one.
    pub id: Option<u32>,
    /// The source's number for the interface.
    pub interface: u32,
    /// At a balancer, the number of the backend; else 0.
    pub real: u32,
    /// At a balancer, the number of the VIP; else 0.
    pub vip: u32,
    /// What was seen.
    pub epoch: Box<Epoch>,
}

impl Record {
    /// The flow as text: `192.0.2.1:40000 → 198.51.100.1:443`, with the identifier
    /// that its key has.
    pub fn flow(&self) -> impl fmt::Display + '_ {
        Flow(self)
    }

    /// Decodes a record of the kernel's ring buffer, which may be cut before its
    /// modes. `None` if it is none of ours, which a user of the crate should count.
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
        match record.id {
            Some(id) => write!(f, " {} {id:#010x}", record.key.name()),
            None => Ok(()),
        }
    }
}

/// Follows flows and leaves a record of each epoch. The same C steps run in the
/// kernel.
pub struct Tracker {
    seats: Box<abi::dwell_slots>,
    /// Owned here, used through the pointers in `seats`.
    _buckets: Vec<u64>,
    _memory: Vec<u64>,
    _aliases: Vec<u64>,
    sweep: Sweep,
}

// SAFETY: the pointers in `seats` point into the vectors that move with it, and
// nothing else holds them.
unsafe impl Send for Tracker {}

impl Tracker {
    /// Memory is set aside for `max_flows` at once, and used as flows come.
    pub fn new(watch: &Watch) -> Tracker {
        // SAFETY: pure functions.
        let (stride, alias_stride) =
            unsafe { (abi::dwell_slots_stride() as usize, abi::dwell_slots_alias_stride() as usize) };
        let program = watch.to_core();
        let mut aliases = table::zeroed(program.alias_mask + 1, alias_stride);
        let mut buckets = table::zeroed(watch.buckets(), size_of::<abi::dwell_slot_bucket>());
        let mut memory = table::zeroed(program.slots, stride);
        let seats = Box::new(abi::dwell_slots {
            program,
            aliases: aliases.as_mut_ptr().cast(),
            buckets: buckets.as_mut_ptr().cast(),
            slots: memory.as_mut_ptr().cast(),
            ..Default::default()
        });
        Tracker { seats, _buckets: buckets, _memory: memory, _aliases: aliases, sweep: Sweep::default() }
    }

    /// Observes one packet and hands on the epochs that it ends.
    pub fn observe(&mut self, packet: &Observation<'_>, mut emit: impl FnMut(Record)) {
        // SAFETY: `data` is valid for its length; the tables are as large as
        // the mask in the program's table says.
        unsafe {
            abi::dwell_slots_packet(
                &mut *self.seats,
                packet.data.as_ptr().cast(),
                packet.data.len() as u32,
                packet.wire_len,
                packet.link,
                packet.interface,
                packet.time_ns,
            );
        }
        self.drain(&mut emit);
    }

    /// Ends epochs that are over at `time_ns` though no packet said so, and
    /// flows that are idle: the whole table once a quarter of an epoch of time,
    /// a part of it at each call.
    pub fn sweep(&mut self, time_ns: u64, mut emit: impl FnMut(Record)) {
        let program = &self.seats.program;
        let period_ns = program.response.epoch_ns / 4 / u64::from(Sweep::PARTS);
        let bucket_mask = program.table.bucket_mask;
        for bucket in self.sweep.due(time_ns, period_ns, bucket_mask) {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_IDLE, &mut emit);
        }
    }

    /// Ends all epochs: the packets have come to an end.
    pub fn finish(&mut self, time_ns: u64, mut emit: impl FnMut(Record)) {
        for bucket in 0..=self.seats.program.table.bucket_mask {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_END, &mut emit);
        }
    }

    fn sweep_bucket(&mut self, bucket: u32, time_ns: u64, reason: u32, emit: &mut impl FnMut(Record)) {
        // SAFETY: the core masks the index to the table's size.
        unsafe {
            abi::dwell_slots_sweep(&mut *self.seats, bucket, time_ns, reason);
        }
        self.drain(emit);
    }

    fn drain(&mut self, emit: &mut impl FnMut(Record)) {
        for event in &self.seats.event[..self.seats.events as usize] {
            let bytes = zerocopy::IntoBytes::as_bytes(event);
            emit(Record::from_kernel(bytes).expect("the core writes only its own events"));
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.seats.counters])
    }
}
