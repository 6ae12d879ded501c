//! Figures that evidence is made of.

use super::{Part, RequestEnds, Role, Times, Unsent, cause::LONG_NS};
use crate::{layers::Ends, socket::Totals};

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

    pub(super) fn plus(&mut self, other: &RoundTrip) {
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
    /// One of this length.
    pub(super) fn of(ns: u64) -> Silences {
        Silences { count: 1, sum_ns: ns, longest_ns: ns }
    }

    /// Adds one of this length.
    pub fn add(&mut self, ns: u64) {
        self.plus(&Silences::of(ns));
    }

    /// Returns these and others.
    pub(super) fn with(mut self, other: &Silences) -> Silences {
        self.plus(other);
        self
    }

    /// Returns this as if each silence had occurred `weight` times.
    pub(super) fn times(&self, weight: f64) -> Silences {
        let (count, sum_ns) = (scaled(self.count, weight), scaled(self.sum_ns, weight));
        Silences { count, sum_ns, longest_ns: self.longest_ns }.at_most_the_longest()
    }

    /// Returns these with as many more as it takes for their mean to be no longer than the longest of them: where parts of silences,
    /// or of their number, were added.
    pub(super) fn at_most_the_longest(self) -> Silences {
        Silences { count: self.count.max(self.sum_ns.div_ceil(self.longest_ns.max(1))), ..self }
    }

    /// Takes others out; the longest stays.
    pub(super) fn minus(&mut self, other: &Silences) {
        self.count = self.count.saturating_sub(other.count);
        self.sum_ns = self.sum_ns.saturating_sub(other.sum_ns);
    }

    pub(super) fn plus(&mut self, other: &Silences) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns their mean.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// Octaves of lengths that are told apart, from less than a millisecond on.
const OCTAVES: usize = 18;

/// Waits of one kind, by how long they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByLength([Silences; OCTAVES]);

impl ByLength {
    /// Adds waits that are as long as one another.
    pub(super) fn add(&mut self, alike: &Silences) {
        let octave = (alike.longest_ns / 1_000_000).checked_ilog2().map_or(0, |log| log + 1);
        self.0[(octave as usize).min(OCTAVES - 1)].plus(alike);
    }

    pub(super) fn plus(&mut self, other: &ByLength) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, more)| own.plus(more));
    }

    /// Returns this as if each silence had occurred `weight` times.
    pub(super) fn times(&self, weight: f64) -> ByLength {
        ByLength(self.0.map(|of_octave| of_octave.times(weight)))
    }

    /// Takes the numbers of others, which differ in the length of the last one alone, as far as no mean is longer than the longest
    /// then.
    pub(super) fn count_as(&mut self, other: &ByLength) {
        let as_other = |own: &Silences, count| Silences { count, ..*own }.at_most_the_longest();
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = as_other(own, other.count));
    }

    /// Returns those up to a length, to an octave.
    pub(super) fn up_to(&self, longest_ns: u64) -> Silences {
        let within = self.0.iter().filter(|of_octave| of_octave.longest_ns <= longest_ns);
        within.fold(Silences::default(), Silences::with)
    }
}

/// What a process did from the first look at it on. Shares are of that time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Process {
    /// The share in which its busiest thread ran.
    pub busiest_thread: f64,
    /// The share in which the thread that waited longest for a processor did.
    pub waiting_thread: f64,
    /// Whether no look found that thread asleep, and some found another one asleep that ran too: it may compute something that no
    /// request waits for.
    pub may_be_background: bool,
    /// The share in which threads waited for a disk, all together and at most 1, from looks at their states.
    pub disk: f64,
    /// The share of looks that found the thread stopped that was so most often, as by SIGSTOP or a debugger.
    pub stopped: f64,
    /// The mean time between two looks at its threads.
    pub look_interval_ns: f64,
}

/// A limit of the processor time of a cgroup.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Quota {
    /// The share of the periods in which something in the cgroup ran while dwell looked in which all that is allowed was used up, so
    /// that nothing ran for the rest of the period. From 0 to 1.
    pub throttled: f64,
    /// The file that sets the limit.
    pub limit: String,
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

