//! What was measured of a target, in physical units.

use std::net::IpAddr;

use super::{Connection, Part, Times, connection::ConnectionFigures};
use crate::socket::Sum;

/// Where evidence is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Polls of the kernel's sockets.
    #[default]
    Sockets,
    /// The packets of a capture, which have no counters of the kernel and no process.
    Capture,
}

/// What was measured of the connections of a target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Where it is from.
    pub source: Source,
    /// The target, for commands that a reader can run.
    pub target: Target,
    /// How long dwell looked.
    pub observed_ns: u64,
    /// In a capture, the Unix time of the last packet.
    pub ended_ns: u64,
    /// The number of polls of sockets, or of packets in a capture.
    pub polls: u64,
    /// The number of connections that were polled at least twice.
    pub connections: u64,
    /// The number of those that this host has accepted.
    pub accepted: u64,
    /// Connections that were not followed because there were too many.
    pub omitted: u64,
    /// The time of all connections in which somebody waited, by what it was spent on.
    pub times: Times,
    /// The time of all connections in which nobody waited.
    pub idle_ns: f64,
    /// Bytes that peers have acknowledged.
    pub sent_bytes: u64,
    /// Bytes that have arrived in order.
    pub received_bytes: u64,
    /// Segments with data that were sent, including retransmissions.
    pub segments_sent: u64,
    /// Segments that were sent again.
    pub segments_sent_again: u64,
    /// Segments that were sent again although the peer had them.
    pub segments_sent_needlessly: u64,
    /// Segments with data that have arrived.
    pub segments_received: u64,
    /// Segments that arrived before an earlier one.
    pub segments_out_of_order: u64,
    /// Round trips while more than two segments were in flight.
    pub transfers: RoundTrip,
    /// Round trips of messages of one or two segments.
    pub messages: RoundTrip,
    /// Polls with data under way.
    pub busy_polls: u64,
    /// Those of them at which the peer's window had no room for a segment.
    pub closed_polls: u64,
    /// From the last byte of a request to the first byte of its answer, in this host.
    pub service: Silences,
    /// From the acknowledgement of a request to its answer.
    pub answer: Silences,
    /// Between two writes of one transfer.
    pub pause: Silences,
    /// From the last sign of life of a lost message to its retransmission.
    pub timeouts: Silences,
    /// Waits of small segments for the acknowledgement of the one before (Nagle).
    pub held: Silences,
    /// Bursts after idleness that began with a small congestion window, and what that cost.
    pub slow_starts: Silences,
    /// From the first packet of connections until they could be used: handshakes of TCP and, in captures, of TLS.
    pub set_ups: Silences,
    /// Packets that opened connections and were sent again.
    pub set_up_retries: u64,
    /// From questions to name servers until their answers.
    pub names: Silences,
    /// The longest time in which data was sent several times and nothing of it acknowledged.
    pub stalled_ns: u64,
    /// The waits of bytes in the send buffer.
    pub send_buffer: Sum,
    /// The waits of bytes in the receive buffer.
    pub receive_buffer: Sum,
    /// The process that has the connections.
    pub process: Option<Process>,
    /// The layers of this host.
    pub layers: Option<Layers>,
    /// The target's sockets of UDP, if it has any.
    pub datagrams: Option<Datagrams>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
}

/// Names for commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// What the user asked about.
    pub name: String,
    /// The peer of the connection on which most time was spent.
    pub peer: Option<IpAddr>,
    /// The port of that connection's server.
    pub port: Option<u16>,
    /// In a capture, the end of that connection that is called local.
    pub seen_from: Option<IpAddr>,
    /// The process that has it.
    pub pid: Option<u32>,
    /// That process, if it is in another network namespace than dwell: commands must be run there.
    pub namespace_of: Option<u32>,
}

impl Target {
    /// The target of `dwell why` at the host of the server, with a space before it; empty if it is not known.
    pub(super) fn port_of(&self) -> String {
        self.port.map_or_else(String::new, |port| format!(" :{port}"))
    }
}

/// Round trips of one kind, weighted by time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RoundTrip {
    /// How long they were observed.
    pub(super) time_ns: f64,
    /// The smoothed round trip, times the time.
    pub(super) mean: f64,
    /// The shortest round trip, times the time.
    pub(super) base: f64,
}

impl RoundTrip {
    /// Creates the figures of one round trip that was observed for a time.
    pub fn new(time_ns: f64, mean_ns: f64, base_ns: f64) -> RoundTrip {
        RoundTrip { time_ns, mean: mean_ns * time_ns, base: base_ns * time_ns }
    }

    /// Returns the mean of the smoothed round trip.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.time_ns > 0.0).then(|| self.mean / self.time_ns)
    }

    /// Returns the mean of the connections' shortest round trips.
    pub fn base_ns(&self) -> Option<f64> {
        (self.time_ns > 0.0).then(|| self.base / self.time_ns)
    }

    /// Adds a round trip that was observed for a time.
    pub(super) fn observe(&mut self, time_ns: u64, mean_ns: f64, base_ns: f64) {
        self.plus(&RoundTrip::new(time_ns as f64, mean_ns, base_ns));
    }

    fn plus(&mut self, other: &RoundTrip) {
        self.time_ns += other.time_ns;
        self.mean += other.mean;
        self.base += other.base;
    }
}

