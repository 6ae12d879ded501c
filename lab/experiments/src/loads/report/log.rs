//! What a load's client knows, and what `dwell response` told, read back from their files.

use std::{collections::HashMap, fs, path::Path};

use dwell_testbed::{Error, Result};
use serde::Deserialize;

/// A request as its client saw it. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) sent_ns: u64,
    pub(super) done_ns: u64,
    /// The first request that its answer made the client send.
    pub(super) triggers: Option<u64>,
}

impl Request {
    pub(super) fn latency_ns(&self) -> f64 {
        self.done_ns.saturating_sub(self.sent_ns) as f64
    }
}

/// The truth log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) realtime_minus_monotonic_ns: i64,
    /// From the client to the vantage point: what an epoch there shows happened earlier here by that.
    pub(super) way_ns: u64,
    /// All connections are in one tunnel, so that they are one flow: that of port 0.
    pub(super) is_tunnelled: bool,
    /// By the client's port, in the order of sending.
    pub(super) requests: HashMap<u16, Vec<Request>>,
}

/// An epoch as `dwell response` told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The client's port.
    pub(super) connection: u16,
    /// Where it ends, on the client's clock.
    pub(super) end_ns: u64,
    /// None where there was none, or it was not to be believed.
    pub(super) estimate: Option<Estimate>,
    /// Why there is none.
    pub(super) reason: Option<String>,
}

/// What an epoch gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) ns: u64,
    pub(super) method: String,
    /// It is the mean over causal answers, else over all.
    pub(super) of_causal: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Clock {
        realtime_minus_monotonic_ns: i64,
    },
    Request {
        sport: u16,
        id: u64,
        sent_ns: u64,
        done_ns: u64,
        triggers: Option<u64>,
    },
    #[serde(rename = "response.epoch")]
    Epoch {
        time: String,
        flow: Flow,
        latency: Latency,
        truth: Option<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Flow {
    sport: Option<u16>,
}

#[derive(Deserialize)]
struct Latency {
    method: Option<String>,
    mean_ns: Option<u64>,
    valid: bool,
    reason: Option<String>,
}

impl Log {
    pub(super) fn read(file: &Path, way_ns: u64, is_tunnelled: bool) -> Result<Self> {
        let mut log = Self { way_ns, is_tunnelled, ..Self::default() };
        for line in lines(file)? {
            match line {
                Line::Clock { realtime_minus_monotonic_ns } => {
                    log.realtime_minus_monotonic_ns = realtime_minus_monotonic_ns;
                }
                Line::Request { sport, id, sent_ns, done_ns, triggers } => {
                    let connection = if is_tunnelled { 0 } else { sport };
                    log.requests.entry(connection).or_default().push(Request { id, sent_ns, done_ns, triggers });
                }
                Line::Epoch { .. } | Line::Other => {}
            }
        }
        Ok(log)
    }

    /// The records of a run of `dwell response`, with times on the client's clock.
    pub(super) fn epochs(&self, records: &Path) -> Result<Vec<Epoch>> {
        let mut epochs = Vec::new();
        for line in lines(records)? {
            let Line::Epoch { time, flow, latency, truth } = line else {
                continue;
            };
            // What carries data in a tunnel has an identifier and no ports, unlike its handshake.
            let connection = match (self.is_tunnelled, flow.sport) {
                (true, None) => 0,
                (false, Some(port)) => port,
                _ => continue,
            };
            let estimate = latency.mean_ns.filter(|_| latency.valid).map(|ns| Estimate {
                ns,
                method: latency.method.unwrap_or_default(),
                of_causal: truth.as_deref() == Some("causal"),
            });
            epochs.push(Epoch { connection, end_ns: self.left_client_ns(&time)?, estimate, reason: latency.reason });
        }
        Ok(epochs)
    }

    /// When that left the client which passed the vantage point at that time.
    fn left_client_ns(&self, time: &str) -> Result<u64> {
        let time: jiff::Timestamp = time.parse().map_err(|why| Error::invalid("time of a record", why))?;
        let ahead_ns = i128::from(self.realtime_minus_monotonic_ns) + i128::from(self.way_ns);
        let ns = time.as_nanosecond() - ahead_ns;
        u64::try_from(ns).map_err(|why| Error::invalid("time of a record", why))
    }
}

fn lines(file: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
    text.lines()
        .map(|line| {
            serde_json::from_str(line)
                .map_err(|why| Error::invalid(file.display().to_string(), format!("{why}: {line}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn epoch(time: &str, sport: &str, rest: &str) -> String {
        format!(
            r#"{{"type":"response.epoch","time":"{time}","flow":{{"sport":{sport}}},"latency":{{"mean_ns":7,"method":"lag",{rest}}},"truth":"all"}}"#
        )
    }

    #[test]
    fn an_epoch_at_the_vantage_point_is_of_what_left_the_client_before() {
        let mut records = tempfile::NamedTempFile::new().unwrap();
        let times = ["1970-01-01T00:00:05.000000000Z", "1970-01-01T00:00:06.000000000Z"];
        for (time, rest) in
            times.into_iter().zip([r#""valid":true,"reason":null"#, r#""valid":false,"reason":"lossy""#])
        {
            writeln!(records, "{}", epoch(time, "9", rest)).unwrap();
        }
        let log = Log { realtime_minus_monotonic_ns: 1_000_000_000, way_ns: 20_000_000, ..Log::default() };
        let epochs = log.epochs(records.path()).unwrap();
        let found: Vec<_> = epochs
            .iter()
            .map(|epoch| (epoch.end_ns, epoch.estimate.as_ref().map(|of| of.ns), epoch.reason.as_deref()))
            .collect();
        assert_eq!(found, [(3_980_000_000, Some(7), None), (4_980_000_000, None, Some("lossy"))]);
    }
    #[test]
    fn connections_in_a_tunnel_are_the_flow_that_has_no_ports() {
        let mut truth = tempfile::NamedTempFile::new().unwrap();
        writeln!(truth, r#"{{"type":"clock","realtime_minus_monotonic_ns":0}}"#).unwrap();
        for sport in [5000, 5001] {
            let line =
                format!(r#"{{"type":"request","sport":{sport},"id":1,"sent_ns":2,"done_ns":3,"triggers":null}}"#);
            writeln!(truth, "{line}").unwrap();
        }
        let mut records = tempfile::NamedTempFile::new().unwrap();
        for sport in ["null", "51820"] {
            let line = epoch("1970-01-01T00:00:05Z", sport, r#""valid":true,"reason":null"#);
            writeln!(records, "{line}").unwrap();
        }
        let connections = |is_tunnelled| {
            let log = Log::read(truth.path(), 0, is_tunnelled).unwrap();
            let mut of_truth: Vec<_> = log.requests.iter().map(|(&c, all)| (c, all.len())).collect();
            of_truth.sort_unstable();
            let told = log.epochs(records.path()).unwrap();
            (of_truth, told.iter().map(|epoch| epoch.connection).collect::<Vec<_>>())
        };
        assert_eq!(connections(true), (vec![(0, 2)], vec![0]));
        assert_eq!(connections(false), (vec![(5000, 1), (5001, 1)], vec![51820]));
    }
}
