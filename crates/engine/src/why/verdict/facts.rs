//! What was seen of a target, as facts and in words.

use super::{
    super::{
        Evidence, Part, Silences, UnopenedConnections,
        cause::{Turns, names, set_up},
    },
    Fact, Value,
};

/// What was sent and received.
pub(super) fn traffic(evidence: &Evidence) -> Vec<Fact> {
    let fact = |what, value| Fact { what, value: Some(value), method: "tcp_info", speaks_for: true };
    vec![
        fact("connections", Value::Count(evidence.connections)),
        fact("sent and acknowledged", Value::Bytes(evidence.sums.sent_bytes)),
        fact("received in order", Value::Bytes(evidence.sums.received_bytes)),
    ]
}

/// The figures that make a target healthy.
pub(super) fn healthy_facts(evidence: &Evidence) -> Vec<Fact> {
    let time = |what, ns: Option<f64>, method| Fact { what, value: ns.map(Value::Time), method, speaks_for: true };
    let share =
        |what, share: Option<f64>| Fact { what, value: share.map(Value::Share), method: "tcp_info", speaks_for: true };
    let (served, awaited) = (Turns::served(evidence), Turns::awaited(evidence));
    let of_all = |turns: &Turns<'_>| turns.mean_ns().filter(|_| !turns.are_mostly_unseen());
    let out_of_order = evidence.out_of_order().filter(|share| *share > 0.0);
    let mut facts = traffic(evidence);
    facts.extend([
        time("round trip of transfers", evidence.sums.transfers.mean_ns(), "tcp_info rtt"),
        time("shortest round trip of transfers", evidence.sums.transfers.base_ns(), "tcp_info min_rtt"),
        time("round trip of messages", evidence.sums.messages.mean_ns(), "tcp_info rtt"),
        share("segments sent again", evidence.loss()),
        share("segments received out of order: lost on the way, or overtaken", out_of_order),
        share("peer's window was the limit", Some(evidence.sums.times.share(Part::ReceiverWindow))),
        share("send buffer was the limit", Some(evidence.sums.times.share(Part::SendBuffer))),
        share("congestion window was full while data waited to leave", evidence.sums.unsent.full()),
        time("mean time to answer a request here", of_all(&served), "polls"),
        time("mean wait for an answer", of_all(&awaited), "polls"),
        time("mean wait to be read", evidence.receive_buffer.mean_ns().map(|ns| ns as f64), "byte counts"),
        time("mean wait in the send buffer", evidence.send_buffer.mean_ns().map(|ns| ns as f64), "byte counts"),
    ]);
    // Polls find the longest waits: their mean is not that of all.
    facts.extend(
        [&served, &awaited].into_iter().filter(|turns| turns.has_waits()).filter_map(|it| it.over_all(evidence)),
    );
    facts.iter_mut().for_each(|fact| fact.speaks_for = true);
    facts.extend((evidence.names.count > 0).then(|| names::waits(evidence)).into_iter().flatten());
    facts.extend((evidence.sums.set_ups.count > 0).then(|| set_up::waits(evidence)).into_iter().flatten());
    facts.extend(set_up::unanswered(evidence));
    facts.retain(|fact| fact.value.is_some());
    facts
}

/// Connections that may wait for an answer.
pub(super) fn unanswered(evidence: &Evidence) -> [Fact; 2] {
    let fact = |what, value| Fact { what, value: Some(value), method: "tcp_info", speaks_for: true };
    [
        fact("connections on which the client spoke last", Value::Count(evidence.sums.unanswered.count)),
        fact("longest time since", Value::Time(evidence.sums.unanswered.longest_ns as f64)),
    ]
}

/// What clients have sent while dwell looked, and had no answer to, if that is long ago.
pub(super) fn owed(evidence: &Evidence) -> Option<String> {
    const LONG_NS: u64 = 1_000_000_000;
    let Silences { count, longest_ns, .. } = evidence.sums.owed;
    let longest_s = longest_ns as f64 / 1e9;
    (longest_ns >= LONG_NS).then(|| match count {
        1 => format!("on a connection the client spoke last, {longest_s:.1} s ago, and may be owed an answer"),
        _ => format!(
            "on {count} connections the client spoke last, up to {longest_s:.1} s ago, and may be owed an answer"
        ),
    })
}

/// The verdict where nothing answers the first packets of connections.
pub(super) fn silence(unopened: &UnopenedConnections) -> String {
    let (server, waits) = (unopened.server, unopened.waits);
    let longest_s = waits.longest_ns as f64 / 1e9;
    match waits.count {
        1 => format!(
            "A connection to {server} cannot be opened: nothing answered its SYN for {longest_s:.1} s. The host is down, a \
             firewall drops packets, or the route is wrong."
        ),
        count => format!(
            "Connections to {server} cannot be opened: nothing answered the SYNs of {count} of them, for up to \
             {longest_s:.1} s. The host is down, a firewall drops packets, or the route is wrong."
        ),
    }
}