/// Silences of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Silences {
    /// Their number.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Silences {
    pub(super) fn add(&mut self, ns: u64) {
        self.plus(&Silences { count: 1, sum_ns: ns, longest_ns: ns });
    }

    fn plus(&mut self, other: &Silences) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns their mean.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// What a process did while dwell looked. Shares are of that time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Process {
    /// The share in which its busiest thread ran.
    pub busiest_thread: f64,
    /// The share in which the thread that waited longest for a processor did.
    pub waiting_thread: f64,
    /// The share of looks at which one of its threads waited for a disk.
    pub disk: f64,
}

/// How long bytes spent in layers of this host; means. `None` where none was stamped.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Layers {
    /// From the socket to TCP, down.
    pub socket_tcp_ns: Option<u64>,
    /// In the queueing discipline of the device.
    pub queueing_ns: Option<u64>,
    /// From being readable to being read.
    pub application_ns: Option<u64>,
}

/// What can be told of sockets of UDP, and so of QUIC, without their protocol.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Datagrams {
    /// The number of sockets.
    pub sockets: u64,
    /// Datagrams that arrived meanwhile and found the receive buffer of their socket full.
    pub dropped: u64,
    /// The most bytes that waited to be read at one socket, as the kernel counts memory.
    pub longest_queue_bytes: u64,
    /// The share of looks at which some waited, from 0 to 1.
    pub waiting: f64,
}

/// Something that dwell could not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// The command or privilege that would show it.
    pub remedy: String,
}

impl Evidence {
    /// Adds what the polls of a connection showed. If its peer is followed too, because both ends are on this host, waits
    /// for the peer are left out: what the peer does meanwhile is counted at its own end.
    pub fn add(&mut self, connection: &Connection, is_peer_followed: bool) {
        let mut figures = connection.figures();
        if is_peer_followed {
            figures.times.remove(Part::Answer);
            figures.times.remove(Part::PeerPause);
        }
        self.add_figures(&figures);
    }

    pub(super) fn add_figures(&mut self, figures: &ConnectionFigures) {
        if figures.polls < 2 {
            return;
        }
        self.polls += figures.polls;
        self.connections += 1;
        self.accepted += u64::from(figures.role == super::Role::Server);
        self.times.plus(&figures.times);
        self.idle_ns += figures.idle_ns;
        self.sent_bytes += figures.sent_bytes;
        self.received_bytes += figures.received_bytes;
        self.segments_sent += figures.segments_sent;
        self.segments_sent_again += figures.segments_sent_again;
        self.segments_sent_needlessly += figures.segments_sent_needlessly;
        self.segments_received += figures.segments_received;
        self.segments_out_of_order += figures.segments_out_of_order;
        self.transfers.plus(&figures.transfers);
        self.messages.plus(&figures.messages);
        self.busy_polls += figures.busy_polls;
        self.closed_polls += figures.closed_polls;
        self.service.plus(&figures.service);
        self.answer.plus(&figures.answer);
        self.pause.plus(&figures.pause);
        self.timeouts.plus(&figures.timeouts);
        self.held.plus(&figures.held);
        self.slow_starts.plus(&figures.slow_starts);
        self.set_ups.plus(&figures.set_ups);
        self.set_up_retries += figures.set_up_retries;
        self.stalled_ns = self.stalled_ns.max(figures.stalled_ns);
        self.send_buffer = self.send_buffer.plus(&figures.totals.sender);
        self.receive_buffer = self.receive_buffer.plus(&figures.totals.receiver);
    }

    /// Adds what stamps of bytes showed: the queue of this host's device is taken out of the queues of the path.
    pub fn set_layers(&mut self, layers: Layers) {
        if let (Some(own), Some(all)) = (layers.queueing_ns, self.queue_ns().filter(|all| *all > 0.0)) {
            let share = (own as f64 / all).min(1.0);
            self.times.shift(Part::RemoteQueue, Part::LocalQueue, self.times.get(Part::RemoteQueue) * share);
        }
        self.layers = Some(layers);
    }

    /// Adds the opening of a connection that took this long, with packets that were sent again.
    pub fn add_set_up(&mut self, ns: u64, retries: u64) {
        self.set_ups.add(ns);
        self.set_up_retries += retries;
        self.times.add(Part::SetUp, ns as f64);
    }

    /// Adds a wait for a name server.
    pub fn add_name(&mut self, ns: u64) {
        self.names.add(ns);
        self.times.add(Part::Names, ns as f64);
    }

    /// Returns the share of sent segments that were sent again; `None` if none was sent.
    pub fn loss(&self) -> Option<f64> {
        (self.segments_sent > 0).then(|| self.segments_sent_again as f64 / self.segments_sent as f64)
    }

    /// Returns the share of segments sent again that the peer had already; `None` if none was sent again.
    pub fn needless(&self) -> Option<f64> {
        let again = self.segments_sent_again;
        (again > 0).then(|| (self.segments_sent_needlessly as f64 / again as f64).min(1.0))
    }

    /// Returns the share of received segments that arrived before an earlier one; `None` if none has arrived.
    pub fn out_of_order(&self) -> Option<f64> {
        (self.segments_received > 0).then(|| self.segments_out_of_order as f64 / self.segments_received as f64)
    }

    /// Returns what queues add to a round trip of a transfer.
    pub fn queue_ns(&self) -> Option<f64> {
        Some(self.transfers.mean_ns()? - self.transfers.base_ns()?)
    }
}
