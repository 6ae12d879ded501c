//! A request has reached the peer, and its answer is late.

use super::*;

const MIN_ANSWER_NS: f64 = 5e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-answer",
    sentence: "The peer takes long to answer: requests had arrived there, and waited",
    parts: &[Part::Answer],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.times.share(Part::Answer);
    // An answer that carries the acknowledgement of its request makes the round trip of TCP longer by the wait.
    let carried = evidence.messages.mean_ns().zip(evidence.messages.base_ns()).map(|(mean, base)| mean - base);
    let mean = evidence.answer.mean_ns().into_iter().chain(carried).reduce(f64::max);
    let facts = vec![
        share("an answer was due", Some(waited), "tcp_info byte counts, polls"),
        time("mean wait after the request was acknowledged", evidence.answer.mean_ns(), "polls"),
        time("round trips of requests beyond the shortest", carried, "tcp_info rtt, min_rtt"),
        time("shortest round trip", evidence.messages.base_ns(), "tcp_info min_rtt"),
    ];
    Assessment { share: waited, holds: waited >= MIN_SHARE && reaches_by_polls(evidence, mean, MIN_ANSWER_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let port = port_number(evidence);
    vec![
        remedy(at_peer(evidence, &format!("dwell why :{port}")), "asks the peer's host what its service waits for"),
        remedy(
            round_trips(evidence, &format!(" and port {port}")),
            "shows whether the path is slow instead, for requests that others send",
        ),
    ]
}
