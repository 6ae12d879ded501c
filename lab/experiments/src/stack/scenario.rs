use std::time::Duration;

use dwell_testbed::{BitsPerSecond, LinkSpec, Nanos, Probability, QueueLimit, Reorder};

use super::traffic::{Flow, Pattern};

/// A network and the flows over it: the scenarios of the LatScope paper (section 3), and some more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A bulk flow through a bottleneck of 10 Mbit/s.
    Bulk,
    /// The bulk flow with 20 competing flows.
    Competing,
    /// Repeated downloads of a file over HTTP.
    Download,
    /// A video in segments of two seconds.
    Video,
    /// Two flows with small and large socket buffers.
    Buffers,
    /// Two flows of different priority at the sender's own queue.
    Priorities,
    /// A bulk flow over a network in which packets overtake each other.
    Reordering,
    /// A sender in a container, behind a bridge.
    Container,
    /// A sender in a virtual machine, with a clock of its own.
    Vm,
}

const SMALL_BUFFER: usize = 16 << 10;
const LARGE_BUFFER: usize = 512 << 10;
/// Share of packets that others overtake, and by how much they are later.
const REORDERED: (f64, Nanos) = (0.25, Nanos::from_millis(5));
/// Number of competing flows.
const OTHERS: usize = 20;

impl Scenario {
    /// All scenarios.
    pub const ALL: [Scenario; 9] = [
        Scenario::Bulk,
        Scenario::Competing,
        Scenario::Download,
        Scenario::Video,
        Scenario::Buffers,
        Scenario::Priorities,
        Scenario::Reordering,
        Scenario::Container,
        Scenario::Vm,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Bulk => "bulk",
            Scenario::Competing => "competing",
            Scenario::Download => "download",
            Scenario::Video => "video",
            Scenario::Buffers => "buffers",
            Scenario::Priorities => "priorities",
            Scenario::Reordering => "reordering",
            Scenario::Container => "container",
            Scenario::Vm => "vm",
        }
    }

    /// A description in one line.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Bulk => "a bulk flow through a bottleneck of 10 Mbit/s, 20 ms away",
            Scenario::Competing => "the same with 20 competing flows",
            Scenario::Download => "a file of 1 MB over HTTP, again and again, at 100 Mbit/s, 20 ms away",
            Scenario::Video => "a video over HTTP, a segment of 500 KB every two seconds, at 10 Mbit/s, 20 ms away",
            Scenario::Buffers => "two flows through 10 Mbit/s, with send buffers of 16 and of 512 KB",
            Scenario::Priorities => {
                "two flows that share the sender's own queue of 20 Mbit/s, the first goes before the second"
            }
            Scenario::Reordering => "the bulk flow, a quarter of whose packets are overtaken",
            Scenario::Container => "a bulk flow of a container, through veth, a bridge's host and 10 Mbit/s",
            Scenario::Vm => "a bulk flow of a virtual machine, whose clock is another one, through 10 Mbit/s",
        }
    }

    /// The flows; the first is the one to measure.
    pub fn flows(self) -> Vec<Flow> {
        let bulk = Flow::new(Pattern::Bulk);
        match self {
            Scenario::Bulk | Scenario::Reordering | Scenario::Container | Scenario::Vm => vec![bulk],
            Scenario::Competing => vec![bulk; OTHERS + 1],
            Scenario::Download => vec![Flow::new(Pattern::Requests { bytes: 1_000_000, every: Duration::ZERO })],
            Scenario::Video => vec![Flow::new(Pattern::Requests { bytes: 500_000, every: Duration::from_secs(2) })],
            Scenario::Buffers => {
                [SMALL_BUFFER, LARGE_BUFFER].map(|bytes| Flow { send_buffer: Some(bytes), ..bulk }).to_vec()
            }
            Scenario::Priorities => [0x1_0010, 0x1_0020].map(|class| Flow { priority: Some(class), ..bulk }).to_vec(),
        }
    }

    /// The link from the sender.
    pub(super) fn link(self) -> LinkSpec {
        let rate = match self {
            Scenario::Priorities => None,
            Scenario::Download => BitsPerSecond::new(100_000_000),
            _ => BitsPerSecond::new(10_000_000),
        };
        let (probability, extra_ns) = REORDERED;
        let reorder = (self == Scenario::Reordering)
            .then(|| Some(Reorder { probability: Probability::new(probability)?, extra_ns }))
            .flatten();
        LinkSpec {
            reorder,
            rate_bits_per_second: rate,
            queue: Some(QueueLimit::Packets(100)),
            ..LinkSpec::delay(Nanos::from_millis(10))
        }
    }

    /// The one-way delay of the link from the sender.
    pub fn delay(self) -> Nanos {
        self.link().delay_ns
    }

    /// The sender's queueing discipline: one line of `tc` arguments per command.
    pub(super) fn shape(self) -> &'static str {
        match self {
            Scenario::Priorities => {
                "qdisc add dev vantage0 root handle 1: htb default 20
class add dev vantage0 parent 1: classid 1:1 htb rate 20mbit
class add dev vantage0 parent 1:1 classid 1:10 htb rate 1mbit ceil 20mbit prio 0
class add dev vantage0 parent 1:1 classid 1:20 htb rate 1mbit ceil 20mbit prio 1"
            }
            _ => "",
        }
    }

    /// Whether the sender is in a container.
    pub(super) fn is_contained(self) -> bool {
        self == Scenario::Container
    }

    /// The sender's host name. An emulated sender has a name of its own, so that nobody mistakes its figures for a real
    /// machine's.
    pub fn sender(self) -> &'static str {
        match self {
            Scenario::Vm => "emulated-sender",
            _ => "sender",
        }
    }

    /// Whether the sender is in an emulated machine. Its times do not hold for real hardware, and its application's
    /// clock is not the receiver's.
    pub fn is_emulated(self) -> bool {
        self == Scenario::Vm
    }
}
