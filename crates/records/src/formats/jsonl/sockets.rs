//! Objects of `dwell run`.

use std::borrow::Cow;

use dwell_engine::socket::{Account, Delay, Sum, Viewpoint};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    EstimateObject, FlowObject, LatencyObject, Object, Objects,
    object::{names, names_or_null},
    rounded,
};
use crate::{Shares, Socket, SocketEnd, SocketTotal, Sockets, sockets::rate_bps};

/// The method of round trips that the kernel measured for itself.
const TCP_INFO: &str = "tcp-info";

/// A connection in an interval.
#[derive(Serialize, JsonSchema)]
pub(super) struct SocketObject<'a> {
    /// The length of the interval, which ended at `time`.
    interval_ns: u64,
    /// The connection, from the end in this host.
    flow: FlowObject,
    /// A process that holds the socket. Null where it is not known.
    pid: Option<u32>,
    /// The descriptor of the socket in that process.
    fd: Option<i32>,
    /// The kernel's number of the socket (SO_COOKIE), unique until the host restarts.
    cookie: u64,
    /// How the socket was observed: "inside" its process by libdwell, or from "outside" by netlink.
    #[schemars(extend("enum" = names(Viewpoint::ALL, Viewpoint::name)))]
    viewpoint: &'a str,
    /// The time of the last poll of the socket, on CLOCK_MONOTONIC.
    poll_ns: u64,
    /// How long bytes that left in the interval had waited in the send buffer.
    sender_delay: LatencyObject,
    /// The age of the oldest byte in the send buffer. Null without any.
    sender_waiting_ns: Option<u64>,
    /// How long bytes that were read in the interval had waited in the receive buffer.
    receiver_delay: LatencyObject,
    /// The round-trip time that the kernel measured: smoothed in `mean_ns`, and its minimum.
    network_rtt: LatencyObject,
    /// Half of the smoothed round-trip time.
    network_one_way_ns: Option<u64>,
    /// The rate of acknowledged bytes, in bits per second.
    throughput_bps: Option<u64>,
    /// The rate of received bytes, in bits per second.
    receive_throughput_bps: Option<u64>,
    /// The congestion window, in segments.
    cwnd: Option<u32>,
    /// The slow-start threshold, in segments. Null before the first loss.
    ssthresh: Option<u32>,
    /// Segments that were retransmitted in the interval.
    retransmitted: u32,
    /// Segments that arrived out of order in the interval.
    out_of_order: Option<u32>,
    /// Bytes in the send buffer that have not been sent yet.
    notsent_bytes: Option<u32>,
    /// What `--minimize` has set TCP_NOTSENT_LOWAT to, in bytes.
    notsent_lowat: Option<u32>,
    /// Whether the socket is closed and this is its last object.
    ended: bool,
}

impl Object for SocketObject<'_> {
    const KINDS: &'static [&'static str] = &["run.socket"];
}

/// Writes one object per connection.
pub(super) fn interval(interval: &Sockets<'_>, objects: &mut Objects<'_>) {
    for socket in interval.ordered(|_| true, usize::MAX).0 {
        let account = &socket.account;
        let [sender_delay, receiver_delay, network_rtt] = socket_latencies(socket).map(|(_, latency)| latency);
        let bps = |bytes: Option<u64>| rate_bps(bytes?, interval.length_ns);
        let body = SocketObject {
            interval_ns: interval.length_ns,
            flow: objects.tcp(&account.ends),
            pid: account.pid,
            fd: account.fd,
            cookie: account.cookie,
            viewpoint: account.viewpoint.name(),
            poll_ns: account.reading.time_ns,
            sender_delay,
            sender_waiting_ns: account.waiting_ns,
            receiver_delay,
            network_rtt,
            network_one_way_ns: socket.rtt_ns().map(|ns| ns / 2),
            throughput_bps: bps(socket.acked_bytes()),
            receive_throughput_bps: bps(socket.received_bytes()),
            cwnd: socket.cwnd(),
            ssthresh: socket.ssthresh(),
            retransmitted: socket.retransmissions(),
            out_of_order: socket.out_of_order(),
            notsent_bytes: account.reading.info.notsent_bytes,
            notsent_lowat: account.setting.notsent_lowat,
            ended: account.ended,
        };
        objects.write(Some(interval.end_ns), &body);
    }
}

/// A connection in a run, which was last polled at `time`, or all connections, whose flow is null.
#[derive(Serialize, JsonSchema)]
pub(super) struct SocketSummaryObject<'a> {
    /// How long the connection was watched; of all connections the length of the run.
    interval_ns: u64,
    /// The number of connections in these figures.
    connections: u64,
    /// The connection, from the end in this host. Null for all together.
    flow: Option<FlowObject>,
    /// A process that holds the socket. Null where it is not known.
    pid: Option<u32>,
    /// The descriptor of the socket in that process.
    fd: Option<i32>,
    /// The kernel's number of the socket (SO_COOKIE), unique until the host restarts.
    cookie: Option<u64>,
    /// How the socket was observed: "inside" its process by libdwell, or from "outside" by netlink.
    #[schemars(extend("enum" = names_or_null(Viewpoint::ALL, Viewpoint::name)))]
    viewpoint: Option<&'a str>,
    #[serde(flatten)]
    totals: Totals,
    /// What `--minimize` has set TCP_NOTSENT_LOWAT to, in bytes.
    notsent_lowat: Option<u32>,
    /// Whether the socket is closed.
    ended: Option<bool>,
}

impl Object for SocketSummaryObject<'_> {
    const KINDS: &'static [&'static str] = &["run.summary"];
}

