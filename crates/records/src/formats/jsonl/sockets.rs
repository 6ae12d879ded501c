//! Objects of `dwell run`.

use serde::Serialize;

use super::{Flow, Objects, rounded};
use crate::{Shares, SocketEnd, SocketTotal, Sockets, sockets::rate_bps};

const SCHEMA: &str = "dwell.socket/1";

/// `type` "socket": a connection in the interval that ended at `time`; `src` is the end in this host.
#[derive(Serialize)]
struct Object<'a> {
    interval_ns: u64,
    /// Time of the last poll of the socket, on CLOCK_MONOTONIC.
    look_ns: u64,
    pid: Option<u32>,
    fd: Option<i32>,
    cookie: u64,
    #[serde(flatten)]
    flow: Flow,
    sender_delay_ns: Option<u64>,
    sender_delay_max_ns: Option<u64>,
    sender_delay_least_ns: Option<u64>,
    sender_delay_most_ns: Option<u64>,
    sender_waiting_ns: Option<u64>,
    receiver_delay_ns: Option<u64>,
    receiver_delay_max_ns: Option<u64>,
    network_rtt_ns: Option<u64>,
    network_min_rtt_ns: Option<u64>,
    network_one_way_ns: Option<u64>,
    throughput_bps: Option<u64>,
    receive_throughput_bps: Option<u64>,
    cwnd: Option<u32>,
    ssthresh: Option<u32>,
    retransmissions: u32,
    out_of_order: Option<u32>,
    notsent_bytes: Option<u32>,
    notsent_lowat: Option<u32>,
    estimator: &'a str,
    way: &'a str,
    ended: bool,
}

/// Writes one object per connection.
pub(super) fn interval(interval: &Sockets<'_>, objects: &mut Objects<'_>) {
    for socket in interval.sockets {
        let account = &socket.account;
        let info = &account.reading.info;
        let bps = |bytes: Option<u64>| rate_bps(bytes?, interval.length_ns);
        let body = Object {
            interval_ns: interval.length_ns,
            look_ns: account.reading.time_ns,
            pid: account.pid,
            fd: account.fd,
            cookie: account.cookie,
            flow: (&account.ends).into(),
            sender_delay_ns: socket.sender().mean_ns(),
            sender_delay_max_ns: account.peaks.sender_ns,
            sender_delay_least_ns: account.delays.sender.map(|delay| delay.least_ns),
            sender_delay_most_ns: account.delays.sender.map(|delay| delay.most_ns),
            sender_waiting_ns: account.waiting_ns,
            receiver_delay_ns: socket.receiver().mean_ns(),
            receiver_delay_max_ns: account.peaks.receiver_ns,
            network_rtt_ns: socket.rtt_ns(),
            network_min_rtt_ns: socket.min_rtt_ns(),
            network_one_way_ns: socket.rtt_ns().map(|ns| ns / 2),
            throughput_bps: bps(socket.acked_bytes()),
            receive_throughput_bps: bps(socket.received_bytes()),
            cwnd: socket.cwnd(),
            ssthresh: socket.ssthresh(),
            retransmissions: socket.retransmissions(),
            out_of_order: socket.out_of_order(),
            notsent_bytes: info.notsent_bytes,
            notsent_lowat: account.setting.notsent_lowat,
            estimator: account.estimator.name(),
            way: account.viewpoint.name(),
            ended: account.ended,
        };
        objects.write("socket", SCHEMA, Some(interval.end_ns), &body);
    }
}

/// `type` "socket_summary": a connection in a run, or all of them, whose ends are null.
#[derive(Serialize)]
struct SummaryObject<'a> {
    duration_ns: u64,
    connections: u64,
    pid: Option<u32>,
    fd: Option<i32>,
    cookie: Option<u64>,
    #[serde(flatten)]
    flow: OptionalFlow,
    #[serde(flatten)]
    figures: TotalFields,
    network_min_rtt_ns: Option<u64>,
    notsent_lowat: Option<u32>,
    estimator: Option<&'a str>,
    way: Option<&'a str>,
    ended: Option<bool>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OptionalFlow {
    One(Flow),
    All { src: Option<()>, sport: Option<()>, dst: Option<()>, dport: Option<()>, proto: &'static str },
}

#[derive(Serialize)]
struct TotalFields {
    sender_delay_ns: Option<u64>,
    sender_delay_max_ns: Option<u64>,
    receiver_delay_ns: Option<u64>,
    receiver_delay_max_ns: Option<u64>,
    network_rtt_ns: Option<u64>,
    network_one_way_ns: Option<u64>,
    sent_bytes: Option<u64>,
    received_bytes: Option<u64>,
    throughput_bps: Option<u64>,
    receive_throughput_bps: Option<u64>,
    retransmissions: u64,
    out_of_order: Option<u64>,
    sender_share: Option<f64>,
    network_share: Option<f64>,
    receiver_share: Option<f64>,
}

impl From<&SocketTotal> for TotalFields {
    fn from(total: &SocketTotal) -> TotalFields {
        let bps = |bytes: Option<u64>| rate_bps(bytes?, total.length_ns);
        let shares = total.shares();
        let share = |of: fn(&Shares) -> f64| shares.map(|shares| rounded(of(&shares)));
        TotalFields {
            sender_delay_ns: total.sender.mean_ns(),
            sender_delay_max_ns: total.sender_max_ns,
            receiver_delay_ns: total.receiver.mean_ns(),
            receiver_delay_max_ns: total.receiver_max_ns,
            network_rtt_ns: total.network.mean_ns(),
            network_one_way_ns: total.network.mean_ns().map(|ns| ns / 2),
            sent_bytes: total.acked_bytes,
            received_bytes: total.received_bytes,
            throughput_bps: bps(total.acked_bytes),
            receive_throughput_bps: bps(total.received_bytes),
            retransmissions: total.retransmissions,
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
    for line in summary.lines() {
        let account = &line.last;
        let body = SummaryObject {
            duration_ns: line.total.length_ns,
            connections: 1,
            pid: account.pid,
            fd: account.fd,
            cookie: Some(account.cookie),
            flow: OptionalFlow::One((&account.ends).into()),
            figures: (&line.total).into(),
            network_min_rtt_ns: account.reading.info.min_rtt_us.map(|us| u64::from(us) * 1_000),
            notsent_lowat: account.setting.notsent_lowat,
            estimator: Some(account.estimator.name()),
            way: Some(account.viewpoint.name()),
            ended: Some(account.ended),
        };
        objects.write("socket_summary", SCHEMA, Some(line.end_ns), &body);
    }
    let all = SummaryObject {
        duration_ns: summary.all().length_ns,
        connections: summary.connections(),
        pid: None,
        fd: None,
        cookie: None,
        flow: OptionalFlow::All { src: None, sport: None, dst: None, dport: None, proto: "TCP" },
        figures: summary.all().into(),
        network_min_rtt_ns: None,
        notsent_lowat: None,
        estimator: None,
        way: None,
        ended: None,
    };
    objects.write("socket_summary", SCHEMA, Some(end.end_ns), &all);
}
