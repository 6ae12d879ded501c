//! Packets wait in a queue on the path: round trips under load are far longer than the shortest (bufferbloat).

use super::*;

/// What queues add to a round trip, at least.
const MIN_QUEUE_NS: f64 = 10e6;

pub(super) const RULE: Rule = Rule {
    name: "path-queue",
    sentence: "A queue on the path is full (bufferbloat): packets waited in it",
    parts: &[Part::RemoteQueue],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let in_queue = evidence.sums.times.share(Part::RemoteQueue);
    let queue = evidence.queue_ns();
    let facts = vec![
        share("round trips beyond the shortest, under load", Some(in_queue), "tcp_info rtt, min_rtt"),
        time("round trip under load", evidence.sums.transfers.mean_ns(), "tcp_info rtt"),
        time("shortest round trip", evidence.sums.transfers.base_ns(), "tcp_info min_rtt"),
        time(
            "mean wait in the queue of this host's device",
            evidence.layers.and_then(|layers| layers.queueing_ns).map(|ns| ns as f64),
            "byte stamps",
        ),
        share("segments sent again", evidence.loss(), "tcp_info total_retrans"),
    ];
    Assessment { share: in_queue, holds: in_queue >= MIN_SHARE && reaches(queue, MIN_QUEUE_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let effect = "a congestion control that keeps queues short, on the running connections, until Ctrl-C";
    if let Some(running) = use_bbr(evidence, effect) {
        remedies.push(running);
        remedies.push(remedy(
            "sudo sysctl -w net.ipv4.tcp_congestion_control=bbr".to_owned(),
            "the same for all new connections (`sudo modprobe tcp_bbr` first, if it is not there)",
        ));
    }
    if evidence.layers.is_none() {
        remedies.push(remedy(
            format!("sudo dwell stack{} --duration 10s", port(evidence)),
            "shows whether the queue is that of this host's own device",
        ));
    }
    remedies.push(remedy(
        "sudo tc qdisc replace dev DEVICE root fq_codel".to_owned(),
        "at the host or router before the narrow link: keeps its queue short, whoever fills it",
    ));
    remedies
}
