//! The peer acknowledges nothing any more: it is gone, or the path to it is cut.

use super::*;

/// Shorter interruptions are those of timeouts.
pub const MIN_STALL_NS: u64 = 900_000_000;

pub(super) const RULE: Rule = Rule {
    name: "stalled-peer",
    sentence: "The peer does not answer at all: data was sent again and again, and nothing acknowledged it",
    parts: &[Part::Timeout, Part::Loss],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let repaired = evidence.sums.times.share_of(RULE.parts);
    // A single interruption of a long look is a loss that was repaired late.
    let is_long = evidence.sums.stalled_ns as f64 >= (evidence.observed_ns as f64 * MIN_SHARE).max(MIN_STALL_NS as f64);
    let mut facts = vec![
        time(
            "longest time without any acknowledgement",
            Some(evidence.sums.stalled_ns as f64),
            "tcp_info bytes_acked, polls",
        ),
        share("data waited to be sent again", Some(repaired), "tcp_info ca_state, total_retrans"),
        share("segments sent again", evidence.loss(), "tcp_info total_retrans"),
    ];
    if is_stuck(evidence) {
        let what = "connections whose data waited to leave, with nothing in flight and room in the peer's window";
        facts.push(fact(what, Some(Value::Count(evidence.stuck)), "tcp_info notsent_bytes, unacked"));
    }
    if is_queue_full(evidence) {
        // A full queue of new connections drops the end of the handshake, which the client does not know.
        let what = "connections that seem open, of which the peer has taken nothing while it answered others";
        facts.push(unless(true, fact(what, Some(Value::Count(evidence.untaken)), "tcp_info bytes_acked")));
    }
    Assessment { share: repaired, holds: repaired >= MIN_SHARE && is_long, facts }
}

/// Whether the server may accept connections too late: it takes nothing on new ones, and answers others.
fn is_queue_full(evidence: &Evidence) -> bool {
    evidence.untaken > 0 && evidence.sums.received_bytes > 0
}

/// Whether the data has not even left this host, because something on it drops the packets.
pub fn is_stuck(evidence: &Evidence) -> bool {
    // The longest interruption is one of these.
    evidence.stuck > 0 && evidence.sums.stuck_ns == evidence.sums.stalled_ns
}

/// Who drops packets before they leave this host.
fn let_leave() -> Vec<Remedy> {
    vec![
        remedy(
            "sudo nft list ruleset".to_owned(),
            "shows whether the firewall of this host drops what it sends, as large packets (or iptables -L OUTPUT -vn)",
        ),
        remedy(
            "tc -s qdisc show".to_owned(),
            "shows whether the queueing discipline of the device drops it; and `bpftool cgroup tree`, whether a program does",
        ),
        remedy("nstat -az TcpExtTCPRetransFail IpOutDiscards".to_owned(), "counts packets that could not be sent"),
    ]
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    if is_stuck(evidence) {
        return let_leave();
    }
    let peer = peer_address(evidence);
    let full = is_queue_full(evidence).then(|| set_up::full_queue(evidence));
    let others = [
        remedy(format!("ping -c 5 {peer}"), "shows whether the host can be reached at all"),
        remedy(
            format!("mtr -rwc 20 {peer}"),
            "shows up to which hop: beyond it is a broken link, or a firewall that has forgotten the connection",
        ),
        remedy(
            "sudo sysctl -w net.ipv4.tcp_keepalive_time=60".to_owned(),
            "lets idle connections of programs that ask for it keep their place in firewalls and NAT",
        ),
    ];
    full.into_iter().chain(others).collect()
}
