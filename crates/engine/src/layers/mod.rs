//! The path of a byte through the layers of a host: `core/stack/layers.h`.

mod budget;
mod byte_trace;
mod config;
mod connections;
mod hop;
pub mod join;
mod native;
mod path_segment;
pub(crate) mod room;

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use crate::{
    abi,
    counters::{counters, sums},
    histogram::Histogram,
    measure::{Endpoint, endpoint},
};

pub use budget::{Budget, Cost, Effort};
pub use byte_trace::{ByteTrace, Isns};
pub use config::{Config, PidNamespace};
pub use hop::{DevicePoint, Hop, HopTime, Point};
pub use native::{ByteRange, Flow, HostLayers};
pub use path_segment::{FlowJoin, PathSegment};

/// Returns the successor of a sampling word, which selects the bytes to stamp. Its low bits stamp each 2^thin-th byte
/// of the sampling grid; its high bits start a new epoch, so that stamps from before are not mixed with new ones.
pub fn next_grid(grid: u32, thin: u32) -> u32 {
    ((grid >> 8).wrapping_add(1) << 8) | (thin & 31)
}

/// A point where a byte is stamped. The order is that of the path of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u32)]
pub enum Layer {
    /// Copied from the application into the socket's queue.
    TxSocket = abi::DWELL_TX_SOCKET,
    /// Handed to IP by TCP.
    TxTcp = abi::DWELL_TX_TCP,
    /// Left IP.
    TxIp = abi::DWELL_TX_IP,
    /// At the queueing discipline of the device.
    TxQueue = abi::DWELL_TX_QUEUE,
    /// Handed to the driver.
    TxDriver = abi::DWELL_TX_DRIVER,
    /// Received from the driver.
    RxDriver = abi::DWELL_RX_DRIVER,
    /// Received by IP.
    RxIp = abi::DWELL_RX_IP,
    /// Received by TCP.
    RxTcp = abi::DWELL_RX_TCP,
    /// In order, so that the application can read it.
    RxReady = abi::DWELL_RX_READY,
    /// Read by the application.
    RxSocket = abi::DWELL_RX_SOCKET,
}

impl Layer {
    /// All layers, in the order of the path of a byte.
    pub const ALL: [Layer; abi::DWELL_LAYERS as usize] = [
        Layer::TxSocket,
        Layer::TxTcp,
        Layer::TxIp,
        Layer::TxQueue,
        Layer::TxDriver,
        Layer::RxDriver,
        Layer::RxIp,
        Layer::RxTcp,
        Layer::RxReady,
        Layer::RxSocket,
    ];

    /// Returns the name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Layer::TxSocket => "tx-socket",
            Layer::TxTcp => "tx-tcp",
            Layer::TxIp => "tx-ip",
            Layer::TxQueue => "tx-queue",
            Layer::TxDriver => "tx-driver",
            Layer::RxDriver => "rx-driver",
            Layer::RxIp => "rx-ip",
            Layer::RxTcp => "rx-tcp",
            Layer::RxReady => "rx-ready",
            Layer::RxSocket => "rx-socket",
        }
    }

    /// Returns the direction of bytes at this layer.
    pub fn direction(self) -> Direction {
        if self <= Layer::TxDriver { Direction::Tx } else { Direction::Rx }
    }
}

/// The direction of a byte through the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Down: the byte is sent.
    Tx,
    /// Up: the byte is received.
    Rx,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Tx, Direction::Rx];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Tx => "tx",
            Direction::Rx => "rx",
        }
    }
}

/// The time between two layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u32)]
pub enum Segment {
    /// Waiting in the socket's queue until TCP sends the byte.
    SocketTcp = abi::DWELL_SOCKET_TCP,
    /// Through TCP and IP.
    TcpIp = abi::DWELL_TCP_IP,
    /// From IP to the driver, including what precedes the queueing discipline.
    IpDriver = abi::DWELL_IP_DRIVER,
    /// The part of `IpDriver` within the queueing discipline.
    Queueing = abi::DWELL_QUEUEING,
    /// From the socket to the driver.
    TxTotal = abi::DWELL_TX_TOTAL,
    /// The part of `TxTotal` in no segment, because a stamp is missing.
    TxUnexplained = abi::DWELL_TX_UNEXPLAINED,
    /// From the driver to IP.
    DriverIp = abi::DWELL_DRIVER_IP,
    /// From IP to TCP.
    IpTcp = abi::DWELL_IP_TCP,
    /// From TCP until the application reads the byte.
    TcpSocket = abi::DWELL_TCP_SOCKET,
    /// The part of `TcpSocket` until all preceding bytes have arrived.
    Reordering = abi::DWELL_REORDERING,
    /// The part of `TcpSocket` from then until the application reads.
    Application = abi::DWELL_APPLICATION,
    /// From the driver to the socket.
    RxTotal = abi::DWELL_RX_TOTAL,
    /// The part of `RxTotal` in no segment, because a stamp is missing.
    RxUnexplained = abi::DWELL_RX_UNEXPLAINED,
}

