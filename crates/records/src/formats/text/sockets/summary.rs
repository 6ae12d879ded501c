//! The table at the end of `dwell run`.

use super::{
    super::{Colour, UNKNOWN, counted, put, tcp_names},
    latency, rate,
};
use crate::{SocketEnd, SocketTotal, Source, sockets::rate_bps};

/// Connections that get a line of their own, unless the user gives another number.
const SHOWN: usize = 20;
/// A byte that arrives sooner than this is not worth a remark.
const SHORT_NS: u64 = 1_000_000;
/// A wait in this host that is shorter than this is not worth advice.
const LATE_NS: u64 = 30_000_000;
/// Fewer waits than this say nothing.
const FEW: u64 = 5;
/// A wait between two polls counts as none if it cannot have been longer than this.
const UNSEEN_NS: u64 = 40_000_000;

/// Writes a table with one line per connection, busiest first, and one for all, and then where the time goes.
pub fn write(end: &SocketEnd<'_>, source: &Source, colour: Colour, out: &mut Vec<u8>) {
    let summary = end.summary;
    let lines = summary.lines(end.order, SHOWN);
    if lines.is_empty() {
        let missed = match end.is_outside {
            true => "; those shorter than 50 ms may be missed",
            false => "",
        };
        put(out, format_args!("No TCP connections were seen{missed}.\n"));
        return;
    }
    put(
        out,
        format_args!(
            "{:>9}{:>9}{:>9}{:>9}{:>9}{:>13}{:>13}{:>10}{:>10}{:>6}  connection\n",
            "send buf", "longest", "rtt", "recv buf", "longest", "sent", "received", "sent", "received", "again"
        ),
    );
    for line in &lines {
        row(&line.total, out);
        let ends = &line.last.ends;
        put(out, format_args!("  {} → {}{}\n", ends.src, ends.dst, tcp_names(source, ends)));
    }
    let not_shown = summary.connections().saturating_sub(lines.len() as u64);
    row(summary.all(), out);
    put(
        out,
        format_args!(
            "  all {}{}\n",
            counted(summary.connections(), "connection", "connections"),
            match not_shown {
                0 => String::new(),
                some => format!(", {some} of them not shown"),
            }
        ),
    );
    if let Some(sentence) = sentence(summary.all(), end) {
        put(out, format_args!("{}\n", colour.verdict(sentence)));
    }
}

fn row(total: &SocketTotal, out: &mut Vec<u8>) {
    for ns in [
        total.sender.mean_ns(),
        total.sender_max_ns,
        total.network.mean_ns(),
        total.receiver.mean_ns(),
        total.receiver_max_ns,
    ] {
        put(out, format_args!("{:>9}", latency(ns)));
    }
    for bytes in [total.acked_bytes, total.received_bytes] {
        let bps = bytes.and_then(|bytes| rate_bps(bytes, total.length_ns));
        put(out, format_args!("{:>13}", bps.map_or(UNKNOWN.into(), rate)));
    }
    for bytes in [total.acked_bytes, total.received_bytes] {
        put(out, format_args!("{:>10}", bytes.map_or(UNKNOWN.into(), size)));
    }
    put(out, format_args!("{:>6}", total.retransmissions));
}

/// Bytes with three significant digits.
fn size(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut shown = "B";
    for unit in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        value /= 1_000.0;
        shown = unit;
    }
    let decimals = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {shown}")
}

