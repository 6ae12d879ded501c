//! The segments of a byte's path from one host's socket to another's.

use super::{Direction, Ends, Segment};

/// By what a flow of the sending host and a flow of the receiving host were found to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowJoin {
    /// Both hosts see the same addresses and ports.
    Address,
    /// Addresses are translated between them, but not sequence numbers.
    Sequence,
}

impl FlowJoin {
    /// Both, in the order of the type.
    pub const ALL: [FlowJoin; 2] = [FlowJoin::Address, FlowJoin::Sequence];

    /// Returns how a flow was joined that the receiver sees as `rx_flow`, if not as the sender does.
    pub fn of(rx_flow: Option<Ends>) -> FlowJoin {
        match rx_flow {
            None => FlowJoin::Address,
            Some(_) => FlowJoin::Sequence,
        }
    }

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            FlowJoin::Address => "address",
            FlowJoin::Sequence => "sequence",
        }
    }
}

/// A segment of a path: a segment of one of the hosts, or the time between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathSegment {
    /// A segment within one host.
    Host(Segment),
    /// From the sender's driver to the receiver's driver.
    Network,
    /// From the sender's socket to the receiver's socket.
    EndToEnd,
}

impl PathSegment {
    /// All segments in the order of the path, with the whole path last.
    pub const ALL: [PathSegment; 15] = [
        PathSegment::Host(Segment::SocketTcp),
        PathSegment::Host(Segment::TcpIp),
        PathSegment::Host(Segment::IpDriver),
        PathSegment::Host(Segment::Queueing),
        PathSegment::Host(Segment::TxUnexplained),
        PathSegment::Host(Segment::TxTotal),
        PathSegment::Network,
        PathSegment::Host(Segment::DriverIp),
        PathSegment::Host(Segment::IpTcp),
        PathSegment::Host(Segment::TcpSocket),
        PathSegment::Host(Segment::Reordering),
        PathSegment::Host(Segment::Application),
        PathSegment::Host(Segment::RxUnexplained),
        PathSegment::Host(Segment::RxTotal),
        PathSegment::EndToEnd,
    ];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            PathSegment::Host(segment) => segment.name(),
            PathSegment::Network => "network",
            PathSegment::EndToEnd => "end-to-end",
        }
    }

    /// Returns the host that the segment is on, the sender (`Tx`) or the receiver (`Rx`); `None` if it spans both.
    pub fn direction(self) -> Option<Direction> {
        match self {
            PathSegment::Host(segment) => Some(segment.direction()),
            PathSegment::Network | PathSegment::EndToEnd => None,
        }
    }

    /// Returns the segment that includes this one, if any. The segments that are not part of another, and not a total,
    /// add up to [`PathSegment::EndToEnd`].
    pub fn part_of(self) -> Option<PathSegment> {
        match self {
            PathSegment::Host(segment) => segment.part_of().map(PathSegment::Host),
            PathSegment::Network | PathSegment::EndToEnd => None,
        }
    }

    /// Returns whether this is one of the segments that add up to [`PathSegment::EndToEnd`].
    pub fn is_addend(self) -> bool {
        match self {
            PathSegment::Host(segment) => segment.part_of().is_none() && segment != segment.total(),
            PathSegment::Network => true,
            PathSegment::EndToEnd => false,
        }
    }
}
