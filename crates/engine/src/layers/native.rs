//! The layers run in user space.
#![allow(unsafe_code)]

use std::{fmt, net::SocketAddr};

use zerocopy::FromBytes;

use super::{Config, Counters, Hop, Layer, Passage, Place, Segment, next_grid};
use crate::{abi, histogram::Histogram, table};

/// Bytes of a flow: from a sequence number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The first one's sequence number.
    pub seq: u32,
    /// How many.
    pub bytes: u32,
}

/// A flow that [`Path`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow(u64);

/// A host's layers, with a clock that the caller has.
pub struct Path {
    core: Box<abi::dwell_layers>,
    /// Held for the core, which has a pointer to it.
    _rows: Vec<u64>,
    _hop_rows: Vec<u64>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl Path {
    /// No byte was seen yet.
    pub fn new(config: &Config) -> Path {
        // SAFETY: a pure function.
        let stride = unsafe { abi::dwell_layers_stride() } as usize;
        let mut rows = table::zeroed(config.rows(), stride);
        let mut core = Box::<abi::dwell_layers>::default();
        core.program = config.to_core();
        core.rows = rows.as_mut_ptr().cast();
        // SAFETY: a pure function.
        let stride = unsafe { abi::dwell_layers_hop_stride() } as usize;
        let mut hop_rows = table::zeroed(config.rows(), stride);
        core.hop_rows = hop_rows.as_mut_ptr().cast();
        Path { core, _rows: rows, _hop_rows: hop_rows }
    }

    /// The flow from one end to the other.
    pub fn flow(&self, source: SocketAddr, destination: SocketAddr) -> Flow {
        let address = |end: SocketAddr| {
            let octets = match end.ip() {
                std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(v6) => v6.octets(),
            };
            abi::dwell_address::read_from_bytes(&octets).expect("both are 16 bytes")
        };
        let (from, to) = (address(source), address(destination));
        // SAFETY: all three are valid, and the core keeps no pointer.
        Flow(unsafe { abi::dwell_layers_flow(&*self.core, &from, &to, source.port(), destination.port()) })
    }

    /// A packet with these bytes, or a write of them, passes a layer.
    pub fn pass(&mut self, flow: Flow, bytes: Bytes, layer: Layer, now_ns: u64) {
        self.pass_core(flow, bytes, layer, (0, 0), now_ns);
    }

    /// A packet comes in by a device.
    pub fn arrive(&mut self, flow: Flow, bytes: Bytes, device: u32, now_ns: u64) {
        self.pass_core(flow, bytes, Layer::RxDriver, (0, device), now_ns);
    }

    /// A packet that TCP handed down at `tcp_ns` passes a layer.
    pub fn pass_packet(&mut self, flow: Flow, bytes: Bytes, layer: Layer, tcp_ns: u64, now_ns: u64) {
        self.pass_core(flow, bytes, layer, (tcp_ns, 0), now_ns);
    }

    fn pass_core(&mut self, flow: Flow, bytes: Bytes, layer: Layer, (tcp_ns, device): (u64, u32), now_ns: u64) {
        let Bytes { seq, bytes } = bytes;
        // SAFETY: the core has as many rows as its masks say.
        unsafe {
            abi::dwell_layers_pass(&mut *self.core, flow.0, seq, bytes, layer as u32, now_ns, tcp_ns, device);
        }
    }

    /// All bytes before `end` are in order (`Layer::RxReady`), or were read
    /// (`Layer::RxSocket`).
    pub fn reach(&mut self, flow: Flow, end: u32, layer: Layer, now_ns: u64) {
        // SAFETY: as above.
        unsafe { abi::dwell_layers_reach(&mut *self.core, flow.0, end, layer as u32, now_ns) }
    }

    /// A packet with these bytes is at a device. Returns the hops that end there, at most
    /// `DWELL_LAYERS_TRACES`, and what they took.
    pub fn cross(&mut self, flow: Flow, bytes: Bytes, place: Place, now_ns: u64) -> Vec<(Hop, u64)> {
        let Bytes { seq, bytes } = bytes;
        self.core.hops = 0;
        // SAFETY: the core has as many rows of this kind too.
        unsafe {
            abi::dwell_layers_cross(&mut *self.core, flow.0, seq, bytes, &place.to_core(), now_ns);
        }
        let hops = self.core.hop.iter().map(Hop::from_core);
        let hops = hops.zip(self.core.hop_ns);
        hops.take(self.core.hops as usize).collect()
    }

    /// From now on, of the grid only each 2^thin-th byte is taken, and what was begun
    /// before is another byte's.
    pub fn thin(&mut self, thin: u32) {
        self.core.grid = next_grid(self.core.grid, thin);
    }

    /// What a segment took.
    pub fn segment(&self, segment: Segment) -> Histogram {
        self.histogram(segment as u32)
    }

    /// What it took for bytes that TCP sent again, or that came in again.
    pub fn segment_again(&self, segment: Segment) -> Histogram {
        self.histogram(segment as u32 + abi::DWELL_SEGMENTS)
    }

    fn histogram(&self, index: u32) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.merge_kernel(&self.core.segment[index as usize]);
        histogram
    }

    /// The bytes that went all the way in the last call, at most
    /// `DWELL_LAYERS_TRACES`. Their ends are not filled in.
    pub fn passages(&self) -> impl Iterator<Item = Passage> + '_ {
        let told = self.core.trace.iter().take(self.core.traces as usize);
        told.map(Passage::from_core)
    }

    /// What was counted beside.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.core.counters])
    }
}
