//! Opening connections takes long: packets of the handshake are lost or answered late, or each request opens one.

use super::*;

/// The mean time to open a connection that a user notices.
const MIN_SET_UP_NS: f64 = 30e6;
/// The same where hardly a connection is used twice, so that each request takes as much longer; and how many connections show that.
const MIN_EACH_NS: f64 = 5e6;
const MANY: u64 = 10;

pub(super) const RULE: Rule = Rule {
    name: "slow-set-up",
    sentence: "Opening connections takes long: the handshake was under way",
    parts: &[Part::SetUp],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let opening = evidence.sums.times.share(Part::SetUp);
    let mean = evidence.sums.set_ups.mean_ns();
    let mut facts = vec![share("connections were being opened", Some(opening), "sock_diag state, polls")];
    let unanswered = unanswered(evidence);
    let are_times_known = unanswered.is_empty() || evidence.sums.set_ups.count > 0;
    facts.extend(unanswered);
    if are_times_known {
        facts.extend([
            time("mean time to open one", mean, "polls"),
            time("longest", Some(evidence.sums.set_ups.longest_ns as f64), "polls"),
            unless(
                evidence.groups.is_empty() && evidence.dead_server().is_some(),
                fact("connections opened", Some(Value::Count(evidence.sums.set_ups.count)), "polls"),
            ),
        ]);
    }
    facts.extend([
        fact("first packets sent again", Some(Value::Count(evidence.sums.set_up_retries)), "tcp_info total_retrans"),
        time("shortest round trip", evidence.sums.messages.base_ns(), "tcp_info min_rtt"),
    ]);
    facts.extend(failed_attempts(evidence));
    let secured = evidence.sums.secured.mean_ns();
    facts
        .extend(secured.map(|ns| time("mean wait for the first answer in TLS's handshake", Some(ns), "polls, labels")));
    facts.extend(searches_apart(evidence));
    // Searches find handshakes of TCP, and polls those of TLS.
    let is_long = evidence.unanswered_set_ups().is_some()
        || reaches_between(evidence.search_interval_ns, mean, MIN_SET_UP_NS)
        || reaches_by_polls(evidence, secured, MIN_SET_UP_NS)
        || (is_for_each_request(evidence) && reaches(mean, MIN_EACH_NS));
    Assessment { share: opening, holds: opening >= MIN_SHARE && is_long, facts }
}

/// Whether a capture shows hardly more requests than connections that were opened, to a peer that is not far away, where that is the
/// cause.
fn is_for_each_request(evidence: &Evidence) -> bool {
    let (opened, answered) = (evidence.sums.set_ups.count, evidence.sums.ends_of_requests.answered);
    let is_far = reaches(evidence.sums.messages.base_ns(), distance::MIN_RTT_NS);
    opened >= MANY && answered > 0 && answered * 2 <= opened * 3 && !is_far
}

/// The time to open connections, and how close it was looked at, where nothing is slow.
pub fn waits(evidence: &Evidence) -> impl Iterator<Item = Fact> {
    let mean = time("mean time to open a connection", evidence.sums.set_ups.mean_ns(), "polls");
    std::iter::once(mean).chain(searches_apart(evidence))
}

/// The connections that nothing answered, if there are any.
pub fn unanswered(evidence: &Evidence) -> Vec<Fact> {
    let (waits, syns) = evidence
        .unopened
        .iter()
        .fold((Silences::default(), 0), |(waits, syns), unopened| (waits.with(&unopened.waits), syns + unopened.syns));
    if waits.count == 0 {
        return Vec::new();
    }
    vec![
        fact("connections that nothing answered", Some(Value::Count(waits.count)), "sock_diag state, polls"),
        fact("SYNs of connections that nothing answered", Some(Value::Count(syns)), "tcp_info total_retrans"),
        time("mean wait of connections that nothing answered", waits.mean_ns(), "polls"),
        time("longest wait of connections that nothing answered", Some(waits.longest_ns as f64), "polls"),
    ]
}

/// Whether most connections were found only when TLS's handshake had been answered, which is then not counted.
pub fn misses_handshakes(evidence: &Evidence) -> bool {
    evidence.missed_handshakes > 0 && evidence.missed_handshakes * 2 >= evidence.connections
}

/// The fact that they were, which speaks against any other cause.
pub(super) fn missed_handshakes(evidence: &Evidence) -> Option<Fact> {
    let what = "connections found only after the first answer in TLS's handshake, which is not counted";
    let missed = Some(Value::Count(evidence.missed_handshakes));
    misses_handshakes(evidence).then(|| unless(true, fact(what, missed, "sock_diag, labels")))
}

/// The time between two searches.
fn searches_apart(evidence: &Evidence) -> Option<Fact> {
    interval("time between two searches for connections", evidence.search_interval_ns, "sock_diag")
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    if evidence.dead_server().is_some() {
        return open_a_way(evidence);
    }
    let (peer, port) = (peer_address(evidence), port_number(evidence));
    let full = full_queue(evidence);
    let reach =
        remedy(format!("mtr --tcp --port {port} -rwc 20 {peer}"), "shows where on the path packets are lost or slow");
    let mut remedies = vec![full, reach];
    let at = if evidence.sums.set_up_retries == 0 { 0 } else { remedies.len() };
    remedies.splice(at..at, keep_open(evidence));
    remedies
}

/// What to do about a server that accepts connections too late.
pub(super) fn full_queue(evidence: &Evidence) -> Remedy {
    remedy(
        at_server(evidence, "nstat -az TcpExtListenOverflows TcpExtListenDrops"),
        "shows whether the server's queue of new connections has overflowed: accept sooner, or listen with a longer queue \
         and a larger net.core.somaxconn",
    )
}

/// What saves the round trips of handshakes, at the client that opens them.
pub fn keep_open(evidence: &Evidence) -> Option<Remedy> {
    let (peer, port) = (peer_in_brackets(evidence), port_number(evidence));
    let is_secured = evidence.sums.secured.count + evidence.missed_handshakes > 0 || evidence.target.port == Some(443);
    let scheme = if is_secured { "https" } else { "http" };
    (evidence.target.role != Some(Role::Server)).then(|| {
        remedy(
            format!(
                "curl -so /dev/null -w '%{{time_namelookup}} %{{time_connect}} %{{time_appconnect}}\\n' {scheme}://{peer}:{port}/"
            ),
            "shows the steps of one; keep connections open for several requests, which saves all of them",
        )
    })
}

/// What to do where nothing answers: who drops the packets, from the path to the program that should listen.
fn open_a_way(evidence: &Evidence) -> Vec<Remedy> {
    let (peer, port) = (peer_address(evidence), port_number(evidence));
    vec![
        remedy(
            format!("mtr --tcp --port {port} -rwc 5 {peer}"),
            "shows the last hop that answers: the next one drops these packets, as a firewall does (or sudo tcptraceroute)",
        ),
        remedy(format!("ip route get {peer}"), "shows by which way packets to it leave, and whether there is one"),
        remedy(
            at_peer(evidence, &format!("sudo tcpdump -c 10 -ni any tcp port {port}")),
            "shows whether they arrive at the server, and whether it answers",
        ),
        remedy(
            at_peer(evidence, &format!("ss -ltn sport = :{port}")),
            "shows whether anything listens there, and whether the queue of new connections is full (Recv-Q at Send-Q)",
        ),
        remedy(
            at_peer(evidence, "sudo nft list ruleset"),
            "shows whether the server's own firewall drops them (or iptables-save -c, with how many packets each rule has met)",
        ),
    ]
}