/// What adds up over connections.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// The number of polls of sockets, or of packets in a capture.
    pub polls: u64,
    /// The time in which somebody waited, by what it was spent on.
    pub times: Times,
    /// The time in which nobody waited.
    pub idle_ns: f64,
    /// The time from the last packet of connections that a capture shows open to its end. Evidence has it in `idle_ns` too.
    pub left_open_ns: f64,
    /// The time of connections from the first poll to the last; of a capture, all the time that is divided. Where both ends are on this host, parts of it that are
    /// one wait are in `times` once.
    pub polled_ns: f64,
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
    /// In captures at a sender's host, how long data was in queues before it passed.
    pub queued: RoundTrip,
    /// Polls with data under way.
    pub busy_polls: u64,
    /// The polls of these at which the peer's window had no room for a segment.
    pub closed_polls: u64,
    /// Why data had not left.
    pub unsent: Unsent,
    /// From the last byte of a request to the first byte of its answer, in this host.
    pub service: Silences,
    /// The part of `service` in which requests waited to be read.
    pub unread: Silences,
    /// The number of waits in `service` that may have been the client's: it may have sent the rest of its request just before the answer.
    pub doubtful: u64,
    /// The numbers of waits in `service` and in `answer` that ended with their connection, so that nothing shows whether there was an
    /// answer. 0 for a capture.
    pub ended: [u64; 2],
    /// From the acknowledgement of a request to its answer.
    pub answer: Silences,
    /// Answers of either end that were waited for 50 ms or longer.
    pub late: Silences,
    /// Between two writes of one transfer.
    pub pause: Silences,
    /// From one message of a server on this host to the next that nobody asked for, up to a second: the rest of its answer, or
    /// something else. 0 for a capture.
    pub spoke_on: Silences,
    /// Silences after which a live client sent more without an answer.
    pub went_on: u64,
    /// Turns in which an end said more than usual, which the other one may not have asked for.
    pub unasked: u64,
    /// Times of 20 ms or more in which bytes waited to be read and none was.
    pub reading_stops: Silences,
    /// From the last sign of life of a lost message to its retransmission.
    pub timeouts: Silences,
    /// Waits of small segments for the acknowledgement of the one before (Nagle).
    pub held: Silences,
    /// Bursts after idleness that began with a small congestion window, and what that cost.
    pub slow_starts: Silences,
    /// From the first packet of connections that were opened until they could be used: handshakes of TCP and, in captures, of TLS.
    pub set_ups: Silences,
    /// Packets that opened connections and were sent again.
    pub set_up_retries: u64,
    /// Of live connections, from the first message of TLS's handshake until its answer.
    pub secured: Silences,
    /// The longest time in which data was sent several times and nothing of it acknowledged.
    pub stalled_ns: u64,
    /// The longest time for which data of a live connection waited although nothing kept it from leaving; 0 if not for long.
    pub stuck_ns: u64,
    /// How often TCP found out that packets which it had sent had overtaken each other.
    pub overtaken: u64,
    /// Connections on which a client spoke last, with the time since: it may be owed an answer, or not.
    pub unanswered: Silences,
    /// The part of `unanswered` on which the client has sent since dwell began to look.
    pub owed: Silences,
    /// In captures, how many requests had an answer, and what the others had instead.
    pub ends_of_requests: RequestEnds,
}

