//! The RTT matchers of the core, run in user space.
#![allow(unsafe_code)]

use zerocopy::IntoBytes;

use crate::{
    abi,
    counters::{counters, sums},
    measure::{self, Endpoint, Event, Protocol},
    observe::Observation,
    rtt::Config,
    table::{self, Sweep, Sweeping},
};

/// Follows flows and measures their round-trip times, by the same C code that runs in the kernel.
pub struct Tracker {
    native: Box<abi::dwell_native>,
    /// Owned here, used through the pointers in `native`.
    _buckets: Vec<u64>,
    _flows: Vec<u64>,
    _cold: Vec<u64>,
    _matchers: Vec<u64>,
    _stamps: Vec<u64>,
    _prepared: Vec<u64>,
    sweep: Sweep,
}

// SAFETY: the pointers in `native` point into the vectors that move with
// it, and nothing else holds them.
unsafe impl Send for Tracker {}

impl Tracker {
    /// Creates a tracker. Memory is reserved for `max_flows`, and used as flows appear.
    pub fn new(config: &Config) -> Tracker {
        let mut buckets = table::zeroed(config.buckets(), size_of::<abi::dwell_slot_bucket>());
        let mut flows = table::zeroed(config.slots(), size_of::<abi::dwell_flow>());
        let mut cold = table::zeroed(config.slots(), size_of::<abi::dwell_cold>());
        let mut matchers = table::zeroed(config.slots(), size_of::<abi::dwell_matcher>());
        let mut stamps = table::zeroed(config.stamps() / abi::DWELL_STAMP_WAYS, size_of::<abi::dwell_stamp_set>());
        let mut prepared = table::zeroed(abi::DWELL_NATIVE_AHEAD, abi::DWELL_NATIVE_PREPARED_BYTES as usize);
        let native = Box::new(abi::dwell_native {
            config: config.to_core(),
            buckets: table::start(&mut buckets),
            flows: table::start(&mut flows),
            cold: table::start(&mut cold),
            matchers: table::start(&mut matchers),
            stamps: table::start(&mut stamps),
            prepared: table::start(&mut prepared),
            ..Default::default()
        });
        Tracker {
            native,
            _buckets: buckets,
            _flows: flows,
            _cold: cold,
            _matchers: matchers,
            _stamps: stamps,
            _prepared: prepared,
            sweep: Sweep::default(),
        }
    }

    /// How many packets may be prepared and not observed yet.
    pub const AHEAD: u64 = abi::DWELL_NATIVE_AHEAD as u64;

    /// Reads a packet before its turn and has its flow fetched, so that [`Tracker::observe_prepared`] need not wait for memory.
    /// `number` is above 0 and larger than those of packets before it. A packet may be prepared and never observed.
    pub fn prepare(&mut self, number: u64, packet: &Observation<'_>) {
        // SAFETY: `data` is valid for its length; `prepared` has room for as many packets as the core keeps.
        unsafe {
            abi::dwell_native_prepare(
                &mut *self.native,
                packet.data.as_ptr().cast(),
                packet.data.len() as u32,
                packet.wire_len,
                packet.link,
                packet.interface,
                number,
            );
        }
    }

    /// Processes one packet and emits the resulting events.
    pub fn observe(&mut self, packet: &Observation<'_>, emit: impl FnMut(Event)) {
        self.observe_prepared(0, packet, emit);
    }

    /// Processes one packet, which may have been prepared under this number, with the same result.
    pub fn observe_prepared(&mut self, number: u64, packet: &Observation<'_>, mut emit: impl FnMut(Event)) {
        // SAFETY: `data` is valid for its length; the tables are as large as
        // the masks in `native.config` say.
        unsafe {
            abi::dwell_native_packet(
                &mut *self.native,
                packet.data.as_ptr().cast(),
                packet.data.len() as u32,
                packet.wire_len,
                packet.link,
                packet.interface,
                number,
                packet.time_ns,
            );
        }
        if self.native.events > 0 {
            self.drain(&mut emit);
        }
    }

