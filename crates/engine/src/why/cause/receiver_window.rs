//! The peer offers too small a window: it reads slowly, or its receive buffer is small.

use super::*;

/// A lower threshold than that of others: the kernel counts this state itself.
const MIN_LIMITED: f64 = 0.2;
/// The mean wait in the send buffer that a user notices.
const MIN_WAIT_NS: f64 = 2e6;

pub(super) const RULE: Rule = Rule {
    name: "receiver-window",
    sentence: "The peer does not take data fast enough: its receive window limited sending",
    parts: &[Part::ReceiverWindow],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let limited = evidence.sums.times.share(Part::ReceiverWindow);
    let facts = vec![
        share("sending was limited by the peer's window", Some(limited), "tcp_info rwnd_limited"),
        share("the window had no room for a segment", closed(evidence), "tcp_info snd_wnd"),
        time("mean wait in the send buffer", evidence.send_buffer.mean_ns().map(|ns| ns as f64), "byte counts"),
    ];
    // Where bytes hardly wait, the window is as large as the path needs.
    let waits =
        evidence.send_buffer.mean_ns().is_none_or(|ns| reaches_by_polls(evidence, Some(ns as f64), MIN_WAIT_NS));
    Assessment { share: limited, holds: limited >= MIN_LIMITED && waits, facts }
}

fn closed(evidence: &Evidence) -> Option<f64> {
    (evidence.sums.busy_polls > 0).then(|| evidence.sums.closed_polls as f64 / evidence.sums.busy_polls as f64)
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    /// From this share on the window is closed because nobody reads, and not merely small.
    const CLOSED: f64 = 0.1;
    let own = port_number(evidence);
    let why = remedy(
        at_peer(evidence, &format!("dwell why :{own}")),
        "asks the peer's host what keeps its program from reading",
    );
    let grow = remedy(
        at_peer(evidence, "sudo sysctl -w net.ipv4.tcp_rmem=\"4096 131072 16777216\""),
        "lets receive buffers there grow to 16 MiB, unless the program sets SO_RCVBUF itself",
    );
    match closed(evidence) {
        Some(share) if share < CLOSED => vec![grow, why],
        _ => vec![why, grow],
    }
}
