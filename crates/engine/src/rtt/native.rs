//! The C core run in user space.
#![allow(unsafe_code)]

use zerocopy::IntoBytes;

use crate::{
    abi,
    counters::{self, counters},
    measure::Event,
    observe::Observation,
    rtt::Config,
    table::{self, Sweep},
};

/// Follows flows and measures their round trips. The same C steps run in the
/// kernel.
pub struct Tracker {
    native: Box<abi::dwell_native>,
    /// Owned here, used through the pointers in `native`.
    _buckets: Vec<u64>,
    _flows: Vec<u64>,
    _memories: Vec<u64>,
    _stamps: Vec<u64>,
    sweep: Sweep,
}

// SAFETY: the pointers in `native` point into the vectors that move with
// it, and nothing else holds them.
unsafe impl Send for Tracker {}

impl Tracker {
    /// Memory is set aside for `max_flows` at once, and used as flows come.
    pub fn new(config: &Config) -> Tracker {
        let mut buckets = table::zeroed(config.buckets(), size_of::<abi::dwell_bucket>());
        let mut flows = table::zeroed(config.buckets() * abi::DWELL_WAYS, size_of::<abi::dwell_flow>());
        let mut memories = table::zeroed(config.buckets() * abi::DWELL_WAYS, size_of::<abi::dwell_cold>());
        let mut stamps = table::zeroed(config.stamps(), size_of::<abi::dwell_stamp>());
        let native = Box::new(abi::dwell_native {
            config: config.to_core(),
            buckets: buckets.as_mut_ptr().cast(),
            flows: flows.as_mut_ptr().cast(),
            cold: memories.as_mut_ptr().cast(),
            stamps: stamps.as_mut_ptr().cast(),
            ..Default::default()
        });
        Tracker {
            native,
            _buckets: buckets,
            _flows: flows,
            _memories: memories,
            _stamps: stamps,
            sweep: Sweep::default(),
        }
    }

    /// Observes one packet and hands on what it caused.
    pub fn observe(&mut self, packet: &Observation<'_>, mut emit: impl FnMut(Event)) {
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
                packet.time_ns,
            );
        }
        if self.native.events > 0 {
            self.drain(&mut emit);
        }
    }

    /// Closes flows that are idle at `time_ns`: the whole table about once a
    /// second of time, a part of it at each call. Without flow events nobody
    /// would see a difference, for idle flows make room when room is wanted.
    pub fn sweep(&mut self, time_ns: u64, mut emit: impl FnMut(Event)) {
        const PERIOD_NS: u64 = 1_000_000_000 / Sweep::PARTS as u64;
        let bucket_mask = self.native.config.table.bucket_mask;
        for bucket in self.sweep.due(time_ns, PERIOD_NS, bucket_mask) {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_IDLE, &mut emit);
        }
    }

    /// Closes all flows: the packets have come to an end.
    pub fn finish(&mut self, time_ns: u64, mut emit: impl FnMut(Event)) {
        for bucket in 0..=self.native.config.table.bucket_mask {
            self.sweep_bucket(bucket, time_ns, abi::DWELL_CLOSE_END, &mut emit);
        }
    }

    fn sweep_bucket(&mut self, bucket: u32, time_ns: u64, reason: u32, emit: &mut impl FnMut(Event)) {
        // SAFETY: the core masks the index to the table's size.
        unsafe {
            abi::dwell_native_sweep(&mut *self.native, bucket, time_ns, reason);
        }
        self.drain(emit);
    }

    fn drain(&mut self, emit: &mut impl FnMut(Event)) {
        for slot in &self.native.event[..self.native.events as usize] {
            // SAFETY: both members of the union are plain integers of the same
            // size without padding, and the core has written one of them.
            let bytes = unsafe { slot.sample.as_bytes() };
            emit(Event::from_kernel(bytes).expect("the core writes only its own events"));
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters(self.native.counters.value)
    }
}

