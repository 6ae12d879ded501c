//! Packets are lost although no queue is full: TCP repairs them, and sends less.

use super::{super::Part, reordering::is_overtaking, *};

/// The share of segments that are sent again, from which losses decide how fast TCP sends: with 1 % it has about 12
/// segments in flight (Mathis et al., 1997).
pub(super) const MIN_LOSS: f64 = 0.008;
/// Where queues make up this share of transfers, losses are their overflow.
const MAX_QUEUE: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    name: "loss",
    sentence: "Packets are lost on the path: TCP repaired that or held back",
    parts: &[Part::Loss, Part::Transfer],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let times = &evidence.sums.times;
    let (repair, transfer, queue) =
        (times.share(Part::Loss), times.share(Part::Transfer), times.share(Part::RemoteQueue));
    let is_overflow = queue > (repair + transfer + queue) * MAX_QUEUE;
    let loss = evidence.loss();
    // Between losses TCP is slow because of them.
    let explained = if is_overflow { repair } else { repair + transfer };
    let mut facts = vec![
        share("segments sent again", loss, "tcp_info total_retrans"),
        share("TCP was repairing losses", Some(repair), "tcp_info ca_state"),
        unless(is_overflow, share("round trips beyond the shortest, under load", Some(queue), "tcp_info rtt, min_rtt")),
        unless(
            is_overtaking(evidence),
            share("of these, the peer had already", evidence.needless(), "tcp_info dsack_dups"),
        ),
        share("segments received out of order", evidence.out_of_order(), "tcp_info rcv_ooopack"),
    ];
    facts.extend(bbr(evidence).map(|fact| unless(true, fact)));
    let holds = explained >= MIN_SHARE && reaches(loss, MIN_LOSS) && !is_overtaking(evidence);
    Assessment { share: explained, holds, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let peer = peer_address(evidence);
    let mut remedies = vec![
        remedy(format!("mtr -rwc 100 {peer}"), "shows from which hop on packets are lost"),
        remedy(
            format!("ip route get {peer}; ip -s link; ethtool -S DEVICE | grep -iE 'err|drop|crc'"),
            "shows whether this host's own device drops them: a cable, a duplex mismatch, a full ring",
        ),
    ];
    remedies.extend(use_bbr(evidence, "a congestion control that does not slow down for single losses, until Ctrl-C"));
    remedies
}
