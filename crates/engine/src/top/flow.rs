//! The state of one flow.

use super::{Figures, Metric, Past, Response, figures::Mean};
use crate::{
    layers::Ends,
    measure::{FlowEvent, Method, Protocol, Sample},
    roles::Role,
    socket::Reading,
};

/// A poll of a TCP socket of this host.
#[derive(Debug, Clone, Copy)]
pub struct SocketReading<'a> {
    /// The connection, from this host.
    pub ends: Ends,
    /// The kernel's number of the socket (SO_COOKIE).
    pub cookie: u64,
    /// The process that has the socket, if known.
    pub pid: Option<u32>,
    /// The unit or container of that process, if known, by a number of the caller's.
    pub unit: Option<u32>,
    /// What the kernel reported.
    pub reading: &'a Reading,
}

/// A latency of a flow in an interval, as another run of dwell has measured and stored it.
#[derive(Debug, Clone, Copy)]
pub struct StoredLatency {
    /// The flow, as it was stored.
    pub ends: Ends,
    /// Its transport protocol.
    pub protocol: Protocol,
    /// Whether `src` is the end on the host that was measured, or `dst`; `None` where that is not known.
    pub is_src_local: Option<bool>,
    /// The process of that end, if known.
    pub pid: Option<u32>,
    /// The unit or container of that process, if known, by a number of the caller's.
    pub unit: Option<u32>,
    /// Whether it is a round trip from end to end, of which the two sides may be stored too.
    pub is_around: bool,
    /// Which latency it is: a round trip, a response, or a wait in the send buffer. Other metrics are not latencies, and
    /// are ignored.
    pub metric: Metric,
    /// The mean.
    pub mean_ns: u64,
    /// What it is the mean of.
    pub count: u64,
    /// The end of the interval.
    pub time_ns: u64,
}

/// What limited a connection since dwell has seen it first, as shares of that time from 0 to 1, by the kernel's own clocks.
/// The rest was idle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Data was under way, limited by the congestion window or the path.
    pub network: f64,
    /// Limited by the receive window of the other end.
    pub receiver: f64,
    /// Limited by the size of the send buffer.
    pub buffer: f64,
}

/// Who has sent nothing for as long does not wait for an answer, but has nothing to ask.
const LONGEST_WAIT_NS: u64 = 30_000_000_000;

/// What a socket has counted.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    time_ns: u64,
    acked: Option<u64>,
    received: Option<u64>,
    /// Bytes that were sent at least once.
    left: Option<u64>,
    waiting: Option<u64>,
    segments: Option<u32>,
    again: u32,
    busy_us: Option<u64>,
    receiver_us: Option<u64>,
    buffer_us: Option<u64>,
}

impl Counts {
    fn new(reading: &Reading) -> Counts {
        let info = &reading.info;
        Counts {
            time_ns: reading.time_ns,
            acked: info.bytes_acked,
            received: info.bytes_received,
            left: info.bytes_sent.zip(info.bytes_retransmitted).map(|(sent, again)| sent.saturating_sub(again)),
            waiting: info.notsent_bytes.map(u64::from),
            segments: info.data_segments_out,
            again: info.retransmissions,
            busy_us: info.busy_us,
            receiver_us: info.receiver_limited_us,
            buffer_us: info.buffer_limited_us,
        }
    }
}

/// What packets have shown of a flow since the last interval.
#[derive(Debug, Clone, Copy, Default)]
struct Packets {
    /// Round trips from the point where they were seen, to `dst` and to `src`.
    to: [Mean; 2],
    /// Round trips from end to end, of which the two sides may have samples of their own.
    around: Mean,
    sent: u64,
    again: u64,
    /// Bytes of the flow so far: at the last interval, and now.
    bytes: (Option<u64>, u64),
    /// Whether samples or the end of the flow have told of packets.
    is_counted: bool,
}

