//! Packets overtake each other. TCP takes those that are late for lost, and sends them again for nothing.

use super::{super::Part, *};

/// The share of segments sent again that the peer had, from which overtaking and not losses are the cause.
const MIN_NEEDLESS: f64 = 0.5;
/// The share of segments that were sent again for nothing, from which it costs.
const MIN_AGAIN: f64 = 0.002;

pub(super) const RULE: Rule = Rule {
    name: "reordering",
    sentence: "Packets overtake each other on the path, and TCP takes late ones for lost: it repaired that or held back",
    assess,
    remedies,
};

/// Whether most of what was sent again had arrived.
pub(super) fn is_overtaking(evidence: &Evidence) -> bool {
    evidence.needless() >= Some(MIN_NEEDLESS)
}

fn assess(evidence: &Evidence) -> Assessment {
    let times = &evidence.times;
    let explained = times.share(Part::Loss) + times.share(Part::Transfer);
    let facts = vec![
        share("segments sent again", evidence.loss(), "tcp_info total_retrans"),
        share("of these, the peer had already", evidence.needless(), "tcp_info dsack_dups"),
        share("TCP was repairing supposed losses", Some(times.share(Part::Loss)), "tcp_info ca_state"),
    ];
    let holds = explained >= MIN_SHARE && is_overtaking(evidence) && reaches(evidence.loss(), MIN_AGAIN);
    Assessment { share: explained, holds, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            "sysctl net.ipv4.tcp_recovery net.ipv4.tcp_sack net.ipv4.tcp_dsack".to_owned(),
            "TCP tells late packets from lost ones with all three on, as they are by default",
        ),
        remedy(
            format!("mtr -rwc 100 {}", peer_address(evidence)),
            "shows the path: look for links that are bundled packet by packet, and bundle them by flow",
        ),
    ]
}
