//! The balancer of the core, run in user space.
#![allow(unsafe_code)]

use std::{net::IpAddr, ptr, time::Duration};

use zerocopy::IntoBytes;

use crate::{
    abi,
    balance::{
        ActiveConnections, CidEvent, Decision, Heartbeat, Real, ServerSlots, Vip, VipKey, ZeroState, ZeroVip,
        sweep_reason, take_loads, to_core,
    },
    quic_lb::Stamp,
    response::{Record, Watch},
    rtt,
    steer::zero_rtt::HeavyHitters,
    table,
};

/// Returns the bytes that a connection takes in the table, without its share of a bucket.
pub fn slot_bytes() -> u32 {
    // SAFETY: a pure function.
    unsafe { abi::dwell_balance_slot_bytes() }
}

/// The bytes that a connection takes besides while it is measured.
pub const STATE_BYTES: u32 = size_of::<abi::dwell_response_state>() as u32;

/// Returns the bit of a [`abi::dwell_vip_filter`] that is set if the address may be a VIP.
pub fn maybe_bit(address: IpAddr) -> usize {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_balance_vip_filter_bit(to_core(address)) as usize }
}

/// Returns the bit of a [`abi::dwell_zero_state`] that is set if the address and port may be a VIP.
pub(super) fn zero_bit(address: IpAddr, port: u16) -> usize {
    // SAFETY: a pure function of its arguments.
    unsafe { abi::dwell_balance_zero_bit(to_core(address), port) as usize }
}

/// Returns the entry of a Maglev table of this size that has the successor of a server: its clients' tokens lead there once
/// it gets no new connections.
pub fn successor_entry(server_id: u16, hash_seed: u64, size: usize) -> usize {
    // SAFETY: a pure function of its arguments.
    unsafe { abi::dwell_balance_successor(server_id, hash_seed, size as u32) as usize }
}

/// The VIPs of a native balancer that are routed by connection ID, by slot.
#[derive(Default)]
struct Zero {
    vips: Vec<abi::dwell_zero_vip>,
    ids: Vec<abi::dwell_zero_ids>,
    loads: Vec<abi::dwell_zero_loads>,
    heavies: Vec<abi::dwell_heavy>,
    other_heavies: Vec<abi::dwell_heavy>,
    places: Vec<u32>,
    names: Vec<abi::dwell_zero_named_server>,
    cids: Vec<abi::dwell_cid_entry>,
    openings: Vec<abi::dwell_opening>,
}

/// The number of connection IDs that a native balancer caches.
const CIDS: u32 = 1024;

/// A balancer without a network: frames in, frames out, by the same C code that runs in the kernel. Traffic of VIPs and
/// backends is not counted.
pub struct Balancer {
    core: Box<abi::dwell_balancer>,
    vips: Vec<abi::dwell_named_vip>,
    reals: Vec<abi::dwell_real>,
    open: Vec<i64>,
    tables: Vec<Vec<u32>>,
    pointers: Vec<*const u32>,
    zero: Zero,
    /// Owned here, used through the pointers in `core`.
    _memory: [Vec<u64>; 3],
}

impl Balancer {
    /// Creates a balancer that measures as `watch` says. The `max_flows` of `watch` limits its connections.
    pub fn new(watch: &Watch, config: abi::dwell_balance_config) -> Balancer {
        // SAFETY: pure functions.
        let (alias_stride, stride) =
            unsafe { (abi::dwell_slots_alias_stride() as usize, abi::dwell_slots_stride() as usize) };
        let program = watch.to_core();
        let mut aliases = table::zeroed(program.alias_mask + 1, alias_stride);
        let mut buckets = table::zeroed(watch.buckets(), size_of::<abi::dwell_slot_bucket>());
        let mut slots = table::zeroed(program.table.slots, stride);
        let core = Box::new(abi::dwell_balancer {
            slots: abi::dwell_slots {
                program,
                aliases: table::start(&mut aliases),
                buckets: table::start(&mut buckets),
                slots: table::start(&mut slots),
                states: program.table.slots,
                ..Default::default()
            },
            config: abi::dwell_balance_config { cid_mask: CIDS - 1, ..config },
            vips: ptr::null(),
            reals: ptr::null(),
            tables: ptr::null(),
            ..Default::default()
        });
        Balancer {
            core,
            vips: Vec::new(),
            reals: Vec::new(),
            open: Vec::new(),
            tables: Vec::new(),
            pointers: Vec::new(),
            zero: Zero {
                cids: vec![abi::dwell_cid_entry::default(); CIDS as usize + 1],
                openings: vec![abi::dwell_opening::default(); abi::DWELL_OPENINGS as usize],
                ..Zero::default()
            },
            _memory: [aliases, buckets, slots],
        }
    }

    /// Sets the backend with this number.
    pub fn set_real(&mut self, number: u32, real: &Real) {
        let at = number as usize;
        self.reals.resize(self.reals.len().max(at + 1), abi::dwell_real::default());
        self.reals[at] = real.to_core();
        self.open.resize(self.reals.len(), 0);
    }

