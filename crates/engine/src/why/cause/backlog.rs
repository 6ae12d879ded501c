//! Written bytes wait in the sender's socket, because more is written than TCP may send. Only stamps of bytes show it.

use super::*;

pub(super) const RULE: Rule = Rule {
    name: "send-backlog",
    sentence: "More is written than the path takes: bytes waited in the sender's socket",
    parts: &[Part::Backlog],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.times.share(Part::Backlog);
    let mean = evidence.layers.and_then(|layers| layers.socket_tcp_ns).map(|ns| ns as f64);
    let facts = vec![
        share("time in the sender's socket", Some(waited), "byte stamps"),
        time("mean wait in the sender's socket", mean, "byte stamps"),
    ];
    Assessment { share: waited, holds: waited >= MIN_SHARE && reaches(mean, MIN_SEND_WAIT_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            format!("sudo dwell run --minimize --pid {}", pid(evidence)),
            "at the sender: keeps the bytes in the program, which may then write what is most urgent, at the same throughput",
        ),
        remedy(
            "sudo sysctl -w net.ipv4.tcp_notsent_lowat=131072".to_owned(),
            "the same for all programs of the sender's host, without a target for the wait",
        ),
    ]
}
