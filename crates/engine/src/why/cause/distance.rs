//! Messages of one or two segments, each followed by a round trip to a peer that is far away.

use super::*;

/// The shortest round trip of a path that is called far.
pub(super) const MIN_RTT_NS: f64 = 15e6;

pub(super) const RULE: Rule = Rule {
    name: "distance",
    sentence: "The peer is far away, and messages go there one after the other: they were under way",
    parts: &[Part::Distance],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let under_way = evidence.sums.times.share(Part::Distance);
    let base = evidence.sums.messages.base_ns();
    let facts = vec![
        share("messages of one or two segments were under way", Some(under_way), "tcp_info unacked"),
        time("shortest round trip", base, "tcp_info min_rtt"),
        time("round trip", evidence.sums.messages.mean_ns(), "tcp_info rtt"),
        unless(evidence.loss() > Some(0.05), share("segments sent again", evidence.loss(), "tcp_info total_retrans")),
    ];
    Assessment { share: under_way, holds: under_way >= MIN_SHARE && reaches(base, MIN_RTT_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    // Each connection that is opened takes a round trip or two before the first request.
    let are_new = evidence.sums.set_ups.count * 2 >= evidence.connections.max(1);
    let keep = if are_new { set_up::keep_open(evidence) } else { None };
    let others = [
        remedy(
            round_trips(evidence, ""),
            "confirms the round trip on the wire; then send several requests at once (pipelining, batches, more \
             connections), or move the two closer to each other",
        ),
        remedy(format!("mtr -rwc 20 {}", peer_address(evidence)), "shows on which part of the path the time is spent"),
    ];
    keep.into_iter().chain(others).collect()
}