    /// Returns the number of connections of a backend that are open, as far as packets have told.
    pub fn open(&self, number: u32) -> i64 {
        self.open.get(number as usize).copied().unwrap_or(0)
    }

    /// Sets a VIP and its Maglev table of backend numbers.
    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip, entries: &[u32]) {
        let at = vip.number as usize;
        self.tables.resize(self.tables.len().max(at + 1), Vec::new());
        self.tables[at] = entries.to_vec();
        for (key, vip) in
            [(key.to_core(), vip.to_core(entries.len() as u32)), (key.to_core_icmp(), abi::dwell_vip::default())]
        {
            let named = abi::dwell_named_vip { key, vip };
            match self.vips.iter_mut().find(|named| named.key.as_bytes() == key.as_bytes()) {
                Some(known) => *known = named,
                None => self.vips.push(named),
            }
        }
    }

    /// Sets the control plane's sign of life, and the tables of equal weights by the numbers of their VIPs, each as long
    /// as the VIP's own.
    pub fn set_heartbeat(&mut self, heartbeat: &Heartbeat, equal: &[(u32, &[u32])]) {
        let distance = self.tables.len() as u32;
        self.core.heartbeat = heartbeat.to_core(distance);
        for (number, entries) in equal {
            let at = (number + distance) as usize;
            self.tables.resize(self.tables.len().max(at + 1), Vec::new());
            self.tables[at] = entries.to_vec();
        }
    }

    /// Sets which backends each entry of a VIP's table had most recently, 0 where there was no other one.
    pub fn set_recent(&mut self, vip: u32, recent: &[[u32; abi::DWELL_RECENT as usize]]) {
        *self.table_behind(2, vip) = recent.as_flattened().to_vec();
    }

    /// Sets the list of the backends among which new connections of a VIP choose: [`members`](super::members).
    pub fn set_members(&mut self, vip: u32, members: &[u32]) {
        let table = self.table_behind(abi::DWELL_MEMBERS_KIND, vip);
        *table = members.to_vec();
        table.resize(2 * abi::DWELL_MEMBERS as usize, 0);
    }

    /// Returns a VIP's table of a kind that lies behind those of all VIPs.
    fn table_behind(&mut self, kind: u32, vip: u32) -> &mut Vec<u32> {
        if self.core.config.max_vips == 0 {
            self.core.config.max_vips = self.tables.len() as u32;
        }
        let at = (vip + kind * self.core.config.max_vips) as usize;
        self.tables.resize(self.tables.len().max(at + 1), Vec::new());
        &mut self.tables[at]
    }

    /// Sets how packets to the VIP with this key and this slot are routed by connection ID.
    ///
    /// # Panics
    ///
    /// If it has more servers than there are server slots.
    pub fn set_zero(&mut self, key: &VipKey, slot: u16, wanted: &ZeroVip) {
        let (at, zero) = (usize::from(slot), &mut self.zero);
        let slots = zero.vips.len().max(at + 1);
        zero.vips.resize(slots, abi::dwell_zero_vip::default());
        zero.ids.resize(slots, abi::dwell_zero_ids::default());
        zero.loads.resize(slots, abi::dwell_zero_loads::default());
        let slots = ServerSlots::from_core(&zero.vips[at]);
        let free = (zero.heavies.len().max(1) as u32)..;
        let (slots, new) = slots.assign(&wanted.servers, free).expect("as many servers as there are places");
        for place in new {
            let heavy = slots.slots[place].1 as usize;
            zero.heavies.resize(heavy + 1, abi::dwell_heavy::default());
            zero.other_heavies.resize(heavy + 1, abi::dwell_heavy::default());
            zero.loads[at].server[place] = abi::dwell_server_load::default();
        }
        zero.vips[at] = *wanted.to_core(&slots);
        let (ids, names) = wanted.ids(slot, &slots);
        zero.ids[at] = *ids;
        zero.names.retain(|named| named.name.slot != u32::from(slot));
        let named = names.into_iter();
        zero.names.extend(named.map(|(name, place)| abi::dwell_zero_named_server { name, server: place }));
        for server in &wanted.servers {
            let real = server.real as usize;
            zero.places.resize(zero.places.len().max(real + 1), 0);
            let place = slots.slot_of(server.real).expect("it was just seated");
            zero.places[real] = place as u32 + 1;
            zero.loads[at].server[place].flags = server.state.to_core();
        }
        let mut state = ZeroState::from_core(self.core.zero_state);
        state.invalidate();
        state.mark_possible(key);
        self.core.zero_state = state.to_core();
    }

    /// Takes over the loads that servers have reported to other balancers, by the number of each backend, at a Unix time.
    pub fn take_loads(&mut self, slot: u16, stamps: &[(u32, Stamp)], now: Duration) {
        let at = usize::from(slot);
        take_loads(&self.zero.vips[at], &mut self.zero.loads[at], stamps, now);
    }

    /// Sets which clients of a server are heavy at other balancers; nothing if the server is not in the slot.
    pub fn set_other_heavies(&mut self, slot: u16, real: u32, table: &HeavyHitters) {
        let slots = ServerSlots::from_core(&self.zero.vips[usize::from(slot)]);
        if let Some(place) = slots.slot_of(real) {
            self.zero.other_heavies[slots.slots[place].1 as usize] = *table.core();
        }
    }

    /// Returns a count of connection ID events.
    pub fn cid_events(&self, event: CidEvent) -> u64 {
        self.core.zero[event as usize]
    }

    /// Returns the last stamp of the server in this server slot, as a word.
    pub fn load(&self, slot: u16, place: usize) -> u64 {
        self.zero.loads[usize::from(slot)].server[place].stamp
    }

    /// Processes one frame that arrives at an interface. Returns the decision, and the frame as it leaves. With `asks`,
    /// no state is changed.
    pub fn packet(
        &mut self,
        frame: &[u8],
        ingress: u32,
        time_ns: u64,
        asks: bool,
        mut emit: impl FnMut(Record),
    ) -> (Decision, Vec<u8>) {
        const HEADROOM: usize = abi::DWELL_BALANCE_HEADROOM as usize;
        let mut buffer = vec![0; HEADROOM];
        buffer.extend_from_slice(frame);
        let (mut bytes, mut decision) = (frame.len() as u32, abi::dwell_decision::default());
        self.lend_arrays();
        // SAFETY: the frame has headroom before it and `bytes` after that; each array is as long as its count, a table
        // as its VIP says.
        let begin = unsafe {
            abi::dwell_balance_packet(
                &mut *self.core,
                buffer.as_mut_ptr().add(HEADROOM).cast(),
                &mut bytes,
                ingress,
                time_ns,
                asks.into(),
                &mut decision,
            )
        } as usize;
        self.emit_events(&mut emit);
        let decision = Decision::from_core(&decision).expect("the core knows its own reasons");
        (decision, buffer[begin..begin + bytes as usize].to_vec())
    }

    /// Sweeps the connection table as a balancer does at the end of each interval: ends the epochs that are over, forgets
    /// idle connections, counts the others by backend, and corrects the counts of open ones.
    pub fn sweep(&mut self, time_ns: u64, mut emit: impl FnMut(Record)) -> ActiveConnections {
        self.lend_arrays();
        let mut words = vec![0; self.reals.len()];
        let mut pending = vec![abi::dwell_pending::default(); self.reals.len()];
        self.core.actives = words.as_mut_ptr();
        self.core.pending = pending.as_mut_ptr();
        let taken = rtt::Counters::sum([&self.core.slots.counters]).slots_taken();
        let reason = sweep_reason(taken, self.core.slots.program.table.slots.into());
        for bucket in 0..=self.core.slots.program.table.bucket_mask {
            // SAFETY: there is such a bucket; each array is as long as its count.
            unsafe { abi::dwell_balance_sweep(&mut *self.core, bucket, time_ns, reason) }
            self.emit_events(&mut emit);
        }
        let found = ActiveConnections::from_core(words, &pending);
        self.open = found.open(&self.open, &self.open);
        found
    }

    fn emit_events(&self, emit: &mut impl FnMut(Record)) {
        for event in &self.core.slots.event[..self.core.slots.events as usize] {
            let bytes = event.as_bytes();
            emit(Record::from_kernel(bytes).expect("the core writes only its own events"));
        }
    }

    /// Gives the core the arrays as they lie now.
    fn lend_arrays(&mut self) {
        let pointer = |table: &Vec<u32>| if table.is_empty() { ptr::null() } else { table.as_ptr() };
        self.pointers = self.tables.iter().map(pointer).collect();
        self.core.vips = self.vips.as_ptr();
        self.core.vip_count = self.vips.len() as u32;
        self.core.reals = self.reals.as_ptr();
        self.core.open = self.open.as_mut_ptr();
        self.core.real_count = self.reals.len() as u32;
        self.core.tables = self.pointers.as_ptr();
        self.core.table_count = self.pointers.len() as u32;
        let zero = &mut self.zero;
        self.core.zero_vips = zero.vips.as_ptr();
        self.core.zero_ids = zero.ids.as_ptr();
        self.core.zero_loads = zero.loads.as_mut_ptr();
        self.core.zero_slots = zero.vips.len() as u32;
        self.core.heavies = zero.heavies.as_mut_ptr();
        self.core.other_heavies = zero.other_heavies.as_ptr();
        self.core.heavy_count = zero.heavies.len() as u32;
        self.core.zero_servers = zero.places.as_ptr();
        self.core.zero_server_count = zero.places.len() as u32;
        self.core.zero_names = zero.names.as_ptr();
        self.core.zero_name_count = zero.names.len() as u32;
        self.core.cids = zero.cids.as_mut_ptr();
        self.core.openings = zero.openings.as_mut_ptr();
    }
}