impl Segment {
    /// All segments, in the order of the path of a byte.
    pub const ALL: [Segment; abi::DWELL_SEGMENTS as usize] = [
        Segment::SocketTcp,
        Segment::TcpIp,
        Segment::IpDriver,
        Segment::Queueing,
        Segment::TxTotal,
        Segment::TxUnexplained,
        Segment::DriverIp,
        Segment::IpTcp,
        Segment::TcpSocket,
        Segment::Reordering,
        Segment::Application,
        Segment::RxTotal,
        Segment::RxUnexplained,
    ];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Segment::SocketTcp => "socket-tcp",
            Segment::TcpIp => "tcp-ip",
            Segment::IpDriver => "ip-driver",
            Segment::Queueing => "queueing",
            Segment::DriverIp => "driver-ip",
            Segment::IpTcp => "ip-tcp",
            Segment::TcpSocket => "tcp-socket",
            Segment::Reordering => "reordering",
            Segment::Application => "application",
            Segment::TxTotal | Segment::RxTotal => "total",
            Segment::TxUnexplained | Segment::RxUnexplained => "unexplained",
        }
    }

    /// Returns the layers where the segment starts and ends.
    pub fn ends(self) -> (Layer, Layer) {
        match self {
            Segment::SocketTcp => (Layer::TxSocket, Layer::TxTcp),
            Segment::TcpIp => (Layer::TxTcp, Layer::TxIp),
            Segment::IpDriver => (Layer::TxIp, Layer::TxDriver),
            Segment::Queueing => (Layer::TxQueue, Layer::TxDriver),
            Segment::TxTotal | Segment::TxUnexplained => (Layer::TxSocket, Layer::TxDriver),
            Segment::DriverIp => (Layer::RxDriver, Layer::RxIp),
            Segment::IpTcp => (Layer::RxIp, Layer::RxTcp),
            Segment::TcpSocket => (Layer::RxTcp, Layer::RxSocket),
            Segment::Reordering => (Layer::RxTcp, Layer::RxReady),
            Segment::Application => (Layer::RxReady, Layer::RxSocket),
            Segment::RxTotal | Segment::RxUnexplained => (Layer::RxDriver, Layer::RxSocket),
        }
    }

    /// Returns the direction of bytes in the segment.
    pub fn direction(self) -> Direction {
        self.ends().0.direction()
    }

    /// Returns the total of the same direction.
    pub fn total(self) -> Segment {
        match self.direction() {
            Direction::Tx => Segment::TxTotal,
            Direction::Rx => Segment::RxTotal,
        }
    }

    /// Returns whether the segment spans all layers of a direction, as the total and the unexplained time do.
    pub fn is_whole(self) -> bool {
        matches!(self.name(), "total" | "unexplained")
    }

    /// Returns the segment that includes this one, if any. The time counts in both.
    pub fn part_of(self) -> Option<Segment> {
        match self {
            Segment::Queueing => Some(Segment::IpDriver),
            Segment::Reordering | Segment::Application => Some(Segment::TcpSocket),
            _ => None,
        }
    }
}

/// The time that bytes spent in one segment during an interval: of a host or of a flow, from the kernel to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentFigures {
    /// The segment.
    pub segment: Segment,
    /// The distribution of the times.
    pub histogram: Histogram,
}

/// The hooks at the ends of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SegmentHooks {
    /// The hook at the start of the segment; `None` if the kernel has none.
    pub from: Option<String>,
    /// The hook at the end of the segment.
    pub to: Option<String>,
    /// The layer without a hook that makes this segment unmeasurable.
    pub missing: Option<Layer>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ends {
    /// The sender.
    pub src: Endpoint,
    /// The receiver.
    pub dst: Endpoint,
}

