use std::{sync::atomic::AtomicBool, time::Duration};

use super::{Ends, RoundTrips, output};
use crate::{Nanos, Result};

/// Echo requests by `ping`.
#[derive(Debug, Clone, Copy)]
pub struct Ping {
    /// The number of requests.
    pub count: u32,
    /// The time between two requests.
    pub interval: Duration,
}

/// The result of `ping`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingReport {
    /// The round trips of answered requests. `ping` prints about three digits, so above 10 ms they have steps of 0.1
    /// ms.
    pub round_trips: RoundTrips,
    /// Sequence numbers, from 1, of requests without an answer before an answered one.
    pub lost: Vec<u32>,
    /// The number of requests after the last answer. `ping` waits for only two round trips at the end, so their answers
    /// may be lost or merely late.
    pub unknown: u32,
}

impl Ping {
    /// Pings the server from the client.
    pub fn run(&self, ends: Ends<'_>, stop: &AtomicBool) -> Result<PingReport> {
        let arguments = [
            "-n".to_owned(),
            "-c".to_owned(),
            self.count.to_string(),
            "-i".to_owned(),
            self.interval.as_secs_f64().to_string(),
            "-W".to_owned(),
            "1".to_owned(),
            ends.address.to_string(),
        ];
        Ok(parse(&output(ends.client, "ping", &arguments, stop)?, self.count))
    }
}

fn parse(text: &str, count: u32) -> PingReport {
    let answer = |line: &str| -> Option<(u32, Nanos)> {
        let value = |key: &str| line.split_once(key)?.1.split_ascii_whitespace().next();
        let millis: f64 = value("time=")?.parse().ok()?;
        Some((value("icmp_seq=")?.parse().ok()?, Nanos((millis * 1e6).round() as u64)))
    };
    let answers: Vec<_> = text.lines().filter_map(answer).collect();
    let last = answers.iter().map(|&(sequence, _)| sequence).max().unwrap_or_default();
    PingReport {
        round_trips: RoundTrips(answers.iter().map(|&(_, time)| time).collect()),
        lost: (1..last).filter(|sequence| !answers.iter().any(|(answered, _)| answered == sequence)).collect(),
        unknown: count.saturating_sub(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_gaps_are_read() {
        let text = "PING 10.77.4.2 (10.77.4.2) 56(84) bytes of data.\n\
            64 bytes from 10.77.4.2: icmp_seq=1 ttl=61 time=25.3 ms\n\
            64 bytes from fd00:77:4::2: icmp_seq=3 ttl=61 time=0.051 ms\n\
            \n--- 10.77.4.2 ping statistics ---\n4 packets transmitted, 2 received, 50% packet loss, time 903ms\n";
        let report = parse(text, 4);
        assert_eq!(report.round_trips.0, [Nanos(25_300_000), Nanos(51_000)]);
        assert_eq!((report.lost, report.unknown), (vec![2], 1));
    }
}