/// What was seen, and why packets, flows or matches were not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters(pub(super) [u64; abi::DWELL_COUNTERS as usize]);

impl Counters {
    /// The counters of several CPUs as one.
    pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a abi::dwell_counters>) -> Counters {
        Counters(counters::sum(cpus.into_iter().map(|cpu| cpu.value)))
    }

    /// Places of the flow table that are taken, by flows that are over too.
    pub fn places_taken(&self) -> u64 {
        self.get(Counter::FlowsOpened).saturating_sub(self.get(Counter::PlacesFreed))
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

counters! {
    /// What is counted of packets and flows.
    Counter: abi::DWELL_COUNTERS;

    /// Packets that passed the vantage point.
    Packets = DWELL_SEEN_PACKETS, "packets";
    /// Their bytes.
    Bytes = DWELL_SEEN_BYTES, "bytes";
    /// Not IP.
    NotIp = DWELL_SKIP_NOT_IP, "not_ip";
    /// Nothing that a matcher knows.
    OtherProtocol = DWELL_SKIP_PROTOCOL, "other_protocol";
    /// A header was cut off.
    Truncated = DWELL_SKIP_TRUNCATED, "truncated";
    /// A length contradicted itself.
    Malformed = DWELL_SKIP_MALFORMED, "malformed";
    /// A fragment.
    Fragment = DWELL_SKIP_FRAGMENT, "fragment";
    /// More nested headers than are looked through.
    TooDeep = DWELL_SKIP_DEPTH, "too_deep";
    /// Left out by the filter.
    Filtered = DWELL_SKIP_FILTERED, "filtered";
    /// The link type is not known.
    UnknownLink = DWELL_SKIP_LINK, "unknown_link";
    /// Packets of servers, where only those of clients count.
    Server = DWELL_SKIP_SERVER, "server";
    /// An answer to nothing that was seen.
    Stray = DWELL_SKIP_STRAY, "stray";
    /// Flows that were given a place.
    FlowsOpened = DWELL_FLOWS_OPENED, "flows_opened";
    /// Flows closed before their idle timeout to make room.
    FlowsEvicted = DWELL_FLOWS_EVICTED, "flows_evicted";
    /// Flows closed after their idle timeout.
    FlowsExpired = DWELL_FLOWS_EXPIRED, "flows_expired";
    /// Packets of flows that found no place.
    Untracked = DWELL_FLOWS_UNTRACKED, "untracked";
    /// The same, as two CPUs wanted one place at once.
    Contended = DWELL_FLOWS_CONTENDED, "contended";
    /// Places of the flow table that became free again.
    PlacesFreed = DWELL_SLOTS_FREED, "places_freed";
    /// Packets whose time was kept.
    Stamps = DWELL_STAMPS_MADE, "stamps";
    /// Kept times lost to others within a second.
    StampsOverwritten = DWELL_STAMPS_OVERWRITTEN, "stamps_overwritten";
    /// Latencies measured.
    Samples = DWELL_SAMPLES, "samples";
    /// Samples and flow events that were not delivered to user space.
    EventsLost = DWELL_EVENTS_LOST, "events_lost";
    /// Times that retransmission or reordering made ACKs ambiguous.
    Ambiguous = DWELL_REJECT_AMBIGUOUS, "ambiguous";
    /// Spin-bit edges too soon after the last.
    SpinEarly = DWELL_REJECT_SPIN_EARLY, "spin_early";
    /// Spin-bit edges that do not alternate between the sides.
    SpinOrder = DWELL_REJECT_SPIN_ORDER, "spin_order";
    /// Answers that are older than what they answer.
    Backwards = DWELL_REJECT_BACKWARDS, "backwards";
    /// Samples of prefixes for which there was no group left.
    AggregateOther = DWELL_AGGREGATE_OTHER, "aggregate_other";
}

/// The histogram bucket of a value.
pub(crate) fn bucket_index(value_ns: u64) -> u32 {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_native_bucket_index(value_ns) }
}
