//! The samples of `dwell rtt --format jsonl`, and which of two runs are of the same packets.

use std::{collections::BTreeMap, net::IpAddr};

use dwell_engine::stats;
use dwell_testbed::{Error, Nanos, Result};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

/// A round trip of TCP from the vantage point to `dst`, at the time of the packet that ends it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Sample {
    #[serde(deserialize_with = "timestamp")]
    pub(super) time: Timestamp,
    pub(super) flow: Flow,
    pub(super) method: String,
    #[serde(default)]
    pub(super) handshake: bool,
    pub(super) rtt_ns: Nanos,
}

/// The flow of a sample, from the end that sent a packet to the one that answered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Flow {
    src: IpAddr,
    sport: Option<u16>,
    pub(super) dst: IpAddr,
    dport: Option<u16>,
}

fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Timestamp, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads the samples of TCP. Other records are left out.
pub(super) fn parse(text: &str) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for line in text.lines() {
        let wrong = |why: serde_json::Error| Error::invalid("output of dwell rtt", why);
        let record: Value = serde_json::from_str(line).map_err(wrong)?;
        if record["type"] == "rtt.sample" && record["flow"]["proto"] == "TCP" && !record["rtt_ns"].is_null() {
            samples.push(serde_json::from_value(record).map_err(wrong)?);
        }
    }
    Ok(samples)
}

/// The samples of a live run compared with those of a replay of the same packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Agreement {
    pub(super) live: usize,
    pub(super) replay: usize,
    /// Live minus replay of each pair of samples of the same flow, direction and method, which end at most
    /// [`SAME_PACKET`] apart; in ascending order of size.
    pub(super) differences_ns: Vec<u64>,
}

/// The most by which the times differ at which the two hooks and the capture saw one packet.
const SAME_PACKET: Nanos = Nanos::from_micros(1_000);

impl Agreement {
    pub(super) fn of(live: &[Sample], replay: &[Sample]) -> Agreement {
        let mut agreement = Agreement { live: live.len(), replay: replay.len(), differences_ns: Vec::new() };
        let (live, replay) = (by_flow(live), by_flow(replay));
        for (flow, live) in &live {
            let mut replay = replay.get(flow).into_iter().flatten().copied().peekable();
            for (at_ns, rtt) in live {
                while replay.next_if(|(other_ns, _)| other_ns + i128::from(SAME_PACKET.0) < *at_ns).is_some() {}
                let same = replay.next_if(|(other_ns, _)| *other_ns <= at_ns + i128::from(SAME_PACKET.0));
                agreement.differences_ns.extend(same.map(|(_, other)| rtt.0.abs_diff(other.0)));
            }
        }
        agreement.differences_ns.sort_unstable();
        agreement
    }

    /// A quantile of the differences.
    pub(super) fn difference_ns(&self, share: f64) -> Option<u64> {
        stats::quantile(&self.differences_ns, share)
    }

    /// The share of the samples of the longer run that have a pair.
    pub(super) fn paired(&self) -> Option<f64> {
        let all = self.live.max(self.replay);
        (all > 0).then(|| self.differences_ns.len() as f64 / all as f64)
    }
}

type Key<'a> = (&'a Flow, &'a str, bool);

/// Times since the epoch and round trips of each flow, in the order of time.
fn by_flow(samples: &[Sample]) -> BTreeMap<Key<'_>, Vec<(i128, Nanos)>> {
    let mut flows: BTreeMap<Key<'_>, Vec<(i128, Nanos)>> = BTreeMap::new();
    for sample in samples {
        let flow = flows.entry((&sample.flow, &sample.method, sample.handshake)).or_default();
        flow.push((sample.time.as_nanosecond(), sample.rtt_ns));
    }
    flows.values_mut().for_each(|flow| flow.sort_unstable());
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(micros: u32, sport: u16, rtt_ns: u64) -> String {
        format!(
            r#"{{"type":"rtt.sample","time":"2026-01-01T00:00:00.{micros:06}Z","flow":{{"src":"10.77.1.1","sport":{sport},"dst":"10.77.4.2","dport":80,"proto":"TCP"}},"method":"tcp-seq","rtt_ns":{rtt_ns},"handshake":false}}"#
        )
    }

    #[test]
    fn samples_of_tcp_are_read_and_other_records_left_out() {
        let text = [
            line(5, 1, 7),
            r#"{"type":"rtt.sample","flow":{"proto":"ICMP"},"rtt_ns":3}"#.to_owned(),
            r#"{"type":"rtt.flow","flow":{"proto":"TCP"}}"#.to_owned(),
        ];
        let samples = parse(&text.join("\n")).unwrap();
        assert_eq!(samples.iter().map(|sample| sample.rtt_ns).collect::<Vec<_>>(), [Nanos(7)]);
        assert!(parse("nonsense").is_err());
    }

    #[test]
    fn samples_are_paired_by_flow_and_time() {
        let read = |lines: &[String]| parse(&lines.join("\n")).unwrap();
        let live = read(&[line(100, 1, 50), line(2_000, 1, 60), line(9_000, 1, 70), line(100, 2, 5)]);
        // The second sample is missing in the replay, and the last one is another flow's.
        let replay = read(&[line(90, 1, 40), line(8_990, 1, 73), line(100, 3, 5)]);
        let agreement = Agreement::of(&live, &replay);
        assert_eq!(agreement.differences_ns, [3, 10]);
        assert_eq!(agreement.paired(), Some(0.5));
        assert_eq!(Agreement::of(&[], &[]).paired(), None);
    }
}
