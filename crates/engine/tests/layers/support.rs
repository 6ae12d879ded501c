//! A simulated host.

use dwell_engine::layers::{ByteRange, Config, Flow, HostLayers, Layer, Segment};

pub const GRID: u32 = 1 << 14;

pub struct Host {
    pub path: HostLayers,
    pub flow: Flow,
}

impl Host {
    pub fn new() -> Host {
        Host::with(&Config::default())
    }

    pub fn with(config: &Config) -> Host {
        let path = HostLayers::new(config);
        let flow = path.flow("192.0.2.1:5201".parse().unwrap(), "192.0.2.2:40000".parse().unwrap());
        Host { path, flow }
    }

    pub fn pass(&mut self, seq: u32, bytes: u32, layer: Layer, now_ns: u64) {
        self.path.pass(self.flow, ByteRange { seq, bytes }, layer, now_ns);
    }

    /// Passes the layers from the socket to the driver, with a microsecond per layer.
    pub fn send(&mut self, seq: u32, bytes: u32, now_ns: u64) {
        self.pass(seq, bytes, Layer::TxSocket, now_ns);
        self.leave_ip(seq, bytes, now_ns + 1_000, now_ns + 2_000);
        self.pass(seq, bytes, Layer::TxQueue, now_ns + 3_000);
        self.pass(seq, bytes, Layer::TxDriver, now_ns + 4_000);
    }

    pub fn leave_ip(&mut self, seq: u32, bytes: u32, tcp_ns: u64, now_ns: u64) {
        self.pass_packet(seq, bytes, Layer::TxIp, tcp_ns, now_ns);
    }

    /// Passes a layer with a packet that TCP handed down at `tcp_ns`.
    pub fn pass_packet(&mut self, seq: u32, bytes: u32, layer: Layer, tcp_ns: u64, now_ns: u64) {
        self.path.pass_packet(self.flow, ByteRange { seq, bytes }, layer, tcp_ns, now_ns);
    }

    /// Passes the layers from the driver to TCP, with a microsecond per layer.
    pub fn arrive(&mut self, seq: u32, bytes: u32, now_ns: u64) {
        self.pass(seq, bytes, Layer::RxDriver, now_ns);
        self.pass(seq, bytes, Layer::RxIp, now_ns + 1_000);
        self.pass(seq, bytes, Layer::RxTcp, now_ns + 2_000);
    }

    pub fn reach(&mut self, end: u32, layer: Layer, now_ns: u64) {
        self.path.reach(self.flow, end, layer, now_ns);
    }

    pub fn count(&self, segment: Segment) -> u64 {
        self.path.segment(segment).count()
    }

    /// Returns the exact sum of a segment.
    pub fn sum_ns(&self, segment: Segment) -> u64 {
        self.path.segment(segment).sum_ns() as u64
    }
}
