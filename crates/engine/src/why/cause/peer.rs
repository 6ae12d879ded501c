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
    let waited = evidence.sums.times.share(Part::Answer);
    // An answer that carries the acknowledgement of its request makes the round trip of TCP longer by the wait.
    let carried =
        evidence.sums.messages.mean_ns().zip(evidence.sums.messages.base_ns()).map(|(mean, base)| mean - base);
    let mut facts = vec![
        share("an answer was due", Some(waited), "tcp_info byte counts, polls"),
        time("mean wait after the request was acknowledged", evidence.sums.answer.mean_ns(), "polls"),
        time("round trips of requests beyond the shortest", carried, "tcp_info rtt, min_rtt"),
        time("shortest round trip", evidence.sums.messages.base_ns(), "tcp_info min_rtt"),
    ];
    // Acknowledgements that come with the answers leave no wait to measure.
    facts.retain(|fact| fact.value.is_some());
    let turns = Turns::awaited(evidence);
    facts.extend(turns.over_all(evidence));
    facts.extend(both_ways(evidence, &evidence.sums.answer));
    facts.extend(resets::facts(evidence, Role::Client));
    facts.extend(set_up::missed_handshakes(evidence));
    let lost = "segments of requests sent again: answers may be lost as well";
    facts.extend(may_be_lost(evidence).then(|| unless(true, share(lost, evidence.loss(), "tcp_info total_retrans"))));
    let is_short = turns.are_shorter(evidence, MIN_ANSWER_NS);
    // The kernel's round trips are as long as they are, however far apart polls are; but these find those that are long.
    let requests = evidence.asked_segments.min(evidence.awaited_segments) as f64;
    let is_short_by_segments = evidence.sums.times.sum(&[Part::Answer, Part::Unexplained]) < requests * MIN_ANSWER_NS;
    let is_long = reaches(carried, MIN_ANSWER_NS) && !is_short && !is_short_by_segments
        || reaches_by_turns(evidence, evidence.sums.answer.mean_ns(), MIN_ANSWER_NS)
        || reaches_by_segments(&evidence.sums.answer, evidence.awaited_segments, MIN_ANSWER_NS);
    let is_short = turns.are_mostly_unseen() && is_short;
    Assessment { share: waited, holds: turns.have_their_share(evidence) && is_long && !is_short, facts }
}

/// Whether hardly any acknowledgement came alone, and so showed that a request had arrived before its answer was due. A peer
/// acknowledges with the answer what it answers before its delayed ACK, some 40 ms.
pub fn is_arrival_hidden(evidence: &Evidence) -> bool {
    matches!(evidence.source, Source::Sockets | Source::Capture)
        && (evidence.sums.answer.sum_ns as f64) * 2.0 < evidence.sums.times.get(Part::Answer)
}

/// Whether answers may be lost on the way: what this host sends is. The peer sends them again after a timeout, and a client cannot
/// tell that from an answer that is late.
pub fn may_be_lost(evidence: &Evidence) -> bool {
    /// A few losses are anybody's.
    const FEW: u64 = 3;
    /// From this share of the time on, repairs are what to look at.
    const REPAIRED: f64 = 0.1;
    /// What the peer had already was not lost.
    const NEEDLESS: f64 = 0.5;
    let is_lost = evidence.sums.segments_sent_again >= FEW && evidence.needless().is_none_or(|share| share < NEEDLESS);
    let is_repaired = evidence.sums.times.share_of(&[Part::Timeout, Part::Loss]) >= REPAIRED;
    evidence.source != Source::Stamps && is_lost && (is_repaired || reaches(evidence.loss(), loss::MIN_LOSS))
}

/// Whether the peer may take its time on purpose: its answers take long, and this host serves too few requests for these to be
/// what waits for them.
pub fn may_take_its_time(evidence: &Evidence) -> bool {
    evidence.source != Source::Stamps
        && reaches(evidence.sums.answer.mean_ns(), LONG_NS)
        && evidence.sums.service.count * 2 < evidence.sums.answer.count.max(1)
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
