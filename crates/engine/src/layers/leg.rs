//! The parts of a byte's whole way, from one host's socket to the other's.

use super::{Direction, Segment};

/// A segment of one of the hosts, or what spans both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Leg {
    /// Within one host.
    Host(Segment),
    /// From the sender's driver to the receiver's.
    Network,
    /// From the sender's socket to the receiver's.
    EndToEnd,
}

impl Leg {
    /// All of them, in the order of a byte's way; from end to end last.
    pub const ALL: [Leg; 15] = [
        Leg::Host(Segment::SocketTcp),
        Leg::Host(Segment::TcpIp),
        Leg::Host(Segment::IpDriver),
        Leg::Host(Segment::Queueing),
        Leg::Host(Segment::TxUnexplained),
        Leg::Host(Segment::TxTotal),
        Leg::Network,
        Leg::Host(Segment::DriverIp),
        Leg::Host(Segment::IpTcp),
        Leg::Host(Segment::TcpSocket),
        Leg::Host(Segment::Reordering),
        Leg::Host(Segment::Application),
        Leg::Host(Segment::RxUnexplained),
        Leg::Host(Segment::RxTotal),
        Leg::EndToEnd,
    ];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Leg::Host(segment) => segment.name(),
            Leg::Network => "network",
            Leg::EndToEnd => "end-to-end",
        }
    }

    /// Which host it is on: the sender's or the receiver's.
    pub fn direction(self) -> Option<Direction> {
        match self {
            Leg::Host(segment) => Some(segment.direction()),
            Leg::Network | Leg::EndToEnd => None,
        }
    }

    /// The leg in which its time is counted too, if it is a part of one. What is
    /// part of none adds up to [`Leg::EndToEnd`].
    pub fn part_of(self) -> Option<Leg> {
        match self {
            Leg::Host(segment) => segment.part_of().map(Leg::Host),
            Leg::Network | Leg::EndToEnd => None,
        }
    }

    /// True of those that add up to [`Leg::EndToEnd`].
    pub fn is_addend(self) -> bool {
        match self {
            Leg::Host(segment) => segment.part_of().is_none() && segment != segment.total(),
            Leg::Network => true,
            Leg::EndToEnd => false,
        }
    }
}
