//! What `dwell top` shows: flows with the figures of an interval, the same by peer, prefix, process and unit, their rank,
//! and their past. Readings of sockets and samples of packets come in; time is an argument.

mod figures;
mod flow;
mod past;
mod table;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::{layers::Ends, measure::Protocol, rtt::Prefix};

pub use figures::Figures;
pub use flow::{Limits, SocketReading, StoredLatency};
pub use past::{PAST, Past};
pub use table::{Row, Settings, Table};

/// What rows are ranked by, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Round-trip latency.
    Rtt,
    /// Response latency.
    Response,
    /// The wait in the send buffer.
    SendBuffer,
    /// Segments that were sent again.
    Retransmissions,
    /// Bits per second, in both directions.
    Rate,
}

impl Metric {
    /// All metrics, in the order in which they are shown.
    pub const ALL: [Metric; 5] =
        [Metric::Rtt, Metric::Response, Metric::SendBuffer, Metric::Retransmissions, Metric::Rate];

    /// Returns the name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rtt => "rtt",
            Metric::Response => "response",
            Metric::SendBuffer => "send-buffer",
            Metric::Retransmissions => "retransmitted",
            Metric::Rate => "rate",
        }
    }
}

/// What an epoch of a flow has shown of how long its server takes to respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The mean.
    Believed(u64),
    /// An estimate of the mean that is not believed, or the most that it can be.
    Doubted(u64),
    /// Nothing, as nobody knows which packets are requests and which wait for answers.
    Unknown,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// One flow.
    Flows,
    /// All flows with one address.
    Peers,
    /// All flows with addresses of one prefix.
    Prefixes,
    /// All flows of one process.
    Processes,
    /// All flows of the processes of one unit of systemd, or of one container.
    Units,
}

impl View {
    /// All views, in the order of their keys on the keyboard.
    pub const ALL: [View; 5] = [View::Flows, View::Peers, View::Prefixes, View::Processes, View::Units];

    /// Returns the name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            View::Flows => "flows",
            View::Peers => "peers",
            View::Prefixes => "prefixes",
            View::Processes => "processes",
            View::Units => "units",
        }
    }
}

/// A flow. `src` is the end in this host; of flows without a socket in this host, the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Its ends.
    pub ends: Ends,
    /// Its transport protocol.
    pub protocol: Protocol,
}

impl FlowKey {
    /// Returns the same flow, seen from the other end.
    #[must_use]
    pub fn reversed(&self) -> FlowKey {
        FlowKey { ends: Ends { src: self.ends.dst, dst: self.ends.src }, ..*self }
    }
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKey {
    /// A flow.
    Flow(FlowKey),
    /// The address at the other end of flows.
    Peer(IpAddr),
    /// A prefix of such addresses.
    Prefix(Prefix),
    /// The process that has the flows; `None` for those whose process is not known.
    Process(Option<u32>),
    /// The unit or container of that process, by the number that the caller has given it; `None` for processes without one, and
    /// those that are not known.
    Unit(Option<u32>),
}