/// The state of one flow.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    /// 0 where the flow has no socket here.
    cookie: u64,
    pub(super) pid: Option<u32>,
    pub(super) unit: Option<u32>,
    /// Whether it is known of a stored flow that `src` is the end on the host that was measured.
    is_local: bool,
    first: Counts,
    last: Counts,
    /// The last reading of this interval.
    now: Option<(Counts, u64, Option<u64>)>,
    packets: Packets,
    /// Segments with data of the flow so far, and those of them that were sent again, as samples have told.
    counted: (u64, u64),
    /// What `src` is, if the packets that opened the flow were seen.
    pub(super) role: Option<Role>,
    response: Mean,
    /// Estimates of it that are not believed.
    doubted_response: Mean,
    /// Whether requests and answers take turns, as far as the last epoch has shown it: then who has spoken last waits.
    takes_turns: bool,
    /// How long ago `src` has spoken if it was the last to speak, and how long ago `dst`, as the socket knows it.
    unanswered_ns: [Option<u64>; 2],
    /// The wait in the send buffer, as a store has it.
    send_buffer: Mean,
    /// When it was seen last, on the source's clock.
    pub(super) seen_ns: u64,
    pub(super) last_rtt_ns: Option<u64>,
    /// The shortest round trip that the kernel has seen lately.
    pub(super) shortest_rtt_ns: Option<u64>,
    pub(super) figures: Figures,
    pub(super) past: Past,
}

impl Flow {
    /// Returns true if a socket of this host has it.
    pub(super) fn has_socket(&self) -> bool {
        self.cookie != 0
    }

    /// Returns true if it was measured at `src`: by a socket of this host, or as a store has it.
    pub(super) fn is_local(&self) -> bool {
        self.has_socket() || self.is_local
    }

    /// Returns true if its socket was polled in this interval.
    pub(super) fn is_polled(&self) -> bool {
        self.now.is_some()
    }

    /// Adds a poll of its socket.
    pub(super) fn poll(&mut self, socket: &SocketReading<'_>) {
        let reading = socket.reading;
        let counts = Counts::new(reading);
        if self.cookie != socket.cookie {
            // The first one, or another connection with the same ends, which may be of another process.
            if self.has_socket() {
                (self.pid, self.unit, self.past) = (None, None, Past::default());
            }
            self.cookie = socket.cookie;
            self.first = counts;
            self.last = Counts::default();
        }
        self.pid = socket.pid.or(self.pid);
        self.unit = socket.unit.or(self.unit);
        self.seen_ns = reading.time_ns;
        let silence_ns = u64::from(reading.info.last_data_sent_ms) * 1_000_000;
        let rtt_ns = (reading.info.rtt_us > 0).then(|| u64::from(reading.info.rtt_us) * 1_000);
        self.now = Some((counts, silence_ns, rtt_ns));
        let last_ms = [reading.info.last_data_sent_ms, reading.info.last_data_received_ms];
        self.unanswered_ns = [last_ms, [last_ms[1], last_ms[0]]]
            .map(|[asked, answered]| (asked < answered).then(|| u64::from(asked) * 1_000_000));
        self.shortest_rtt_ns = reading.info.min_rtt_us.map(|us| u64::from(us) * 1_000);
    }

    /// Adds a round trip to `dst`, or to `src`.
    pub(super) fn sample(&mut self, sample: &Sample, to_src: bool) {
        let packets = &mut self.packets;
        match sample.method {
            Method::QuicSpinLoop => packets.around.add(sample.rtt_ns),
            _ => packets.to[usize::from(to_src)].add(sample.rtt_ns),
        }
        packets.sent += sample.path.sent;
        packets.again += sample.path.retransmitted;
        packets.bytes.1 = packets.bytes.1.max(sample.bytes);
        packets.is_counted = true;
        self.counted.0 += sample.path.sent;
        self.counted.1 += sample.path.retransmitted;
        self.seen_ns = self.seen_ns.max(sample.time_ns);
    }

