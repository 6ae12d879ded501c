//! Packets wait in the queueing discipline of a device of this host.

use super::*;

const MIN_QUEUE_NS: f64 = 5e6;

pub(super) const RULE: Rule = Rule {
    name: "local-queue",
    sentence: "The queue of this host's own device is full: packets waited in it",
    parts: &[Part::LocalQueue],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let queued = evidence.layers.and_then(|layers| layers.queueing_ns).map(|ns| ns as f64);
    let in_queue = evidence.sums.times.share(Part::LocalQueue);
    let facts = vec![
        share("time in the queue of the device", Some(in_queue), "byte stamps, tcp_info rtt"),
        time("mean wait in the queueing discipline", queued, "byte stamps"),
        time("round trip under load", evidence.sums.transfers.mean_ns(), "tcp_info rtt"),
        time("shortest round trip", evidence.sums.transfers.base_ns(), "tcp_info min_rtt"),
    ];
    Assessment { share: in_queue, holds: in_queue >= MIN_SHARE && reaches(queued, MIN_QUEUE_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            format!("ip route get {}", peer_address(evidence)),
            "names the device; `tc -s qdisc show dev DEVICE` shows its queue",
        ),
        remedy(
            "sudo tc qdisc replace dev DEVICE root fq_codel".to_owned(),
            "keeps the queue short; below a shaper, attach it to the shaper's class instead",
        ),
        remedy(
            format!("sudo dwell run --minimize --pid {}", pid(evidence)),
            "keeps this program's bytes out of the queue of its socket meanwhile",
        ),
    ]
}