impl Ends {
    fn from_core(ends: &abi::dwell_stack_ends) -> Ends {
        Ends { src: endpoint(ends.src, ends.sport), dst: endpoint(ends.dst, ends.dport) }
    }
}

/// The segments of a flow in an interval, of one of its sides or of both.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowFigures {
    /// The flow.
    pub ends: Ends,
    /// The number of the network namespace that its socket is in. Other namespaces may have flows of the same ends.
    pub namespace: u32,
    /// All segments except the unexplained time, over all bytes: also those that TCP retransmitted.
    pub segments: Vec<SegmentFigures>,
}

impl FlowFigures {
    /// Returns which half of the histograms an entry belongs to, 0 or 1, given its key. `None` if the kernel did not
    /// write these bytes.
    pub fn generation_of(key: &[u8]) -> Option<u32> {
        let ends = abi::dwell_stack_ends::read_from_bytes(key).ok()?;
        Some(u32::from(ends.part & abi::DWELL_PART_GENERATION != 0))
    }

    /// Decodes an entry of the kernel's map, which is one side. `None` if the kernel did not write these bytes.
    pub fn from_kernel(key: &[u8], value: &[u8]) -> Option<FlowFigures> {
        let ends = abi::dwell_stack_ends::read_from_bytes(key).ok()?;
        let (flow, _) = abi::dwell_flow_segments::ref_from_prefix(value).ok()?;
        let direction = match ends.part & abi::DWELL_PART_UP {
            0 => Direction::Tx,
            _ => Direction::Rx,
        };
        let of_side = Segment::ALL
            .into_iter()
            .filter(|segment| segment.direction() == direction && segment.name() != Segment::TxUnexplained.name());
        let segments = of_side.zip(&flow.segment).map(|(segment, counted)| {
            let mut histogram = Histogram::default();
            histogram.merge_coarse(counted);
            SegmentFigures { segment, histogram }
        });
        Some(FlowFigures { ends: Ends::from_core(&ends), namespace: ends.netns, segments: segments.collect() })
    }
}

counters! {
    /// A reason why stamped bytes are in no segment, or in no flow.
    Counter: abi::DWELL_MISSED;

    /// Bytes that reached the driver without a first stamp: they were written before the run started, or another
    /// byte took their row.
    TxUnbegun = DWELL_TX_UNBEGUN, "tx_unbegun";
    /// Bytes that were read without their first stamps.
    RxUnbegun = DWELL_RX_UNBEGUN, "rx_unbegun";
    /// Bytes that reached the driver only after TCP had retransmitted them.
    TxAgain = DWELL_TX_AGAIN, "tx_retransmitted";
    /// Bytes that arrived again before TCP took them: a firewall or a full backlog had dropped the first copy.
    RxAgain = DWELL_RX_AGAIN, "rx_retransmitted";
    /// Bytes that lost their row to another byte before they reached the driver: in no segment.
    TxDisplaced = DWELL_TX_DISPLACED, "tx_displaced";
    /// Bytes that lost their row to another byte before they were read: in no segment.
    RxDisplaced = DWELL_RX_DISPLACED, "rx_displaced";
    /// Reads that returned more sampled bytes at once than are examined.
    RxUnwalked = DWELL_RX_UNWALKED, "rx_unwalked";
    /// Byte traces that did not fit into the ring buffer.
    TracesLost = DWELL_TRACES_LOST, "traces_lost";
    /// Bytes of flows that there was no room for: they are in the aggregate only.
    FlowsOmitted = DWELL_FLOWS_LOST, "flows_omitted";
}

/// What was counted besides the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters([u64; abi::DWELL_STACK_COUNTERS as usize]);

sums!(Counters of dwell_stack_counters by Counter);

impl Counters {
    /// Returns the number of sampled bytes that have no stamp of this layer.
    pub fn missed(&self, layer: Layer) -> u64 {
        self.0[abi::DWELL_MISSED as usize + layer as usize]
    }

    /// Returns all counters with their names, except those of missed layers.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter.name(), self.get(counter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_the_core() {
        for (index, layer) in Layer::ALL.iter().enumerate() {
            assert_eq!(*layer as usize, index);
        }
        for (index, segment) in Segment::ALL.iter().enumerate() {
            assert_eq!(*segment as usize, index);
            assert_eq!(segment.ends().0.direction(), segment.ends().1.direction(), "{segment:?}");
        }
    }
}
