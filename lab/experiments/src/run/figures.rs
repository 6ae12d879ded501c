//! What iperf3, ss and `dwell run` report of a connection.

use dwell_testbed::{Error, Nanos, Result};
use serde_json::Value;

/// The figures of a connection. `None`: the program does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Figures {
    /// The mean of the smoothed round trips, one per interval.
    pub(super) rtt: Option<Nanos>,
    /// The least round trip; of iperf3 the least of the smoothed ones.
    pub(super) min_rtt: Option<Nanos>,
    /// Bytes that the receiver acknowledged, or received.
    pub(super) bytes: Option<u64>,
    pub(super) retransmissions: Option<u64>,
    /// The mean wait of bytes in the send buffer.
    pub(super) send_buffer: Option<Nanos>,
}

/// Reads the report of `iperf3 -J`.
pub(super) fn of_iperf3(text: &str) -> Result<Figures> {
    let report: Value = serde_json::from_str(text).map_err(|why| Error::invalid("output of iperf3", why))?;
    let end = &report["end"];
    let sender = &end["streams"][0]["sender"];
    let micros = |key: &str| sender[key].as_u64().map(Nanos::from_micros);
    let bytes = end["sum_received"]["bytes"].as_u64();
    if bytes.is_none() {
        return Err(Error::invalid("output of iperf3", "it has no result"));
    }
    Ok(Figures {
        rtt: micros("mean_rtt"),
        min_rtt: micros("min_rtt"),
        bytes,
        retransmissions: sender["retransmits"].as_u64(),
        send_buffer: None,
    })
}

/// Reads what `ss -ti` printed again and again: of the connection that carried most.
pub(super) fn of_ss(readings: &[String]) -> Result<Figures> {
    let all: Vec<Figures> = readings.iter().filter_map(|text| busiest(text)).collect();
    let last = all.last().ok_or_else(|| Error::invalid("output of ss", "it shows no connection that carried data"))?;
    let round_trips: Vec<u64> = all.iter().filter_map(|figures| figures.rtt).map(|rtt| rtt.0).collect();
    let mean = round_trips.iter().sum::<u64>().checked_div(round_trips.len() as u64);
    Ok(Figures { rtt: mean.map(Nanos), ..*last })
}

/// The figures of the connection that had most bytes acknowledged, if there is any but iperf3's control connection.
fn busiest(text: &str) -> Option<Figures> {
    let connections = text.lines().filter(|line| line.contains("rtt:")).map(|line| {
        let word = |key: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let millis = |text: &str| text.parse::<f64>().ok().map(|ms| Nanos((ms * 1e6).round() as u64));
        Figures {
            rtt: word("rtt").and_then(|rtt| millis(rtt.split('/').next()?)),
            min_rtt: word("minrtt").and_then(millis),
            bytes: number(word("bytes_acked")),
            // Without a retransmission, ss shows none.
            retransmissions: Some(number(word("retrans").and_then(|both| both.split('/').nth(1))).unwrap_or(0)),
            send_buffer: None,
        }
    });
    connections.filter(|figures| figures.bytes > Some(CONTROL_BYTES)).max_by_key(|figures| figures.bytes)
}

/// More than iperf3 sends on its control connection.
const CONTROL_BYTES: u64 = 10_000;

/// Reads the summary that `dwell run` writes at the end, of the connection that carried most.
pub(super) fn of_dwell(text: &str) -> Result<Figures> {
    let wrong = |why: serde_json::Error| Error::invalid("output of dwell run", why);
    let lines = text.lines().map(serde_json::from_str::<Value>).collect::<serde_json::Result<Vec<_>>>();
    let lines = lines.map_err(wrong)?;
    let summaries = lines.iter().filter(|line| line["type"] == "run.summary" && !line["flow"].is_null());
    let busiest = summaries.max_by_key(|line| line["sent_bytes"].as_u64());
    let summary = busiest.ok_or_else(|| Error::invalid("output of dwell run", "it has no summary of a connection"))?;
    let ns = |key: &str| summary.pointer(key)?.as_u64().map(Nanos);
    Ok(Figures {
        rtt: ns("/network_rtt/mean_ns"),
        min_rtt: ns("/network_rtt/min_ns"),
        bytes: summary["sent_bytes"].as_u64(),
        retransmissions: summary["retransmitted"].as_u64(),
        send_buffer: ns("/sender_delay/mean_ns"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_reports_microseconds() {
        let text = r#"{"end":{"streams":[{"sender":{"retransmits":3,"min_rtt":50100,"mean_rtt":380000}}],
            "sum_received":{"bytes":123}}}"#;
        let expected = Figures {
            rtt: Some(Nanos::from_millis(380)),
            min_rtt: Some(Nanos::from_micros(50_100)),
            bytes: Some(123),
            retransmissions: Some(3),
            send_buffer: None,
        };
        assert_eq!(of_iperf3(text).unwrap(), expected);
        assert!(of_iperf3(r#"{"error":"unable to connect"}"#).is_err());
    }

    #[test]
    fn ss_shows_the_control_connection_too_which_does_not_count() {
        let reading = |rtt: u32, more: &str| {
            format!(
                "0 0 10.0.0.1:1 10.0.0.2:5201\n\t cubic rtt:1.5/0.5 bytes_acked:165 minrtt:0.5\n\
                 0 9 10.0.0.1:2 10.0.0.2:5201\n\t cubic rtt:{rtt}.5/2.1 bytes_acked:{rtt}000 {more}minrtt:50.1\n"
            )
        };
        let found = of_ss(&[String::new(), reading(100, ""), reading(300, "retrans:1/7 ")]).unwrap();
        assert_eq!((found.rtt, found.min_rtt), (Some(Nanos(200_500_000)), Some(Nanos(50_100_000))));
        assert_eq!((found.bytes, found.retransmissions), (Some(300_000), Some(7)));
        assert_eq!(of_ss(&[reading(100, "")]).unwrap().retransmissions, Some(0));
        assert!(of_ss(&[String::new()]).is_err());
    }

    #[test]
    fn the_summary_of_the_busiest_connection_counts() {
        let line = |flow: &str, sent: u64| {
            format!(
                r#"{{"type":"run.summary","flow":{flow},"sent_bytes":{sent},"network_rtt":{{"mean_ns":{sent},"min_ns":5}},"retransmitted":2,"sender_delay":{{"mean_ns":null}}}}"#
            )
        };
        let text =
            [r#"{"type":"run.socket","sent_bytes":99}"#.to_owned(), line("{}", 3), line("{}", 9), line("null", 12)];
        let found = of_dwell(&text.join("\n")).unwrap();
        assert_eq!(
            (found.bytes, found.rtt, found.retransmissions, found.send_buffer),
            (Some(9), Some(Nanos(9)), Some(2), None)
        );
        assert!(of_dwell("").is_err());
    }
}