    /// Closes flows that are idle at `time_ns`: a part of the table at each call, the whole table about once a second.
    /// Without flow events this is not needed, because idle flows make room when room is needed.
    pub fn sweep(&mut self, time_ns: u64, emit: impl FnMut(Event)) {
        self.sweep_part(time_ns, 1_000_000_000, emit);
    }

    /// Closes all flows, at the end of the input.
    pub fn finish(&mut self, time_ns: u64, emit: impl FnMut(Event)) {
        self.sweep_whole(time_ns, emit);
    }

    fn drain(&mut self, emit: &mut impl FnMut(Event)) {
        for slot in &self.native.event[..self.native.events as usize] {
            // SAFETY: both members of the union are plain integers of the same
            // size without padding, and the core has written one of them.
            let bytes = unsafe { slot.sample.as_bytes() };
            emit(Event::from_kernel(bytes).expect("the core writes only its own events"));
        }
    }

    /// Returns what was counted so far.
    pub fn counters(&self) -> Counters {
        Counters(self.native.counters.value)
    }
}

/// Returns the words of a key, which tell flows apart as the core does.
fn words_of(key: &abi::dwell_flow_key) -> [u64; 5] {
    // SAFETY: of both members of the union, which are of the same type, one is written.
    let interface = unsafe { key.__bindgen_anon_1.interface };
    let ports = u64::from(key.a_port) << 48 | u64::from(key.b_port) << 32 | u64::from(interface);
    [key.a.high, key.a.low, key.b.high, key.b.low, ports]
}

/// What a packet carries over TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payload<'a> {
    pub src: Endpoint,
    pub dst: Endpoint,
    pub protocol: Protocol,
    /// The sequence number of the segment; of UDP 0.
    pub seq: u32,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub wire_bytes: u32,
}

impl<'a> Payload<'a> {
    /// Reads a packet, whatever encloses it. `None` if it is not of TCP or UDP, malformed, a fragment, or cut off before
    /// its payload.
    pub fn read(packet: &Observation<'a>) -> Option<Payload<'a>> {
        let mut raw = abi::dwell_native_payload::default();
        // SAFETY: `data` is valid for its length, and the core reads no further.
        let result = unsafe {
            abi::dwell_native_payload(
                packet.data.as_ptr().cast(),
                packet.data.len() as u32,
                packet.wire_len,
                packet.link,
                &mut raw,
            )
        };
        if result != abi::DWELL_COUNTERS {
            return None;
        }
        let bytes = packet.data.get(raw.offset as usize..)?;
        Some(Payload {
            src: measure::endpoint(raw.src, raw.src_port),
            dst: measure::endpoint(raw.dst, raw.dst_port),
            protocol: Protocol(raw.proto),
            seq: raw.seq,
            // A short frame is padded.
            bytes: &bytes[..bytes.len().min(raw.bytes as usize)],
            wire_bytes: raw.bytes,
        })
    }

    /// Whether all of it was captured.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.wire_bytes as usize
    }
}

/// Why a packet is not read as a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSegment {
    CutOff,
    Other,
}

/// A segment of TCP in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The time of the packet in nanoseconds.
    pub time_ns: u64,
    /// The interface of the capture, or what encloses the packet.
    pub interface: u32,
    /// The same for both directions of a connection, and for no other of the interface.
    pub connection: [u64; 5],
    /// Which of the directions it is.
    pub direction: u8,
    pub src: Endpoint,
    pub dst: Endpoint,
    pub seq: u32,
    pub ack: u32,
    pub payload_bytes: u32,
    /// TLS's type of the record with which the payload begins.
    pub tls: Option<u8>,
    /// TSval and TSecr.
    pub stamps: Option<(u32, u32)>,
    /// The first block of the SACK option.
    pub sack: Option<(u32, u32)>,
    /// Not scaled.
    pub window: u16,
    /// Of a SYN.
    pub mss: Option<u16>,
    /// Of a SYN.
    pub scale: Option<u8>,
    /// The flags of TCP.
    pub flags: u8,
}

