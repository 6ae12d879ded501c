//! The layers of the core, run in user space.
#![allow(unsafe_code)]

use std::{fmt, net::SocketAddr};

use zerocopy::FromBytes;

use super::{ByteTrace, Config, Counters, DevicePoint, Hop, Isns, Layer, Segment, next_grid};
use crate::{abi, histogram::Histogram, table};

/// A range of bytes of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The sequence number of the first byte.
    pub seq: u32,
    /// The number of bytes.
    pub bytes: u32,
}

/// A flow of [`HostLayers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow(u64);

/// The layers of one host. The caller supplies the time.
pub struct HostLayers {
    core: Box<abi::dwell_layers>,
    /// Owned here, used through the pointers in `core`.
    _rows: Vec<u64>,
    _hop_rows: Vec<u64>,
}

impl fmt::Debug for HostLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLayers").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl HostLayers {
    /// Creates the layers of a host on which no byte has been seen yet.
    pub fn new(config: &Config) -> HostLayers {
        // SAFETY: a pure function.
        let stride = unsafe { abi::dwell_layers_stride() } as usize;
        let mut rows = table::zeroed(config.rows(), stride);
        let mut core = Box::<abi::dwell_layers>::default();
        core.program = config.to_core();
        core.rows = table::start(&mut rows);
        // SAFETY: a pure function.
        let stride = unsafe { abi::dwell_layers_hop_stride() } as usize;
        let mut hop_rows = table::zeroed(config.rows(), stride);
        core.hop_rows = table::start(&mut hop_rows);
        HostLayers { core, _rows: rows, _hop_rows: hop_rows }
    }

    /// Returns the flow from one endpoint to the other.
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

    /// Sets the initial sequence numbers that the socket of the flow of the next calls has.
    pub fn set_isns(&mut self, Isns { src, dst }: Isns) {
        self.core.isns = abi::dwell_isns { src, dst };
    }

    /// A packet with these bytes, or a write of them, passes a layer.
    pub fn pass(&mut self, flow: Flow, bytes: ByteRange, layer: Layer, now_ns: u64) {
        self.pass_core(flow, bytes, layer, (0, 0), now_ns);
    }

    /// A packet arrives at a device.
    pub fn arrive(&mut self, flow: Flow, bytes: ByteRange, device: u32, now_ns: u64) {
        self.pass_core(flow, bytes, Layer::RxDriver, (0, device), now_ns);
    }

    /// A packet that TCP handed down at `tcp_ns` passes a layer.
    pub fn pass_packet(&mut self, flow: Flow, bytes: ByteRange, layer: Layer, tcp_ns: u64, now_ns: u64) {
        self.pass_core(flow, bytes, layer, (tcp_ns, 0), now_ns);
    }

    fn pass_core(&mut self, flow: Flow, bytes: ByteRange, layer: Layer, (tcp_ns, device): (u64, u32), now_ns: u64) {
        let ByteRange { seq, bytes } = bytes;
        // SAFETY: the core has as many rows as its masks say.
        unsafe {
            abi::dwell_layers_pass(&mut *self.core, flow.0, seq, bytes, layer as u32, now_ns, tcp_ns, device);
        }
    }

    /// All bytes before `end` are in order (`Layer::RxReady`), or were read (`Layer::RxSocket`).
    pub fn reach(&mut self, flow: Flow, end: u32, layer: Layer, now_ns: u64) {
        // SAFETY: as above.
        unsafe { abi::dwell_layers_reach(&mut *self.core, flow.0, end, layer as u32, now_ns) }
    }

    /// A packet with these bytes is at a device. Returns the hops that end there, at most `DWELL_LAYERS_TRACES`, each
    /// with its time in nanoseconds.
    pub fn cross(&mut self, flow: Flow, bytes: ByteRange, point: DevicePoint, now_ns: u64) -> Vec<(Hop, u64)> {
        let ByteRange { seq, bytes } = bytes;
        self.core.hops = 0;
        // SAFETY: the core has as many rows of hops as its masks say.
        unsafe {
            abi::dwell_layers_cross(&mut *self.core, flow.0, seq, bytes, &point.to_core(), now_ns);
        }
        let hops = self.core.hop.iter().map(Hop::from_core);
        let hops = hops.zip(self.core.hop_ns);
        hops.take(self.core.hops as usize).collect()
    }

    /// From now on, stamps only each 2^thin-th byte of the sampling grid. Bytes that are on their way are ignored.
    pub fn thin(&mut self, thin: u32) {
        self.core.grid = next_grid(self.core.grid, thin);
    }

    /// Returns the distribution of a segment.
    pub fn segment(&self, segment: Segment) -> Histogram {
        self.histogram(segment as u32)
    }

    /// Returns the distribution of a segment for bytes that TCP retransmitted, or that arrived again.
    pub fn segment_again(&self, segment: Segment) -> Histogram {
        self.histogram(segment as u32 + abi::DWELL_SEGMENTS)
    }

    fn histogram(&self, index: u32) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.merge_kernel(&self.core.segment[index as usize]);
        histogram
    }

    /// Returns the traces of the bytes that passed all layers in the last call, at most `DWELL_LAYERS_TRACES`. Their
    /// ends are not filled in.
    pub fn traces(&self) -> impl Iterator<Item = ByteTrace> + '_ {
        let traces = self.core.trace.iter().take(self.core.traces as usize);
        traces.map(ByteTrace::from_core)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters::sum([&self.core.counters])
    }
}
