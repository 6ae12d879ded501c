//! After idleness TCP begins again with a small congestion window, and each burst pays for it in round trips.

use super::*;

/// The shortest round trip at which that is felt.
const MIN_RTT_NS: f64 = 5e6;
const MIN_BURSTS: u64 = 2;
/// A lower threshold than that of others: a burst pays at most a few round trips.
const MIN_STARTING: f64 = 0.2;

pub(super) const RULE: Rule = Rule {
    name: "slow-start",
    sentence: "After each pause TCP starts slowly again: a small congestion window limited sending",
    parts: &[Part::SlowStart],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let starting = evidence.sums.times.share(Part::SlowStart);
    let base = evidence.sums.transfers.base_ns();
    let facts = vec![
        share("the congestion window after a pause limited sending", Some(starting), "tcp_info cwnd, unacked"),
        fact(
            "bursts that began with a smaller window than before",
            Some(Value::Count(evidence.sums.slow_starts.count)),
            "polls",
        ),
        time("mean time until the window had grown", evidence.sums.slow_starts.mean_ns(), "polls"),
        time("shortest round trip", base, "tcp_info min_rtt"),
    ];
    let holds = starting >= MIN_STARTING && reaches(base, MIN_RTT_NS) && evidence.sums.slow_starts.count >= MIN_BURSTS;
    Assessment { share: starting, holds, facts }
}

fn remedies(_: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0".to_owned(),
            "lets connections keep their congestion window while they are idle",
        ),
        remedy(
            "sudo sysctl -w net.ipv4.tcp_congestion_control=bbr".to_owned(),
            "BBR keeps its estimate of the path over pauses (`sudo modprobe tcp_bbr` first, if it is not there)",
        ),
    ]
}
