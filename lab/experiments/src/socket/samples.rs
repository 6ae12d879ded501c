//! The samples of `dwell run` for a flow.

use std::{net::SocketAddr, path::Path};

use dwell_testbed::Result;
use serde::Deserialize;

use super::{
    accuracy::Estimate,
    truth::{Ends, for_each_line, from_json},
};

/// One sample of a socket. A figure that is unknown, or has no event since the previous sample, is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct SocketSample {
    /// Time of the sample on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The addresses of the socket and its peer.
    pub ends: (SocketAddr, SocketAddr),
    /// Delay in the send buffer of bytes that have left since.
    pub sender_ns: Option<u64>,
    /// Bounds of the last of these delays; the estimator `paper` has none.
    pub sender_bounds_ns: Option<(u64, u64)>,
    /// Delay in the receive buffer of bytes that have been read since.
    pub receiver_ns: Option<u64>,
    /// Smoothed round trip.
    pub rtt_ns: Option<u64>,
    /// Least round trip.
    pub min_rtt_ns: Option<u64>,
    /// `inside` or `outside`.
    pub way: String,
    /// `exact` or `paper`.
    pub estimator: String,
}

#[derive(Deserialize)]
struct Line {
    poll_ns: u64,
    flow: Ends,
    sender_delay: Latency,
    receiver_delay: Latency,
    network_rtt: Latency,
    viewpoint: String,
}

#[derive(Deserialize)]
struct Latency {
    method: String,
    mean_ns: Option<u64>,
    min_ns: Option<u64>,
    low_ns: Option<u64>,
    high_ns: Option<u64>,
}

/// The start of a line of a socket.
const SOCKET: &str = r#"{"type":"run.socket","#;

/// Reads all samples of a file that `dwell run --format jsonl --write` wrote, in the order of their times.
///
/// # Errors
///
/// If the file cannot be read, or a line of a socket is malformed.
pub fn read(file: &Path) -> Result<Vec<SocketSample>> {
    let mut samples = Vec::new();
    for_each_line(file, |text| {
        if !text.starts_with(SOCKET) {
            return Ok(());
        }
        let line: Line = from_json(text, file)?;
        samples.push(SocketSample {
            at_ns: line.poll_ns,
            ends: line.flow.addresses(),
            sender_ns: line.sender_delay.mean_ns,
            sender_bounds_ns: match line.sender_delay.method.as_str() {
                "exact" => line.sender_delay.low_ns.zip(line.sender_delay.high_ns),
                _ => None,
            },
            receiver_ns: line.receiver_delay.mean_ns,
            rtt_ns: line.network_rtt.mean_ns,
            min_rtt_ns: line.network_rtt.min_ns,
            way: line.viewpoint,
            estimator: line.sender_delay.method,
        });
        Ok(())
    })?;
    samples.sort_by_key(|sample| sample.at_ns);
    Ok(samples)
}

/// The estimates for the send buffer.
pub fn sender(samples: &[SocketSample]) -> Vec<Estimate> {
    let estimate = |sample: &SocketSample| {
        Some(Estimate { at_ns: sample.at_ns, delay_ns: sample.sender_ns?, bounds_ns: sample.sender_bounds_ns })
    };
    samples.iter().filter_map(estimate).collect()
}

/// The estimates for the receive buffer.
pub fn receiver(samples: &[SocketSample]) -> Vec<Estimate> {
    let estimate =
        |sample: &SocketSample| Some(Estimate { at_ns: sample.at_ns, delay_ns: sample.receiver_ns?, bounds_ns: None });
    samples.iter().filter_map(estimate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sockets_are_samples_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("samples");
        let lines = r#"{"type":"run.socket","schema":"dwell/2","time":null,"poll_ns":2000,"flow":{"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP"},"sender_delay":{"method":"exact","mean_ns":5,"low_ns":4,"high_ns":7},"receiver_delay":{"method":"exact","mean_ns":null},"network_rtt":{"method":"tcp-info","mean_ns":6,"min_ns":4},"viewpoint":"inside","ended":false}
{"type":"run.summary","schema":"dwell/2"}
{"type":"run.socket","schema":"dwell/2","time":null,"poll_ns":1000,"flow":{"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP"},"sender_delay":{"method":"paper","mean_ns":null},"receiver_delay":{"method":"paper","mean_ns":8},"network_rtt":{"method":"tcp-info","mean_ns":null},"viewpoint":"outside","ended":true}
"#;
        std::fs::write(&file, lines).unwrap();
        let samples = read(&file).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1].ends.1.to_string(), "10.0.0.2:7");
        assert_eq!(sender(&samples), [Estimate { at_ns: 2000, delay_ns: 5, bounds_ns: Some((4, 7)) }]);
        assert_eq!(receiver(&samples), [Estimate { at_ns: 1000, delay_ns: 8, bounds_ns: None }]);
        assert_eq!((samples[1].rtt_ns, samples[1].min_rtt_ns), (Some(6), Some(4)));
        assert_eq!((samples[0].way.as_str(), samples[0].rtt_ns), ("outside", None));
    }
}
