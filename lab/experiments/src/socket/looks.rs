//! What `dwell run` said of a flow.

use std::{net::SocketAddr, path::Path};

use dwell_testbed::Result;
use serde::Deserialize;

use super::{
    accuracy::Estimate,
    truth::{Ends, for_each_line, from_json},
};

/// One look at a socket. What is unknown, or did not happen since the look before, is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// When, on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The socket's end, and the other.
    pub ends: (SocketAddr, SocketAddr),
    /// What bytes waited that have left since.
    pub sender_ns: Option<u64>,
    /// What bytes waited that have been read since.
    pub receiver_ns: Option<u64>,
    /// Smoothed round trips.
    pub rtt_ns: Option<u64>,
    /// The least round trip.
    pub min_rtt_ns: Option<u64>,
    /// inside or outside.
    pub way: String,
    /// exact or paper.
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

/// How a line begins.
const SOCKET: &str = r#"{"type":"socket","#;

/// All looks in a file that `dwell run --format jsonl --output` wrote, in the order of their times.
///
/// # Errors
///
/// If it cannot be read, or a line of a socket is none.
pub fn read(file: &Path) -> Result<Vec<Look>> {
    let mut looks = Vec::new();
    for_each_line(file, |text| {
        if !text.starts_with(SOCKET) {
            return Ok(());
        }
        let line: Line = from_json(text, file)?;
        looks.push(Look {
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
    looks.sort_by_key(|look| look.at_ns);
    Ok(looks)
}

/// What they say of the send buffer.
pub fn sender(looks: &[Look]) -> Vec<Estimate> {
    let known = looks.iter();
    known.filter_map(|look| Some((look.at_ns, look.sender_ns?))).collect()
}

/// What they say of the receive buffer.
pub fn receiver(looks: &[Look]) -> Vec<Estimate> {
    let known = looks.iter();
    known.filter_map(|look| Some((look.at_ns, look.receiver_ns?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sockets_are_looks_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("looks");
        let lines = r#"{"type":"socket","schema":"dwell.socket/1","time":null,"look_ns":2000,"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP","sender_delay_ns":5,"receiver_delay_ns":null,"network_rtt_ns":6,"network_min_rtt_ns":4,"way":"inside","estimator":"exact","ended":false}
{"type":"socket_summary","schema":"dwell.socket/1"}
{"type":"socket","schema":"dwell.socket/1","time":null,"look_ns":1000,"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP","sender_delay_ns":null,"receiver_delay_ns":8,"network_rtt_ns":null,"way":"outside","estimator":"paper","ended":true}
"#;
        std::fs::write(&file, lines).unwrap();
        let looks = read(&file).unwrap();
        assert_eq!(looks.len(), 2);
        assert_eq!(looks[1].ends.1.to_string(), "10.0.0.2:7");
        assert_eq!(sender(&looks), [(2000, 5)]);
        assert_eq!(receiver(&looks), [(1000, 8)]);
        assert_eq!((looks[1].rtt_ns, looks[1].min_rtt_ns), (Some(6), Some(4)));
        assert_eq!((looks[0].way.as_str(), looks[0].rtt_ns), ("outside", None));
    }
}
