//! TCP could send more, but the send buffer (SO_SNDBUF, tcp_wmem) has no room for what the application would write.

use super::*;

/// A lower threshold than that of others: the kernel counts this state itself, and no healthy sender is in it.
const MIN_LIMITED: f64 = 0.2;
/// The shortest round trip in which a buffer can be too small: below, the default fills any link.
const MIN_RTT_NS: f64 = 1e6;

pub(super) const RULE: Rule = Rule {
    name: "small-send-buffer",
    sentence: "The send buffer is too small for the path: it limited sending",
    parts: &[Part::SendBuffer],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let limited = evidence.sums.times.share(Part::SendBuffer);
    let round_trip = evidence.sums.transfers.mean_ns().or(evidence.sums.messages.mean_ns());
    let facts = vec![
        share("sending was limited by the send buffer", Some(limited), "tcp_info sndbuf_limited"),
        time("round trip", round_trip, "tcp_info rtt"),
        unless(evidence.loss() > Some(0.01), share("segments sent again", evidence.loss(), "tcp_info total_retrans")),
    ];
    Assessment { share: limited, holds: limited >= MIN_LIMITED && reaches(round_trip, MIN_RTT_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            "sudo sysctl -w net.ipv4.tcp_wmem='4096 16384 16777216'".to_owned(),
            "lets send buffers grow to 16 MiB, unless the program sets SO_SNDBUF itself: then take that out of it",
        ),
        remedy(
            format!("sudo strace -f -e trace=setsockopt -p {}", pid(evidence)),
            "shows whether the program sets SO_SNDBUF on new connections",
        ),
    ]
}
