//! What the clients of a load know: when they sent each request, and when they had its answer.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
};

use dwell_socket::clock::{monotonic_ns, realtime_ns};
use dwell_testbed::{Error, Result};
use serde::Serialize;

/// A request as its client saw it. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: u64,
    pub(super) class: &'static str,
    /// Of the answer's body.
    pub(super) bytes: u64,
    /// Just before its request was written.
    pub(super) sent_ns: u64,
    /// When the last byte of its answer had been read. 0 until then.
    pub(super) done_ns: u64,
    /// The first request sent because of its answer.
    pub(super) triggers: Option<u64>,
}

/// What one connection did.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) records: Vec<Record>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Clock {
        realtime_minus_monotonic_ns: i64,
    },
    Request {
        src: IpAddr,
        sport: u16,
        dst: IpAddr,
        dport: u16,
        id: u64,
        class: &'static str,
        bytes: u64,
        sent_ns: u64,
        done_ns: u64,
        triggers: Option<u64>,
    },
}

/// Writes the log: a line about the clock, then a line a request in the order in which they were sent.
pub(super) fn write(flows: &[Flow], realtime_minus_monotonic_ns: i64, out: &mut dyn Write) -> Result<()> {
    let clock = Line::Clock { realtime_minus_monotonic_ns };
    let mut requests: Vec<(&Flow, &Record)> =
        flows.iter().flat_map(|flow| flow.records.iter().map(move |record| (flow, record))).collect();
    requests.sort_by_key(|(_, record)| (record.sent_ns, record.id));
    let lines = std::iter::once(clock).chain(requests.into_iter().map(request));
    for line in lines {
        let text = serde_json::to_string(&line).map_err(|why| Error::invalid("truth log", why))?;
        writeln!(out, "{text}").map_err(Error::io("write the truth log"))?;
    }
    out.flush().map_err(Error::io("write the truth log"))
}

fn request((flow, record): (&Flow, &Record)) -> Line {
    Line::Request {
        src: flow.source.ip(),
        sport: flow.source.port(),
        dst: flow.destination.ip(),
        dport: flow.destination.port(),
        id: record.id,
        class: record.class,
        bytes: record.bytes,
        sent_ns: record.sent_ns,
        done_ns: record.done_ns,
        triggers: record.triggers,
    }
}

/// What to add to a monotonic time to get that of a capture, from the tightest of several readings.
pub(crate) fn realtime_minus_monotonic_ns() -> i64 {
    let reading = || {
        let before = monotonic_ns().cast_signed();
        let real = realtime_ns().cast_signed();
        let after = monotonic_ns().cast_signed();
        (after - before, real - before - (after - before) / 2)
    };
    let tightest = (0..16).map(|_| reading()).min();
    tightest.map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_order_of_sending_over_all_connections() {
        let record =
            |id, sent_ns, triggers| Record { id, class: "css", bytes: 7, sent_ns, done_ns: sent_ns + 5, triggers };
        let flow = |sport, records| Flow {
            source: ([10, 0, 0, 1], sport).into(),
            destination: ([10, 0, 0, 2], 80).into(),
            records,
        };
        let flows =
            [flow(5000, vec![record(0, 10, Some(2)), record(2, 30, None)]), flow(5001, vec![record(1, 20, None)])];
        let mut out = Vec::new();
        write(&flows, -3, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], r#"{"type":"clock","realtime_minus_monotonic_ns":-3}"#);
        assert_eq!(
            lines[1],
            r#"{"type":"request","src":"10.0.0.1","sport":5000,"dst":"10.0.0.2","dport":80,"id":0,"class":"css","bytes":7,"sent_ns":10,"done_ns":15,"triggers":2}"#
        );
        assert!(lines[2].contains(r#""sport":5001"#) && lines[2].ends_with(r#""triggers":null}"#));
        assert!(lines[3].contains(r#""id":2"#));
    }

    #[test]
    fn the_offset_between_clocks_is_that_between_two_readings() {
        let offset = realtime_minus_monotonic_ns();
        let real = realtime_ns().cast_signed();
        let from_monotonic = monotonic_ns().cast_signed() + offset;
        assert!((real - from_monotonic).abs() < 50_000_000);
    }
}