    /// Adds what has passed since the last sample of a flow that is over.
    pub(super) fn close(&mut self, event: &FlowEvent) {
        let (packets, (sent, again)) = (&mut self.packets, std::mem::take(&mut self.counted));
        packets.sent += event.data.saturating_sub(sent);
        packets.again += u64::from(event.retransmitted).saturating_sub(again);
        packets.bytes.1 = packets.bytes.1.max(event.bytes);
        packets.is_counted = true;
    }

    /// Adds what an epoch has shown of how long the server takes to respond.
    pub(super) fn respond(&mut self, time_ns: u64, response: Response) {
        match response {
            Response::Believed(ns) => self.response.add(ns),
            Response::Doubted(ns) => self.doubted_response.add(ns),
            Response::Unknown => {}
        }
        self.takes_turns = response != Response::Unknown;
        self.seen_ns = self.seen_ns.max(time_ns);
    }

    /// Adds a latency of a store; a round trip was one to `dst`, or to `src`.
    pub(super) fn stored(&mut self, stored: &StoredLatency, to_src: bool) {
        let mean = match stored.metric {
            Metric::Rtt if stored.is_around => &mut self.packets.around,
            Metric::Rtt => &mut self.packets.to[usize::from(to_src)],
            Metric::Response => &mut self.response,
            Metric::SendBuffer => &mut self.send_buffer,
            Metric::Retransmissions | Metric::Rate => return,
        };
        mean.add_many(stored.mean_ns, stored.count);
        self.is_local |= stored.is_src_local.is_some();
        self.pid = stored.pid.or(self.pid);
        self.unit = stored.unit.or(self.unit);
        self.seen_ns = self.seen_ns.max(stored.time_ns);
    }

    /// Takes over what packets have shown of the same flow, seen from the other end.
    pub(super) fn adopt(&mut self, other: &Flow) {
        self.packets = other.packets;
        self.packets.to.swap(0, 1);
        self.response = other.response;
        self.doubted_response = other.doubted_response;
        self.takes_turns = other.takes_turns;
        self.send_buffer = other.send_buffer;
        self.past = other.past.clone();
    }

    /// Ends an interval of `length_ns`. In a capture, all bytes of a flow that is new belong to it.
    pub(super) fn end_interval(&mut self, length_ns: u64, is_capture: bool) {
        self.figures = match self.now.take() {
            Some((counts, silence_ns, rtt_ns)) => self.by_socket(counts, silence_ns, rtt_ns),
            None => self.by_packets(length_ns, is_capture),
        };
        self.figures.response_ns = std::mem::take(&mut self.response).get();
        let doubted_ns = std::mem::take(&mut self.doubted_response).get().max(self.waiting_ns());
        self.figures.doubted_response_ns = doubted_ns.filter(|_| self.figures.response_ns.is_none());
        self.figures.send_buffer_ns = std::mem::take(&mut self.send_buffer).get().or(self.figures.send_buffer_ns);
        let packets = std::mem::take(&mut self.packets);
        // Where no packet was seen, there was no sample either, and the count of bytes stays.
        self.packets.bytes = match packets.is_counted {
            false => packets.bytes,
            true => (Some(packets.bytes.1), packets.bytes.1),
        };
        self.last_rtt_ns = self.figures.rtt_ns.or(self.last_rtt_ns);
        self.past.push(&self.figures);
    }

