//! Lines of `dwell run`.

pub(super) mod summary;

use super::{Rate, UNKNOWN, counted, put, tcp_names, trimmed};
use crate::{Socket, Sockets, Source, Timestamps, sockets::rate_bps};

/// Lines between two headers.
const HEADER_EVERY: usize = 24;
/// Connections that get a line of their own, unless the user gives another number.
const SHOWN: usize = 16;

/// Lines of intervals, below a header that is repeated.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    since_header: Option<usize>,
}

impl Lines {
    /// Writes a line for each connection that did something, in the order of the interval.
    pub(super) fn write(&mut self, interval: &Sockets<'_>, times: &mut Timestamps, source: &Source, out: &mut Vec<u8>) {
        let (lines, rest) = interval.ordered(Socket::is_active, SHOWN);
        let before = times.date_width();
        let time = times.of_line(source.clock.unix_ns(interval.end_ns)).map(str::to_owned);
        // HH:MM:SS, and a tenth, after the date.
        let length = times.date_width() + if interval.has_tenths { 10 } else { 8 };
        let width = length + 1;
        if times.date_width() != before {
            self.since_header = None;
        }
        let time = time.as_deref().and_then(|time| time.get(..length)).unwrap_or(UNKNOWN);
        for socket in lines {
            self.header(width, out);
            put(out, format_args!("{time:<width$}"));
            line(socket, interval.length_ns, source, out);
        }
        if !rest.is_empty() {
            let bytes = rest.iter().map(|socket| socket.bytes()).sum();
            let connections = counted(rest.len() as u64, "connection", "connections");
            let rate = rate_bps(bytes, interval.length_ns).map_or(UNKNOWN.into(), rate);
            put(out, format_args!("{time:<width$}and {connections} more, with {rate}\n"));
        }
    }

    fn header(&mut self, width: usize, out: &mut Vec<u8>) {
        let lines = self.since_header.unwrap_or(HEADER_EVERY);
        self.since_header = Some(if lines >= HEADER_EVERY {
            put(
                out,
                format_args!(
                    "{:<width$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>13}{:>13}{:>6}{:>6}  connection\n",
                    "UTC", "send buf", "longest", "waiting", "rtt", "recv buf", "sent", "received", "cwnd", "again"
                ),
            );
            1
        } else {
            lines + 1
        });
    }
}

fn line(socket: &Socket, length_ns: u64, source: &Source, out: &mut Vec<u8>) {
    let account = &socket.account;
    for ns in [
        socket.sender().mean_ns(),
        account.peaks.sender_ns,
        account.waiting_ns,
        socket.rtt_ns(),
        socket.receiver().mean_ns(),
    ] {
        put(out, format_args!("{:>9}", latency(ns)));
    }
    for bytes in [socket.acked_bytes(), socket.received_bytes()] {
        let bps = bytes.and_then(|bytes| rate_bps(bytes, length_ns));
        put(out, format_args!("{:>13}", bps.map_or(UNKNOWN.into(), rate)));
    }
    put(
        out,
        format_args!(
            "{:>6}{:>6}  {} → {}",
            socket.cwnd().map_or(UNKNOWN.into(), |cwnd| cwnd.to_string()),
            socket.retransmissions(),
            account.ends.src,
            account.ends.dst
        ),
    );
    if account.ended {
        out.extend_from_slice(b"  ended");
    }
    put(out, format_args!("{}\n", tcp_names(source, &account.ends)));
}

/// Formats a latency that may be unknown.
fn latency(ns: Option<u64>) -> String {
    ns.map_or(UNKNOWN.into(), trimmed)
}