impl Segment {
    pub const FIN: u8 = abi::DWELL_TCP_FIN as u8;
    pub const SYN: u8 = abi::DWELL_TCP_SYN as u8;
    pub const RST: u8 = abi::DWELL_TCP_RST as u8;
    pub const ACK: u8 = abi::DWELL_TCP_ACK as u8;

    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// If it is cut off within its headers; else if it is not of TCP, malformed, or not of a flow that the configuration's filter
    /// admits.
    pub fn read(packet: &Observation<'_>, config: &abi::dwell_rtt_config) -> Result<Segment, NoSegment> {
        let mut raw = abi::dwell_native_segment::default();
        // SAFETY: `data` is valid for its length, and the core reads no further.
        let result = unsafe {
            abi::dwell_native_segment(
                config,
                packet.data.as_ptr().cast(),
                packet.data.len() as u32,
                packet.wire_len,
                packet.link,
                packet.interface,
                &mut raw,
            )
        };
        if result == abi::DWELL_SKIP_TRUNCATED {
            return Err(NoSegment::CutOff);
        }
        if result != abi::DWELL_COUNTERS {
            return Err(NoSegment::Other);
        }
        let a = measure::endpoint(raw.key.a, raw.key.a_port);
        let b = measure::endpoint(raw.key.b, raw.key.b_port);
        let (src, dst) = if raw.direction == 0 { (a, b) } else { (b, a) };
        let payload = packet.data.get(raw.payload_offset as usize..).unwrap_or_default();
        let is_tls = matches!(payload, [0x14..=0x17, 3, 0..=4, ..]) && raw.payload_bytes >= 5;
        Ok(Segment {
            time_ns: packet.time_ns,
            interface: raw.interface,
            connection: words_of(&raw.key),
            direction: raw.direction,
            src,
            dst,
            seq: raw.seq,
            ack: raw.ack,
            payload_bytes: raw.payload_bytes,
            tls: is_tls.then(|| payload[0]),
            stamps: (raw.has_ts != 0).then_some((raw.tsval, raw.tsecr)),
            sack: (raw.has_sack != 0).then_some((raw.sack_left, raw.sack_right)),
            window: raw.window,
            mss: (raw.mss > 0).then_some(raw.mss),
            scale: (raw.has_scale != 0).then_some(raw.scale),
            flags: raw.flags,
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Sweeping for Tracker {
    type Event = Event;

    fn bucket_mask(&self) -> u32 {
        self.native.config.table.bucket_mask
    }

    fn progress(&mut self) -> &mut Sweep {
        &mut self.sweep
    }

    fn sweep_bucket(&mut self, bucket: u32, time_ns: u64, reason: u32, emit: &mut impl FnMut(Event)) {
        // SAFETY: the core masks the index to the table's size.
        unsafe {
            abi::dwell_native_sweep(&mut *self.native, bucket, time_ns, reason);
        }
        self.drain(emit);
    }
}

/// Counts packets and flows, and the reasons why packets, flows or matches were not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters(pub(super) [u64; abi::DWELL_COUNTERS as usize]);

sums!(Counters of dwell_counters by Counter);

impl Counters {
    /// Returns the number of occupied slots of the flow table, including those of flows that are over.
    pub fn slots_taken(&self) -> u64 {
        self.get(Counter::FlowsOpened).saturating_sub(self.get(Counter::SlotsFreed))
    }

    /// Adds to one of the counters, which user space counts.
    #[must_use]
    pub fn plus(mut self, counter: Counter, more: u64) -> Counters {
        self.0[counter as usize] += more;
        self
    }
}

counters! {
    /// A count of packets, flows or matches.
    Counter: abi::DWELL_COUNTERS;

    /// Packets that passed the vantage point.
    Packets = DWELL_SEEN_PACKETS, "packets";
    /// Bytes of these packets.
    Bytes = DWELL_SEEN_BYTES, "bytes";
    /// Packets that are not IP.
    NotIp = DWELL_SKIP_NOT_IP, "not_ip";
    /// Packets that no matcher handles.
    OtherProtocol = DWELL_SKIP_PROTOCOL, "other_protocol";
    /// Packets with a truncated header.
    Truncated = DWELL_SKIP_TRUNCATED, "truncated";
    /// Packets with a length that contradicts itself.
    Malformed = DWELL_SKIP_MALFORMED, "malformed";
    /// Fragments.
    Fragment = DWELL_SKIP_FRAGMENT, "fragment";
    /// Packets with more nested headers than are parsed.
    TooDeep = DWELL_SKIP_DEPTH, "too_deep";
    /// Packets that the filter excludes.
    Filtered = DWELL_SKIP_FILTERED, "filtered";
    /// Packets with an unknown link type.
    UnknownLink = DWELL_SKIP_LINK, "unknown_link";
    /// Packets of servers, where only those of clients count.
    Server = DWELL_SKIP_SERVER, "server";
    /// Answers to nothing that was seen.
    Stray = DWELL_SKIP_STRAY, "stray";
    /// Packets of epochs that show nothing, and have no record.
    Unreported = DWELL_SKIP_BRIEF, "unreported";
    /// Flows that got a slot.
    FlowsOpened = DWELL_FLOWS_OPENED, "flows_opened";
    /// Flows closed before their idle timeout to make room.
    FlowsEvicted = DWELL_FLOWS_EVICTED, "flows_evicted";
    /// Flows closed after their idle timeout.
    FlowsExpired = DWELL_FLOWS_EXPIRED, "flows_expired";
    /// Packets of flows that found no slot.
    Untracked = DWELL_FLOWS_UNTRACKED, "untracked";
    /// Packets of flows that found no slot because two CPUs wanted one at once.
    Contended = DWELL_FLOWS_CONTENDED, "contended";
    /// Slots of the flow table that became free again.
    SlotsFreed = DWELL_SLOTS_FREED, "slots_freed";
    /// Packets whose time was recorded.
    Stamps = DWELL_STAMPS_MADE, "stamps";
    /// Recorded times that were overwritten within a second.
    StampsOverwritten = DWELL_STAMPS_OVERWRITTEN, "stamps_overwritten";
    /// Latencies measured.
    Samples = DWELL_SAMPLES, "samples";
    /// Samples and flow events that were not delivered to user space.
    EventsLost = DWELL_EVENTS_LOST, "events_lost";
    /// ACKs that were ambiguous because of retransmission or reordering.
    Ambiguous = DWELL_REJECT_AMBIGUOUS, "ambiguous";
    /// Spin-bit edges too soon after the previous one.
    SpinEarly = DWELL_REJECT_SPIN_EARLY, "spin_early";
    /// Spin-bit edges that do not alternate between the sides.
    SpinOrder = DWELL_REJECT_SPIN_ORDER, "spin_order";
    /// Answers that are older than their request.
    Backwards = DWELL_REJECT_BACKWARDS, "backwards";
    /// Samples of prefixes that found no free group.
    AggregateOther = DWELL_AGGREGATE_OTHER, "aggregate_other";
    /// Groups that made room for others after a time without samples.
    GroupsFreed = DWELL_GROUPS_FREED, "groups_freed";
}

/// Returns the histogram bucket of a value.
pub(crate) fn bucket_index(value_ns: u64) -> u32 {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_native_bucket_index(value_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN in an Ethernet frame.
    fn syn(client: u8) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 20];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..26].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame[26..30].copy_from_slice(&[10, 0, 0, client]);
        frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
        frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        frame[46..48].copy_from_slice(&[0x50, 0x02]);
        frame
    }

    #[test]
    fn flows_take_slots_that_were_freed_before_slots_that_were_never_used() {
        let mut tracker = Tracker::new(&Config { max_flows: 1000, ..Config::default() });
        for clients in [0..100, 100..180, 50..150] {
            for client in clients {
                let data = syn(client);
                let packet = Observation { time_ns: 1_000_000_000, interface: 1, link: 1, data: &data, wire_len: 54 };
                tracker.observe(&packet, drop);
            }
            tracker.finish(1_000_000_000, drop);
        }
        let opened = tracker.counters().get(Counter::FlowsOpened);
        assert_eq!((opened, tracker.native.pool.fresh), (280, 100));
    }
}