    fn by_socket(&mut self, now: Counts, silence_ns: u64, rtt_ns: Option<u64>) -> Figures {
        let last = std::mem::replace(&mut self.last, now);
        // Round trips as packets show them are of this interval; that of the socket is smoothed.
        let seen = self.packets.to[0].get();
        if last.time_ns == 0 {
            self.last_rtt_ns = rtt_ns;
            return Figures { rtt_ns: seen, ..Figures::default() };
        }
        let length_ns = now.time_ns.saturating_sub(last.time_ns).max(1);
        let since = |of: fn(&Counts) -> Option<u64>| of(&now).zip(of(&last)).map(|(b, a)| b.saturating_sub(a));
        let (acked, received) = (since(|counts| counts.acked), since(|counts| counts.received));
        let bps = |bytes: Option<u64>| bytes.map(|bytes| bps(bytes, length_ns));
        let is_fresh = acked.is_some_and(|bytes| bytes > 0);
        Figures {
            rtt_ns: seen.or(rtt_ns.filter(|_| is_fresh)),
            response_ns: None,
            doubted_response_ns: None,
            send_buffer_ns: wait(&last, &now, silence_ns),
            segments_sent: now.segments.zip(last.segments).map(|(b, a)| b.wrapping_sub(a).into()),
            retransmissions: Some(now.again.wrapping_sub(last.again).into()),
            sent_bps: bps(acked),
            received_bps: bps(received),
            rate_bps: bps(acked.zip(received).map(|(a, b)| a.saturating_add(b))),
        }
    }

    /// Round trips of both sides add up to that from end to end. From the end itself those to the other end are all.
    fn by_packets(&self, length_ns: u64, is_capture: bool) -> Figures {
        let packets = &self.packets;
        let [there, here] = packets.to.map(|mean| mean.get());
        let around = packets.around.get();
        let rtt_ns = match (there, here) {
            _ if self.is_local => there.or(around),
            (Some(there), Some(here)) => Some(there.saturating_add(here)),
            (there, here) => around.or(there).or(here),
        };
        if !packets.is_counted {
            return Figures { rtt_ns, ..Figures::default() };
        }
        let (before, bytes) = packets.bytes;
        Figures {
            rtt_ns,
            segments_sent: Some(packets.sent),
            retransmissions: Some(packets.again),
            rate_bps: before.or(is_capture.then_some(0)).map(|before| bps(bytes.saturating_sub(before), length_ns)),
            ..Figures::default()
        }
    }

    /// Returns how long the client has waited for an answer, if it does.
    fn waiting_ns(&mut self) -> Option<u64> {
        let [src_ns, dst_ns] = std::mem::take(&mut self.unanswered_ns);
        let waiting_ns = match self.role.filter(|_| self.takes_turns)? {
            Role::Client => src_ns,
            Role::Server => dst_ns,
        };
        waiting_ns.filter(|ns| (1..LONGEST_WAIT_NS).contains(ns))
    }

    /// Returns what limited it. `None` without two polls of a socket, or where the kernel keeps no such clocks.
    pub(super) fn limits(&self) -> Option<Limits> {
        let length = self.last.time_ns.checked_sub(self.first.time_ns).filter(|ns| *ns > 0)? as f64;
        let share = |of: fn(&Counts) -> Option<u64>| {
            let us = of(&self.last)?.saturating_sub(of(&self.first)?);
            Some((us as f64 * 1e3 / length).min(1.0))
        };
        let busy = share(|counts| counts.busy_us)?;
        let receiver = share(|counts| counts.receiver_us)?.min(busy);
        let buffer = share(|counts| counts.buffer_us)?.min(busy - receiver);
        Some(Limits { network: busy - receiver - buffer, receiver, buffer })
    }
}

/// The mean wait of the bytes that left between two polls: the mean of the bytes that waited at the polls, divided by
/// the rate at which they left. If none left, those that wait have done so for the silence at least.
fn wait(last: &Counts, now: &Counts, silence_ns: u64) -> Option<u64> {
    let (before, waiting) = (last.waiting?, now.waiting?);
    let left = now.left?.saturating_sub(last.left?);
    if left == 0 {
        return (waiting > 0).then_some(silence_ns);
    }
    let length_ns = now.time_ns.saturating_sub(last.time_ns);
    let wait = u128::from(before + waiting) * u128::from(length_ns) / (2 * u128::from(left));
    Some(u64::try_from(wait).unwrap_or(u64::MAX))
}

fn bps(bytes: u64, length_ns: u64) -> u64 {
    let bps = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(length_ns.max(1));
    u64::try_from(bps).unwrap_or(u64::MAX)
}
