//! Nagle's algorithm meets delayed acknowledgements: a small write waits until the one before is acknowledged, and the
//! peer delays that in the hope of data of its own.

use super::*;

/// Shorter waits cost little.
const MIN_WAIT_NS: f64 = 5e6;
const MIN_WAITS: u64 = 3;

pub(super) const RULE: Rule = Rule {
    name: "nagle",
    sentence: "Small writes wait for the acknowledgement of the one before (Nagle's algorithm): they were held back",
    parts: &[Part::Held],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let held = evidence.sums.times.share(Part::Held);
    let mean = evidence.sums.held.mean_ns();
    let facts = vec![
        share("less than a segment waited though the windows had room", Some(held), "tcp_info notsent_bytes, unacked"),
        time("mean wait", mean, "polls"),
        fact("waits", Some(Value::Count(evidence.sums.held.count)), "polls"),
        time("shortest round trip", evidence.sums.messages.base_ns(), "tcp_info min_rtt"),
    ];
    let is_long = reaches_by_turns(evidence, mean, MIN_WAIT_NS)
        || reaches_by_segments(&evidence.sums.held, evidence.sums.segments_sent, MIN_WAIT_NS);
    let holds = held >= MIN_SHARE && is_long && evidence.sums.held.count >= least_count(evidence, MIN_WAITS);
    Assessment { share: held, holds, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            format!("sudo strace -f -e trace=write,send,sendto,sendmsg,writev,setsockopt -p {}", pid(evidence)),
            "shows the small writes: let the program write a message with one call (writev), or set TCP_NODELAY",
        ),
        remedy(
            at_peer(evidence, "sudo ip route change ROUTE quickack 1"),
            "lets the peer acknowledge at once, if the program cannot be changed; `ip route get` there shows the route",
        ),
    ]
}
