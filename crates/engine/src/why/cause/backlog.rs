//! Written bytes wait in the sender's socket. Only stamps of bytes show it, and not what for.

use super::*;

pub(super) const RULE: Rule = Rule {
    name: "send-backlog",
    sentence: "Bytes wait in the sender's socket, for room on the path, the peer's window, an acknowledgement (Nagle's \
        algorithm) or the sender's pace: they did",
    parts: &[Part::Backlog],
    assess,
    remedies,
};

/// The share of the time in queues behind the socket.
fn queues(evidence: &Evidence) -> f64 {
    evidence.sums.times.share_of(&[Part::LocalQueue, Part::RemoteQueue])
}

/// Whether a path that takes no more shows in a queue behind the socket. Without one, bytes wait for something else.
fn is_path_full(evidence: &Evidence) -> bool {
    const LEAST: f64 = 0.01;
    evidence.source == Source::Sockets || queues(evidence) >= LEAST
}

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.sums.times.share(Part::Backlog);
    let mean = evidence.layers.and_then(|layers| layers.socket_tcp_ns).map(|ns| ns as f64);
    let facts = vec![
        share("time in the sender's socket", Some(waited), "byte stamps"),
        time("mean wait in the sender's socket", mean, "byte stamps"),
        unless(!is_path_full(evidence), share("time in queues behind it", Some(queues(evidence)), "byte stamps")),
    ];
    Assessment { share: waited, holds: waited >= MIN_SHARE && reaches(mean, MIN_SEND_WAIT_NS), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    if !is_path_full(evidence) {
        return vec![remedy(
            format!("ss -tin 'sport = :{port} or dport = :{port}'", port = port_number(evidence)),
            "at the sender: shows what limits each connection (rwnd_limited, sndbuf_limited, pacing_rate, notsent)",
        )];
    }
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