impl Sums {
    /// Adds those of other connections, each of which stands for `weight` like it in the time that they took. Bytes, segments and
    /// round trips count once.
    pub(super) fn plus(&mut self, other: &Sums, weight: f64) {
        self.times.plus(&other.times.scaled(weight));
        for (own, more) in [
            (&mut self.idle_ns, other.idle_ns),
            (&mut self.left_open_ns, other.left_open_ns),
            (&mut self.polled_ns, other.polled_ns),
        ] {
            *own += more * weight;
        }
        for (own, more) in [
            (&mut self.polls, other.polls),
            (&mut self.doubtful, other.doubtful),
            (&mut self.went_on, other.went_on),
            (&mut self.unasked, other.unasked),
        ] {
            *own += scaled(more, weight);
        }
        for (own, more) in self.ended.iter_mut().zip(other.ended) {
            *own += scaled(more, weight);
        }
        for (own, more) in [
            (&mut self.service, &other.service),
            (&mut self.unread, &other.unread),
            (&mut self.reading_stops, &other.reading_stops),
            (&mut self.spoke_on, &other.spoke_on),
            (&mut self.late, &other.late),
            (&mut self.answer, &other.answer),
        ] {
            own.plus(&more.times(weight));
        }
        for (own, more) in [
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.segments_sent, other.segments_sent),
            (&mut self.segments_sent_again, other.segments_sent_again),
            (&mut self.segments_sent_needlessly, other.segments_sent_needlessly),
            (&mut self.segments_received, other.segments_received),
            (&mut self.segments_out_of_order, other.segments_out_of_order),
            (&mut self.busy_polls, other.busy_polls),
            (&mut self.closed_polls, other.closed_polls),
            (&mut self.set_up_retries, other.set_up_retries),
            (&mut self.overtaken, other.overtaken),
        ] {
            *own += more;
        }
        for (own, more) in [
            (&mut self.transfers, &other.transfers),
            (&mut self.messages, &other.messages),
            (&mut self.queued, &other.queued),
        ] {
            own.plus(more);
        }
        for (own, more) in [
            (&mut self.pause, &other.pause),
            (&mut self.timeouts, &other.timeouts),
            (&mut self.held, &other.held),
            (&mut self.slow_starts, &other.slow_starts),
            (&mut self.set_ups, &other.set_ups),
            (&mut self.secured, &other.secured),
            (&mut self.unanswered, &other.unanswered),
            (&mut self.owed, &other.owed),
        ] {
            own.plus(more);
        }
        self.stalled_ns = self.stalled_ns.max(other.stalled_ns);
        self.stuck_ns = self.stuck_ns.max(other.stuck_ns);
        self.unsent.plus(&other.unsent);
        self.ends_of_requests.plus(&other.ends_of_requests);
    }
}

/// Returns a count as if each had occurred `weight` times.
pub(super) fn scaled(count: u64, weight: f64) -> u64 {
    (count as f64 * weight).round() as u64
}

/// The figures of one connection over all of its polls.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionFigures {
    /// The flow from this end to the other, where it is known.
    pub(super) ends: Option<Ends>,
    pub(super) role: Role,
    pub(super) sums: Sums,
    pub(super) uses_bbr: bool,
    /// How many connections that were not found it stands for.
    pub(super) others: f64,
    /// Whether a live one was over so soon that searches find only some of its kind.
    pub(super) is_brief: bool,
    /// Whether a capture has only the packets of one end.
    pub(super) is_one_way: bool,
    /// Whether a capture lacks its handshake.
    pub(super) began_before: bool,
    /// Times from requests to answers by length; filled for live connections only.
    pub(super) answers: ByLength,
    /// Polls by which a server had sent, or a client had received, since the one before what was asked until then: there were as
    /// many answers at least.
    pub(super) answered_polls: u64,
    /// How often this host sent after the peer had, as far as polls of a live connection have found it.
    pub(super) turns: u64,
    /// How long nothing answered the SYNs of a connection in a capture; `None` if something did, or still may.
    pub(super) unopened_ns: Option<u64>,
    /// Whether the server of a live connection has acknowledged nothing but its opening, though data was sent again.
    pub(super) is_untaken: bool,
    pub(super) totals: Totals,
    /// Segments that were acknowledged, which a capture lacks.
    pub(super) segments_missed: u64,
}

impl ConnectionFigures {
    /// The part of the time in which requests wait.
    pub(super) fn waiting(&self) -> Part {
        if self.role == Role::Client { Part::Answer } else { Part::Service }
    }

    /// Adds waits of requests that are as long as one another.
    pub(super) fn add_waits(&mut self, alike: &Silences) {
        if alike.longest_ns as f64 >= LONG_NS {
            self.sums.late.plus(alike);
        }
        match self.role {
            Role::Client => {
                self.sums.answer.plus(alike);
                self.answers.add(alike);
            }
            Role::Server => self.sums.service.plus(alike),
        }
    }
}