/// Formats a rate without the spaces that align it.
fn rate(bps: u64) -> String {
    Rate(bps).to_string().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Jsonl, Record, SocketOrder, Text, formats::samples};

    fn written(mut format: impl Format, sockets: &[Socket], top: Option<usize>) -> String {
        let mut out = Vec::new();
        let order = SocketOrder { top, ..SocketOrder::default() };
        let interval = Sockets { end_ns: 1_000_000_000, length_ns: 1_000_000_000, sockets, order, has_tenths: false };
        format.write(&Record::Sockets(&interval), &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_a_connection_that_does_something() {
        let text = written(Text::default(), &[samples::socket_idle(), samples::socket()], None);
        insta::assert_snapshot!(text, @r#"
        UTC       send buf  longest  waiting      rtt recv buf         sent     received  cwnd again  connection
        05:10:01    600 ms   655 ms   640 ms   380 ms        -  9.60 Mbit/s      0 bit/s   320     3  192.0.2.1:44321 → 198.51.100.7:443
        "#);
    }

    #[test]
    fn intervals_below_a_second_have_tenths_in_their_times() {
        let interval = Sockets {
            end_ns: 1_250_000_000,
            length_ns: 250_000_000,
            sockets: &[samples::socket()],
            order: SocketOrder::default(),
            has_tenths: true,
        };
        let mut out = Vec::new();
        Text::default().write(&Record::Sockets(&interval), &samples::source(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| &line[..19]).collect();
        assert_eq!(lines, ["UTC         send buf", "05:10:01.2    600 ms"].map(|it| &it[..19]));
    }

    #[test]
    fn those_that_have_no_line_are_counted_with_what_they_carry() {
        let text = written(Text::default(), &[samples::socket(); 3], Some(1));
        insta::assert_snapshot!(text.lines().last().unwrap(), @r#"05:10:01 and 2 connections more, with 19.2 Mbit/s"#);
    }

    #[test]
    fn the_header_comes_again_after_some_lines() {
        let (mut format, mut out) = (Text::default(), Vec::new());
        for _ in 0..50 {
            let interval = Sockets {
                end_ns: 0,
                length_ns: 1_000_000_000,
                sockets: &[samples::socket()],
                order: SocketOrder::default(),
                has_tenths: false,
            };
            format.write(&Record::Sockets(&interval), &samples::source(), &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        let headers = text.lines().filter(|line| line.contains("connection"));
        assert_eq!(headers.count(), 3);
    }

    #[test]
    fn an_object_a_connection_and_what_is_not_known_is_null() {
        let text = written(Jsonl::default(), &[samples::socket(), samples::socket_idle()], None);
        insta::assert_snapshot!(text, @r#"
        {"type":"run.socket","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interval_ns":1000000000,"flow":{"src":"192.0.2.1","sport":44321,"dst":"198.51.100.7","dport":443,"proto":"TCP","id":"1:3+1ROSajzqNleEHGBuufJMdXiQI=","client":"src"},"pid":4242,"fd":5,"cookie":4711,"viewpoint":"inside","poll_ns":1000000000,"sender_delay":{"method":"exact","count":100,"mean_ns":600000000,"min_ns":null,"max_ns":655000000,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":605000000,"high_ns":615000000,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":true,"reason":null},"sender_waiting_ns":640000000,"receiver_delay":{"method":"exact","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"network_rtt":{"method":"tcp-info","count":null,"mean_ns":380000000,"min_ns":50000000,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null},"network_one_way_ns":190000000,"throughput_bps":9600000,"receive_throughput_bps":0,"cwnd":320,"ssthresh":null,"retransmitted":3,"out_of_order":0,"notsent_bytes":750000,"notsent_lowat":null,"ended":false}
        {"type":"run.socket","schema":"dwell/2","time":"2026-11-21T05:10:01.000000000Z","host":"here","interval_ns":1000000000,"flow":{"src":"2001:db8::1","sport":50000,"dst":"2001:db8:0:1::443","dport":443,"proto":"TCP","id":"1:u8CNW2URs63Ms57BOIhY4Gx1LEY=","client":"src"},"pid":null,"fd":null,"cookie":4712,"viewpoint":"outside","poll_ns":0,"sender_delay":{"method":"paper","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"sender_waiting_ns":null,"receiver_delay":{"method":"paper","count":0,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null,"low_ns":null,"high_ns":null,"p99_low_ns":null,"p99_high_ns":null,"confidence":null,"valid":false,"reason":null},"network_rtt":{"method":"tcp-info","count":null,"mean_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"p95_ns":null,"p99_ns":null,"p99_9_ns":null},"network_one_way_ns":null,"throughput_bps":null,"receive_throughput_bps":null,"cwnd":null,"ssthresh":null,"retransmitted":0,"out_of_order":null,"notsent_bytes":null,"notsent_lowat":null,"ended":true}
        "#);
    }
}
