//! The last packet of a message is lost. No later one shows that, so TCP waits for a timeout before it sends it again.

use super::*;

/// The mean wait that a user notices.
const MIN_WAIT_NS: f64 = 20e6;
/// A single one may be chance.
const MIN_TIMEOUTS: u64 = 2;

pub(super) const RULE: Rule = Rule {
    name: "tail-loss",
    sentence: "The last packets of messages are lost, and TCP waits for a timeout before it sends them again: it waited",
    parts: &[Part::Timeout],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.sums.times.share(Part::Timeout);
    let mean = evidence.sums.timeouts.mean_ns();
    let facts = vec![
        share("lost messages waited for a timeout", Some(waited), "tcp_info total_retrans, polls"),
        time("mean wait until a message was sent again", mean, "polls"),
        time("longest", Some(evidence.sums.timeouts.longest_ns as f64), "polls"),
        fact("timeouts", Some(Value::Count(evidence.sums.timeouts.count)), "polls"),
        share("segments sent again", evidence.loss(), "tcp_info total_retrans"),
        time("shortest round trip", evidence.sums.messages.base_ns(), "tcp_info min_rtt"),
    ];
    let holds = waited >= MIN_SHARE
        && reaches_by_polls(evidence, mean, MIN_WAIT_NS)
        && evidence.sums.timeouts.count >= least_count(evidence, MIN_TIMEOUTS);
    Assessment { share: waited, holds, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let peer = peer_address(evidence);
    vec![
        remedy(format!("mtr -rwc 100 {peer}"), "shows from which hop on packets are lost: that is what to fix"),
        remedy(
            format!("ip route get {peer}; ip -s link; ethtool -S DEVICE | grep -iE 'err|drop|crc'"),
            "shows whether this host's own device drops them: a cable, a duplex mismatch, a full ring",
        ),
        remedy(
            format!("sudo ip route change {peer} via GATEWAY dev DEVICE rto_min 50ms"),
            "shortens the wait for peers that acknowledge sooner than that; `ip route get` shows the rest of the route",
        ),
    ]
}
