//! The program has limited the rate of its sockets (SO_MAX_PACING_RATE): what it writes waits, although both windows have room.

use super::*;

pub(super) const RULE: Rule = Rule {
    name: "pacing",
    sentence: "The program has limited the rate at which its sockets send: that held written data back",
    parts: &[Part::Pacing],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let held = evidence.sums.times.share(Part::Pacing);
    let wait = evidence.send_buffer.mean_ns().map(|ns| ns as f64);
    let facts = vec![
        share(
            "data waited for the limit of the rate, with room in both windows",
            Some(held),
            "tcp_info pacing_rate, max_pacing_rate",
        ),
        fact(
            "per second are the lowest limit that was set",
            evidence.sums.unsent.limit.map(Value::Bytes),
            "tcp_info max_pacing_rate",
        ),
        time("mean wait in the send buffer", wait, "byte counts"),
        unless(evidence.loss() > Some(0.01), share("segments sent again", evidence.loss(), "tcp_info total_retrans")),
    ];
    Assessment { share: held, holds: held >= MIN_SHARE && reaches_by_polls(evidence, wait, MIN_SEND_WAIT_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            format!("sudo strace -f -e trace=setsockopt -p {}", pid(evidence)),
            "shows where the program sets SO_MAX_PACING_RATE on new connections: let it set more, or nothing",
        ),
        remedy(
            format!("ss -tin dst {}", peer_in_brackets(evidence)),
            "shows of each connection its rate and, after pacing_rate and a slash, the limit",
        ),
        remedy(
            format!("sudo dwell run --minimize --pid {}", pid(evidence)),
            "where the limit is meant: keeps the bytes in the program, which may then write what is most urgent",
        ),
    ]
}