#[derive(Serialize, JsonSchema)]
struct Totals {
    /// How long bytes that left had waited in the send buffer.
    sender_delay: LatencyObject,
    /// How long bytes that were read had waited in the receive buffer.
    receiver_delay: LatencyObject,
    /// The round-trip time that the kernel measured: the smoothed one, weighted by the bytes transferred at each, in
    /// `mean_ns`, and the minimum of a connection.
    network_rtt: LatencyObject,
    /// Half of the mean round-trip time.
    network_one_way_ns: Option<u64>,
    /// Bytes that the other end acknowledged.
    sent_bytes: Option<u64>,
    /// Bytes that were received in order.
    received_bytes: Option<u64>,
    /// The rate of acknowledged bytes, in bits per second.
    throughput_bps: Option<u64>,
    /// The rate of received bytes, in bits per second.
    receive_throughput_bps: Option<u64>,
    /// Segments that were retransmitted.
    retransmitted: u64,
    /// Segments that arrived out of order.
    out_of_order: Option<u64>,
    /// The share of the time of bytes in the send buffer, from 0 to 1.
    sender_share: Option<f64>,
    /// The share in one direction of the network.
    network_share: Option<f64>,
    /// The share in the receive buffer.
    receiver_share: Option<f64>,
}

impl Totals {
    fn new(total: &SocketTotal, account: Option<&Account>) -> Totals {
        let bps = |bytes: Option<u64>| rate_bps(bytes?, total.length_ns);
        let shares = total.shares();
        let share = |of: fn(&Shares) -> f64| shares.map(|shares| rounded(of(&shares)));
        let [sender_delay, receiver_delay, network_rtt] = total_latencies(total, account).map(|(_, latency)| latency);
        Totals {
            sender_delay,
            receiver_delay,
            network_rtt,
            network_one_way_ns: total.network.mean_ns().map(|ns| ns / 2),
            sent_bytes: total.acked_bytes,
            received_bytes: total.received_bytes,
            throughput_bps: bps(total.acked_bytes),
            receive_throughput_bps: bps(total.received_bytes),
            retransmitted: total.retransmissions,
            out_of_order: total.out_of_order,
            sender_share: share(|shares| shares.sender),
            network_share: share(|shares| shares.network),
            receiver_share: share(|shares| shares.receiver),
        }
    }
}

/// Writes one object per connection, and one for all.
pub(super) fn summary(end: &SocketEnd<'_>, objects: &mut Objects<'_>) {
    let summary = end.summary;
    for line in summary.lines(end.order, usize::MAX) {
        let account = &line.last;
        let body = SocketSummaryObject {
            interval_ns: line.total.length_ns,
            connections: 1,
            flow: Some(objects.tcp(&account.ends)),
            pid: account.pid,
            fd: account.fd,
            cookie: Some(account.cookie),
            viewpoint: Some(account.viewpoint.name()),
            totals: Totals::new(&line.total, Some(account)),
            notsent_lowat: account.setting.notsent_lowat,
            ended: Some(account.ended),
        };
        objects.write(Some(line.end_ns), &body);
    }
    let all = SocketSummaryObject {
        interval_ns: summary.all().length_ns,
        connections: summary.connections(),
        flow: None,
        pid: None,
        fd: None,
        cookie: None,
        viewpoint: None,
        totals: Totals::new(summary.all(), None),
        notsent_lowat: None,
        ended: None,
    };
    objects.write(Some(end.end_ns), &all);
}

/// Returns the latencies of a connection in an interval, with the keys that they have here.
pub(crate) fn socket_latencies(socket: &Socket) -> [(&'static str, LatencyObject); 3] {
    let account = &socket.account;
    let (peaks, delays) = (&account.peaks, &account.delays);
    keyed([
        delay(Some(account), &socket.sender(), peaks.sender_ns, delays.sender),
        delay(Some(account), &socket.receiver(), peaks.receiver_ns, delays.receiver),
        round_trip(socket.rtt_ns(), socket.min_rtt_ns()),
    ])
}

/// Returns the latencies of a connection in a run; of all connections without an account.
pub(crate) fn total_latencies(total: &SocketTotal, account: Option<&Account>) -> [(&'static str, LatencyObject); 3] {
    let min_rtt_us = account.and_then(|account| account.reading.info.min_rtt_us);
    keyed([
        delay(account, &total.sender, total.sender_max_ns, None),
        delay(account, &total.receiver, total.receiver_max_ns, None),
        round_trip(total.network.mean_ns(), min_rtt_us.map(|us| u64::from(us) * 1_000)),
    ])
}

fn keyed([sender, receiver, network]: [LatencyObject; 3]) -> [(&'static str, LatencyObject); 3] {
    [("sender_delay", sender), ("receiver_delay", receiver), ("network_rtt", network)]
}

/// The wait of bytes in a buffer. `latest` bounds the last one. Without an account there may have been several methods.
fn delay(account: Option<&Account>, sum: &Sum, max_ns: Option<u64>, latest: Option<Delay>) -> LatencyObject {
    LatencyObject {
        method: account.map(|account| Cow::Borrowed(account.estimator.name())),
        count: Some(sum.samples),
        mean_ns: sum.mean_ns(),
        max_ns,
        estimate: Some(EstimateObject {
            low_ns: latest.map(|delay| delay.least_ns),
            high_ns: latest.map(|delay| delay.most_ns),
            valid: sum.mean_ns().is_some(),
            ..EstimateObject::default()
        }),
        ..LatencyObject::default()
    }
}

fn round_trip(mean_ns: Option<u64>, min_ns: Option<u64>) -> LatencyObject {
    LatencyObject { method: Some(Cow::Borrowed(TCP_INFO)), mean_ns, min_ns, ..LatencyObject::default() }
}
