//! The per-packet part of the estimators, and their flow table, run in user space.
#![allow(unsafe_code)]

use zerocopy::IntoBytes;

use crate::{
    abi,
    observe::Observation,
    response::{Config, Record, Watch},
    rtt::Counters,
    table::{self, Sweep, Sweeping},
};

/// The record of one epoch of a flow.
pub type Epoch = abi::dwell_epoch;

/// The state of one flow. In the kernel, the same bytes are in a map.
#[derive(Clone, Copy)]
pub struct Flow {
    state: abi::dwell_response_state,
    config: abi::dwell_response_config,
}

impl Flow {
    /// Creates the state of a flow without packets.
    pub fn new(config: &Config) -> Flow {
        Flow { state: abi::dwell_response_state::default(), config: config.to_core() }
    }

    /// Processes one packet. Returns the past epoch if the packet starts another one.
    pub fn step(&mut self, arrival: &abi::dwell_arrival) -> Option<Epoch> {
        let mut ended = Epoch::default();
        // SAFETY: all four are valid, and the core keeps no pointer.
        let ends = unsafe { abi::dwell_native_response_step(&mut self.state, &self.config, arrival, &mut ended) };
        (ends != 0).then_some(ended)
    }

    /// Ends the epoch if it is over at `now_ns`; `u64::MAX` always ends it. Returns `None` if it is not over, or was
    /// empty.
    pub fn end(&mut self, now_ns: u64) -> Option<Epoch> {
        let mut ended = Epoch::default();
        // SAFETY: as above.
        let ends = unsafe { abi::dwell_native_response_end(&mut self.state, &self.config, now_ns, &mut ended) };
        (ends != 0).then_some(ended)
    }
}

/// Returns a duration as the edges of a mode store it: rounded down and rounded up.
pub fn brief_edges(ns: u64) -> (u64, u64) {
    // SAFETY: pure functions of their arguments.
    unsafe {
        (
            abi::dwell_native_float16_ns(abi::dwell_native_float16_floor(ns)),
            abi::dwell_native_float16_ns(abi::dwell_native_float16_ceil(ns)),
        )
    }
}

/// Follows flows and records each epoch, by the same C code that runs in the kernel.
pub struct Tracker {
    core: Box<abi::dwell_slots>,
    /// Owned here, used through the pointers in `core`.
    _buckets: Vec<u64>,
    _memory: Vec<u64>,
    _aliases: Vec<u64>,
    sweep: Sweep,
}

// SAFETY: the pointers in `core` point into the vectors that move with it, and
// nothing else holds them.
unsafe impl Send for Tracker {}

impl Tracker {
    /// Creates a tracker. Memory is reserved for `max_flows`, and used as flows appear.
    pub fn new(watch: &Watch) -> Tracker {
        // SAFETY: pure functions.
        let (stride, alias_stride) =
            unsafe { (abi::dwell_slots_stride() as usize, abi::dwell_slots_alias_stride() as usize) };
        let program = watch.to_core();
        let mut aliases = table::zeroed(program.alias_mask + 1, alias_stride);
        let mut buckets = table::zeroed(watch.buckets(), size_of::<abi::dwell_slot_bucket>());
        let mut memory = table::zeroed(program.table.slots, stride);
        let core = Box::new(abi::dwell_slots {
            program,
            aliases: table::start(&mut aliases),
            buckets: table::start(&mut buckets),
            slots: table::start(&mut memory),
            ..Default::default()
        });
        Tracker { core, _buckets: buckets, _memory: memory, _aliases: aliases, sweep: Sweep::default() }
    }

    /// Processes one packet and emits the epochs that it ends.
    pub fn observe(&mut self, packet: &Observation<'_>, mut emit: impl FnMut(Record)) {
        // SAFETY: `data` is valid for its length; the tables are as large as the masks in the program's table say.
        unsafe {
            abi::dwell_slots_packet(
                &mut *self.core,
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

    /// Ends epochs that are over at `time_ns` without a packet, and flows that are idle: a part of the table at each
    /// call, the whole table once per quarter of an epoch.
    pub fn sweep(&mut self, time_ns: u64, emit: impl FnMut(Record)) {
        let whole_ns = self.core.program.response.epoch_ns / 4;
        self.sweep_part(time_ns, whole_ns, emit);
    }

    /// Ends all epochs, at the end of the input.
    pub fn finish(&mut self, time_ns: u64, emit: impl FnMut(Record)) {
        self.sweep_whole(time_ns, emit);
    }

    fn drain(&mut self, emit: &mut impl FnMut(Record)) {
        for event in &self.core.event[..self.core.events as usize] {
            let bytes = event.as_bytes();
            emit(Record::from_kernel(bytes).expect("the core writes only its own events"));
        }
    }

    /// Returns what was counted so far.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.core.counters])
    }
}

impl Sweeping for Tracker {
    type Event = Record;

    fn bucket_mask(&self) -> u32 {
        self.core.program.table.bucket_mask
    }

    fn progress(&mut self) -> &mut Sweep {
        &mut self.sweep
    }

    fn sweep_bucket(&mut self, bucket: u32, time_ns: u64, reason: u32, emit: &mut impl FnMut(Record)) {
        // SAFETY: the core masks the index to the table's size.
        unsafe {
            abi::dwell_slots_sweep(&mut *self.core, bucket, time_ns, reason);
        }
        self.drain(emit);
    }
}
