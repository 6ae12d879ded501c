//! Packets overtake each other. TCP takes those that are late for lost, and sends them again for nothing.

use super::*;

/// The share of segments sent again that the peer had, from which overtaking and not losses are the cause.
const MIN_NEEDLESS: f64 = 0.5;
/// The share of segments that were sent again for nothing, from which it costs.
const MIN_AGAIN: f64 = 0.002;
/// How often, per segment, TCP finds out that packets overtook each other, from which they do so all the time. It learns to
/// wait for late ones, and then sends few again.
const MIN_OVERTAKEN: f64 = 0.005;

pub(super) const RULE: Rule = Rule {
    name: "reordering",
    sentence: "Packets overtake each other on the path, and late ones hold up the rest: data was under way or was repaired",
    parts: &[Part::Loss, Part::Transfer, Part::RemoteQueue],
    assess,
    remedies,
};

/// Whether packets overtake each other, and are not lost.
pub(super) fn is_overtaking(evidence: &Evidence) -> bool {
    let is_needless = evidence.needless() >= Some(MIN_NEEDLESS) && reaches(evidence.loss(), MIN_AGAIN);
    is_needless || (reaches(evidence.overtaken(), MIN_OVERTAKEN) && evidence.overtaken() > evidence.loss())
}

fn assess(evidence: &Evidence) -> Assessment {
    let times = &evidence.sums.times;
    let explained = times.share_of(RULE.parts);
    let facts = vec![
        share("segments sent again", evidence.loss(), "tcp_info total_retrans"),
        share("of these, the peer had already", evidence.needless(), "tcp_info dsack_dups"),
        share("TCP saw packets overtake each other, per segment", evidence.overtaken(), "tcp_info reord_seen"),
        share("TCP was repairing supposed losses", Some(times.share(Part::Loss)), "tcp_info ca_state"),
    ];
    Assessment { share: explained, holds: explained >= MIN_SHARE && is_overtaking(evidence), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            "sysctl net.ipv4.tcp_recovery net.ipv4.tcp_sack net.ipv4.tcp_dsack".to_owned(),
            "TCP distinguishes late packets from lost ones if all three are on, as they are by default",
        ),
        remedy(
            format!("mtr -rwc 100 {}", peer_address(evidence)),
            "shows the path: look for links that are bundled packet by packet, and bundle them by flow",
        ),
    ]
}