/// Where the time of a byte goes, and what may be done about it; `None` where too little is known.
fn sentence(total: &SocketTotal, end: &SocketEnd<'_>) -> Option<String> {
    let shares = total.shares()?;
    let short_ns = end.look_ns.max(SHORT_NS);
    if shares.whole_ns < short_ns {
        let short = latency(Some(short_ns + UNSEEN_NS));
        return Some(format!("Nothing waits long: a byte takes less than {short}."));
    }
    let whole = latency(Some(shares.whole_ns));
    let remedy = end.remedy.map_or_else(String::new, |remedy| format!(": {remedy}"));
    let percent = |share: f64| (share * 100.0).round();
    let places = [
        (shares.sender, "in this host's send buffer", Some((&total.sender, remedy.as_str()))),
        (shares.network, "in the network or waiting for the other end, taken as half of the round trip", None),
        (shares.receiver, "in this host's receive buffer", Some((&total.receiver, ": the program reads late"))),
    ];
    let (share, place, buffer) = places.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let advice = match buffer {
        None => "",
        Some((wait, advice)) => {
            let mean_ns = wait.mean_ns()?;
            if mean_ns < end.look_ns || wait.samples < FEW {
                return None;
            }
            if mean_ns < LATE_NS { "" } else { advice }
        }
    };
    Some(format!("A byte takes {whole}, {} % of it {place}{advice}.", percent(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Jsonl, Record, Socket, SocketOrder, SocketSummary, Text, formats::samples};

    fn written(mut format: impl Format, sockets: &[Socket], remedy: Option<&str>) -> String {
        let mut summary = SocketSummary::new(100);
        for socket in sockets {
            summary.add(1_000_000_000, 1_000_000_000, socket);
        }
        summary.set_length(2_000_000_000);
        let end = SocketEnd {
            end_ns: 2_000_000_000,
            summary: &summary,
            order: SocketOrder::default(),
            remedy,
            is_outside: false,
            look_ns: 10_000_000,
        };
        let mut out = Vec::new();
        format.write(&Record::SocketEnd(&end), &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    const TRY: Option<&str> = Some("try --minimize");

    fn both() -> [Socket; 2] {
        [samples::socket_idle(), samples::socket()]
    }

    #[test]
    fn a_line_a_connection_one_for_all_and_where_the_time_goes() {
        insta::assert_snapshot!(written(Text::default(), &both(), TRY), @r#"
         send buf  longest      rtt recv buf  longest         sent     received      sent  received again  connection
           600 ms   655 ms   380 ms        -        -  9.60 Mbit/s      0 bit/s   1.20 MB       0 B     3  192.0.2.1:44321 → 198.51.100.7:443
                -        -        -        -        -            -            -         -         -     0  [2001:db8::1]:50000 → [2001:db8:0:1::443]:443
           600 ms   655 ms   380 ms        -        -  4.80 Mbit/s      0 bit/s   1.20 MB       0 B     3  all 2 connections
        A byte takes 790 ms, 76 % of it in this host's send buffer: try --minimize.
        "#);
    }

    #[test]
    fn what_is_done_already_is_no_advice() {
        let text = written(Text::default(), &both(), None);
        assert!(text.contains("send buffer.") && !text.contains("--minimize"), "{text}");
    }

    #[test]
    fn connections_that_are_not_shown_are_counted() {
        let sockets: Vec<Socket> = (1..=25)
            .map(|cookie| {
                let mut socket = samples::socket();
                socket.account.cookie = cookie;
                socket
            })
            .collect();
        let text = written(Text::default(), &sockets, None);
        assert!(text.contains("all 25 connections, 5 of them not shown"), "{text}");
        assert_eq!(text.lines().count(), 1 + SHOWN + 2);
    }

    #[test]
    fn a_run_without_connections_says_so() {
        assert_eq!(written(Text::default(), &[], None), "No TCP connections were seen.\n");
        let end = SocketEnd {
            end_ns: 0,
            order: SocketOrder::default(),
            summary: &SocketSummary::new(1),
            remedy: None,
            is_outside: true,
            look_ns: 10_000_000,
        };
        let mut out = Vec::new();
        write(&end, &samples::source(), Colour::default(), &mut out);
        let missed = "No TCP connections were seen; those shorter than 50 ms may be missed.\n";
        assert_eq!(String::from_utf8(out).unwrap(), missed);
    }

    /// An upload for which 100 polls found that bytes waited this long.
    fn waiting(ns: u64) -> Socket {
        let mut socket = samples::socket();
        let sender = &mut socket.account.totals.sender;
        sender.ns_bytes = (ns * sender.bytes) as f64;
        socket.account.reading.info.rtt_us = 1_000;
        socket
    }

    #[test]
    fn waits_that_looks_cannot_tell_are_not_judged() {
        let said = |socket: Socket| {
            let text = written(Text::default(), &[socket], TRY);
            text.lines().skip(3).collect::<String>()
        };
        assert_eq!(said(waiting(4_000_000)), "Nothing waits long: a byte takes less than 50.0 ms.");
        assert_eq!(said(waiting(9_900_000)), "");
        let words = said(waiting(20_000_000));
        assert!(words.ends_with("in this host's send buffer."), "{words}");
        assert!(said(waiting(40_000_000)).ends_with("try --minimize."));
        let mut few = waiting(40_000_000);
        few.account.totals.sender.samples = 4;
        assert_eq!(said(few), "");
    }

    #[test]
    fn a_program_is_said_to_read_late_when_it_does() {
        for (wait_ns, is_late) in [(15_000_000, false), (60_000_000, true)] {
            let mut socket = waiting(0);
            socket.account.totals.receiver = waiting(wait_ns).account.totals.sender;
            let text = written(Text::default(), &[socket], TRY);
            assert!(text.contains("in this host's receive buffer"), "{text}");
            assert_eq!(text.contains("reads late"), is_late, "{text}");
        }
    }

    #[test]
    fn an_object_a_connection_and_one_for_all() {
        insta::assert_snapshot!(written(Jsonl::default(), &both(), TRY), @r#"
        {"type":"run.summary","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interval_ns":1000000000,"connections":1,"flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","client":"src"},"pid":4242,"fd":5,"cookie":4711,"viewpoint":"inside","sender_delay":{"method":"exact","count":100,"mean_ns":600000000,"min_ns":null,"max_ns":655000000,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":true,"reason":null},"receiver_delay":{"method":"exact","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"network_rtt":{"method":"tcp-info","count":null,"mean_ns":380000000,"min_ns":50000000,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null},"network_one_way_ns":190000000,"sent_bytes":1200000,"received_bytes":0,"throughput_bps":9600000,"receive_throughput_bps":0,"retransmitted":3,"out_of_order":0,"sender_share":0.759494,"network_share":0.240506,"receiver_share":0.0,"notsent_lowat":null,"ended":false}
        {"type":"run.summary","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interval_ns":1000000000,"connections":1,"flow":{"src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","id":"1:u8CNW2URs63Ms57BOIhY4Gx1LEY=","client":"src"},"pid":null,"fd":null,"cookie":4712,"viewpoint":"outside","sender_delay":{"method":"paper","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"receiver_delay":{"method":"paper","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"network_rtt":{"method":"tcp-info","count":null,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null},"network_one_way_ns":null,"sent_bytes":null,"received_bytes":null,"throughput_bps":null,"receive_throughput_bps":null,"retransmitted":0,"out_of_order":null,"sender_share":null,"network_share":null,"receiver_share":null,"notsent_lowat":null,"ended":true}
        {"type":"run.summary","schema":"dwell/2","time":"2026-11-21T05:10:02.000000000Z","host":"here","interval_ns":2000000000,"connections":2,"flow":null,"pid":null,"fd":null,"cookie":null,"viewpoint":null,"sender_delay":{"method":null,"count":100,"mean_ns":600000000,"min_ns":null,"max_ns":655000000,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":true,"reason":null},"receiver_delay":{"method":null,"count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"network_rtt":{"method":"tcp-info","count":null,"mean_ns":380000000,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null},"network_one_way_ns":190000000,"sent_bytes":1200000,"received_bytes":0,"throughput_bps":4800000,"receive_throughput_bps":0,"retransmitted":3,"out_of_order":0,"sender_share":0.759494,"network_share":0.240506,"receiver_share":0.0,"notsent_lowat":null,"ended":null}
        "#);
    }
}
