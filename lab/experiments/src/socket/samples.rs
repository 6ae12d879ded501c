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
    look_ns: u64,
    #[serde(flatten)]
    ends: Ends,
    sender_delay_ns: Option<u64>,
    receiver_delay_ns: Option<u64>,
    network_rtt_ns: Option<u64>,
    network_min_rtt_ns: Option<u64>,
    way: String,
    estimator: String,
}

/// The start of a line of a socket.
const SOCKET: &str = r#"{"type":"socket","#;

/// Reads all samples of a file that `dwell run --format jsonl --output` wrote, in the order of their times.
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
            at_ns: line.look_ns,
            ends: line.ends.addresses(),
            sender_ns: line.sender_delay_ns,
            receiver_ns: line.receiver_delay_ns,
            rtt_ns: line.network_rtt_ns,
            min_rtt_ns: line.network_min_rtt_ns,
            way: line.way,
            estimator: line.estimator,
        });
        Ok(())
    })?;
    samples.sort_by_key(|sample| sample.at_ns);
    Ok(samples)
}

/// The estimates for the send buffer.
pub fn sender(samples: &[SocketSample]) -> Vec<Estimate> {
    samples.iter().filter_map(|sample| Some((sample.at_ns, sample.sender_ns?))).collect()
}

/// The estimates for the receive buffer.
pub fn receiver(samples: &[SocketSample]) -> Vec<Estimate> {
    samples.iter().filter_map(|sample| Some((sample.at_ns, sample.receiver_ns?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sockets_are_samples_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("samples");
        let lines = r#"{"type":"socket","schema":"dwell.socket/1","time":null,"look_ns":2000,"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP","sender_delay_ns":5,"receiver_delay_ns":null,"network_rtt_ns":6,"network_min_rtt_ns":4,"way":"inside","estimator":"exact","ended":false}
{"type":"socket_summary","schema":"dwell.socket/1"}
{"type":"socket","schema":"dwell.socket/1","time":null,"look_ns":1000,"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP","sender_delay_ns":null,"receiver_delay_ns":8,"network_rtt_ns":null,"way":"outside","estimator":"paper","ended":true}
"#;
        std::fs::write(&file, lines).unwrap();
        let samples = read(&file).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1].ends.1.to_string(), "10.0.0.2:7");
        assert_eq!(sender(&samples), [(2000, 5)]);
        assert_eq!(receiver(&samples), [(1000, 8)]);
        assert_eq!((samples[1].rtt_ns, samples[1].min_rtt_ns), (Some(6), Some(4)));
        assert_eq!((samples[0].way.as_str(), samples[0].rtt_ns), ("outside", None));
    }
}
