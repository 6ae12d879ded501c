//! The decision: from evidence to ranked causes.

use super::{
    Cause, Common, Evidence, Part, Silences, Source, Target, UnopenedConnections, Unseen, Worst,
    cause::{
        Assessment, INTERVALS, MIN_SEND_WAIT_NS, MIN_SHARE, datagram_facts, failed_attempts, names, peer,
        reaches_by_polls, service, set_up,
    },
    unseen,
};

/// The least time to look at a target, in nanoseconds.
const MIN_OBSERVED_NS: u64 = 500_000_000;
/// The least number of polls, and of packets of a capture: one request on a connection of its own has some ten.
const MIN_POLLS: u64 = 20;
const MIN_PACKETS: u64 = 4;
/// The least share of the time in which somebody waited, over all connections, below which they are called idle.
const MIN_ACTIVE: f64 = 0.001;
/// The least share of a cause that holds of the time that another one leaves.
const MIN_NEXT: f64 = 0.1;
/// From this share of time on that is not measured by polls, few of them suffice.
const MAX_UNPOLLED: f64 = 0.5;
/// From this share of unexplained time on there is no verdict.
const MAX_UNEXPLAINED: f64 = 0.5;
/// The share of the time from which on repairs of losses are not called healthy, though they are no cause: few waits, and long
/// ones.
const MIN_REPAIRED: f64 = 0.1;

/// A figure of a fact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A time in nanoseconds.
    Time(f64),
    /// A share, from 0 to 1.
    Share(f64),
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
}

/// One fact, with how it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fact {
    /// What the figure is of.
    pub what: &'static str,
    /// The figure. `None` where it is not known.
    pub value: Option<Value>,
    /// How it was measured.
    pub method: &'static str,
    /// Whether it speaks for the cause (true) or against it (false).
    pub speaks_for: bool,
}

/// A command that a reader can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The command.
    pub command: String,
    /// What it does.
    pub effect: &'static str,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This is why.
    Slow(Cause),
    /// There was traffic, and nothing slows it down.
    Healthy,
    /// There was nothing to see.
    NoTraffic,
    /// There was not enough to decide.
    NotEnough,
}

/// How sure the verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// Another cause explains nearly as much, or a fact speaks against this one.
    Possible,
    /// It explains the largest part of the time, but not most of it, or something could not be seen.
    Likely,
    /// It explains most of the time, and nothing speaks against it.
    Sure,
}

impl Certainty {
    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Possible => "possible",
            Certainty::Likely => "likely",
            Certainty::Sure => "sure",
        }
    }
}

/// A cause that holds, and the share of the time that it explains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The cause.
    pub cause: Cause,
    /// The share of the time in which somebody waited.
    pub share: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What was found.
    pub outcome: Outcome,
    /// How sure it is. `None` without a verdict.
    pub certainty: Option<Certainty>,
    /// One sentence.
    pub sentence: String,
    /// All causes that hold, the one that explains most first.
    pub ranked: Vec<Ranked>,
    /// Parts of the time in which somebody waited, with their nanoseconds, in the order in which they are shown.
    pub parts: Vec<(Part, f64)>,
    /// The evidence, what speaks for the verdict first.
    pub facts: Vec<Fact>,
    /// What the connections have in common that waited for this.
    pub common: Option<Common>,
    /// The worst of several connections: the one that waited longest for this.
    pub worst: Option<Worst>,
    /// The peer, the port and the process that the verdict is about: those on which most of its time was spent.
    pub about: Target,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
    /// What to do, the best first.
    pub remedies: Vec<Remedy>,
}

/// Decides why the connections of a target are slow.
pub fn decide(evidence: &Evidence) -> Verdict {
    let assessed = Cause::ALL.map(|cause| (cause, cause.assess(evidence)));
    let mut holding: Vec<_> = assessed.into_iter().filter(|(_, assessed)| assessed.holds).collect();
    let held: Vec<Cause> = holding.iter().map(|(cause, _)| *cause).collect();
    holding.retain(|(cause, _)| !cause.is_explained_by(&held));
    holding.sort_by(|(_, a), (_, b)| b.share.total_cmp(&a.share));
    let ranked_of = |(cause, assessed): &(Cause, Assessment)| Ranked { cause: *cause, share: assessed.share };
    let mut ranked: Vec<Ranked> = holding.iter().map(ranked_of).collect();
    ranked.extend(of_the_rest(evidence, &held, ranked.first().map(|first| first.cause)));
    let outcome = match (lacks(evidence), holding.first()) {
        _ if evidence.is_unreadable => Outcome::NotEnough,
        // Of a capture each packet tells what it tells, whatever the others hide.
        (Some(Outcome::NotEnough), Some((cause, _))) if has_enough_packets(evidence) => Outcome::Slow(*cause),
        (Some(outcome), _) => outcome,
        (None, Some((cause, _))) => Outcome::Slow(*cause),
        // What may be a cause is not called healthy, and neither is what fails.
        (None, None) if evidence.unexplained() >= MIN_SHARE || evidence.ends_of_requests.mostly_fail() => {
            Outcome::NotEnough
        }
        (None, None) => Outcome::Healthy,
    };
    let mut verdict = Verdict {
        outcome,
        certainty: None,
        sentence: String::new(),
        ranked: if evidence.is_unreadable { Vec::new() } else { ranked },
        parts: Part::ALL.map(|part| (part, evidence.times.get(part))).to_vec(),
        facts: Vec::new(),
        common: None,
        worst: None,
        about: evidence.target.clone(),
        unseen: evidence.unseen.clone(),
        remedies: Vec::new(),
    };
    verdict.parts.retain(|(_, ns)| *ns > 0.0);
    match outcome {
        Outcome::Slow(cause) => slow(&mut verdict, evidence, cause, &holding[0].1),
        Outcome::Healthy => healthy(&mut verdict, evidence),
        Outcome::NoTraffic => no_traffic(&mut verdict, evidence),
        Outcome::NotEnough => not_enough(&mut verdict, evidence),
    }
    verdict.facts.extend(evidence.ends_of_requests.facts());
    verdict.facts.extend((evidence.on_several_interfaces > 0).then_some(Fact {
        what: "connections that passed several interfaces, each judged on the one that shows most",
        value: Some(Value::Count(evidence.on_several_interfaces)),
        method: "packets",
        speaks_for: true,
    }));
    if evidence.source == Source::Capture {
        // The same facts were read from packets, but for those that no packet has.
        verdict.facts.retain(|fact| fact.value.is_some());
        verdict.facts.iter_mut().for_each(|fact| fact.method = "packets");
    }
    if let Some(path) = &evidence.path {
        verdict.sentence = path.sentence(&verdict.sentence);
        verdict.facts = path.facts();
        if let Outcome::Slow(cause) = outcome {
            let first = path.remedy(cause.parts(), &evidence.target);
            verdict.remedies = first.into_iter().chain(verdict.remedies).collect();
        }
    }
    verdict
}

/// Says which cause it is, where, and what helps.
fn slow(verdict: &mut Verdict, evidence: &Evidence, cause: Cause, best: &Assessment) {
    // No packet shows a buffer: it is concluded from when data leaves.
    let is_concluded = evidence.source == Source::Capture && cause == Cause::SmallSendBuffer;
    let is_contradicted = is_concluded || is_rare(evidence, cause) || best.facts.iter().any(|fact| !fact.speaks_for);
    if cause == Cause::PathQueue && evidence.layers.is_some_and(|layers| layers.queueing_ns.is_none()) {
        verdict.unseen.insert(0, unseen::own_queue(evidence));
    }
    if cause == Cause::Distance {
        verdict.unseen.splice(0..0, unseen::others_queue(&evidence.messages));
    }
    let is_arrival_hidden = cause == Cause::SlowAnswer && peer::is_arrival_hidden(evidence);
    if is_arrival_hidden {
        verdict.unseen.insert(0, unseen::arrival());
    }
    match cause {
        Cause::SlowAnswer if peer::may_take_its_time(evidence) => verdict.unseen.insert(0, unseen::purpose(true)),
        Cause::SlowService if service::may_take_its_time(evidence) => verdict.unseen.insert(0, unseen::purpose(false)),
        _ => {}
    }
    verdict.certainty = Some(certainty(verdict, is_contradicted));
    verdict.sentence = match (evidence.source, cause, evidence.unanswered_set_ups()) {
        (Source::Stamps, Cause::Distance, _) => {
            format!("The hosts are far apart: bytes were under way {:.0} % of the time.", best.share * 100.0)
        }
        (_, Cause::SlowSetUp, Some(unopened)) => silence(unopened),
        _ if is_arrival_hidden => format!(
            "The peer takes long to answer, or a queue on the path is full: answers were due {:.0} % of the time.",
            best.share * 100.0
        ),
        _ => cause.sentence(best.share),
    };
    verdict.facts = best.facts.clone();
    verdict.facts.sort_by_key(|fact| !fact.speaks_for);
    verdict.common = Common::of(&evidence.groups, cause.parts());
    verdict.worst = evidence.worst(cause.parts());
    let evidence = &evidence.about(cause.parts());
    verdict.about = evidence.target.clone();
    if let Some(end) = evidence.target.seen_from {
        verdict.sentence = format!("Seen from {end}: {}", verdict.sentence);
    }
    verdict.remedies = cause.remedies(evidence);
    for other in &verdict.ranked[1..] {
        let best = other.cause.remedies(&evidence.about(other.cause.parts())).into_iter().next();
        verdict.remedies.extend(best.filter(|best| !verdict.remedies.contains(best)));
    }
    if let Some(pid) = evidence.target.namespace_of {
        let command = format!("sudo nsenter -t {pid} -n");
        let effect = "opens a shell in the network namespace of the target: run the other commands there";
        verdict.remedies.insert(0, Remedy { command, effect });
    }
}

/// Whether so little of the time was spent at all that messages hardly follow one another: heartbeats on idle connections, for
/// instance, keep nobody waiting.
fn is_rare(evidence: &Evidence, cause: Cause) -> bool {
    const RARE: f64 = 0.05;
    let spent_ns = evidence.times.total();
    matches!(cause, Cause::Distance | Cause::SlowApplication) && spent_ns < (spent_ns + evidence.idle_ns) * RARE
}

/// Says that nothing is slow, as far as that was seen.
fn healthy(verdict: &mut Verdict, evidence: &Evidence) {
    verdict.certainty = Some(if evidence.unseen.is_empty() { Certainty::Sure } else { Certainty::Likely });
    verdict.sentence = "Nothing slows these connections down: no wait is long enough to count.".into();
    verdict.facts = healthy_facts(evidence);
    let (long_wait_ns, sparse) = (long_send_wait_ns(evidence), sparse(evidence));
    if evidence.connections == 0 {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = "No TCP connection of the target was seen, and name servers answered soon.".into();
        verdict.unseen.extend(unseen::short_lived(evidence));
    }
    if sparse.is_some() || evidence.omitted > 0 {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = not_all_seen(evidence, sparse);
    }
    if let Some(owed) = owed(evidence) {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!("No wait that has ended is long enough to count, but {owed}.");
        verdict.unseen.insert(0, unseen::owed(evidence));
    }
    if evidence.unanswered.count > 0 {
        verdict.facts.extend(unanswered(evidence));
    }
    // A capture may end while a request is under way.
    if evidence.ends_of_requests.failed() > evidence.ends_of_requests.pending {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = evidence.ends_of_requests.sentence();
        verdict.unseen.insert(0, unseen::failure(evidence));
    }
    let repaired = evidence.times.share(Part::Timeout) + evidence.times.share(Part::Loss);
    if repaired >= MIN_REPAIRED {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!(
            "No cause makes up most of the waits, but some were long because packets were lost: {:.0} % of the time.",
            repaired * 100.0
        );
        verdict.remedies = Cause::Loss.remedies(&evidence.about(&[Part::Timeout, Part::Loss]));
    }
    verdict.unseen.splice(0..0, sparse.map(unseen::short_waits));
    if let Some(wait_ns) = long_wait_ns {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!(
            "No cause is found, but what is written waits {:.0} ms in the send buffer before it leaves.",
            wait_ns / 1e6
        );
        verdict.unseen.insert(0, unseen::window(evidence));
        verdict.remedies = Cause::SendBacklog.remedies(evidence);
    }
    if evidence.times.share(Part::PeerPause) >= MIN_SHARE {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = match evidence.source {
            Source::Sockets => "Nothing on this host slows these connections down: they wait for the peer's data.",
            Source::Capture | Source::Stamps => {
                "Nothing that a capture shows slows these connections down: they wait for one end's data."
            }
        }
        .into();
        verdict.unseen.insert(0, unseen::sender(&evidence.about(&[Part::PeerPause])));
    }
}

/// Says that there was nothing to look at.
fn no_traffic(verdict: &mut Verdict, evidence: &Evidence) {
    verdict.sentence = no_traffic_sentence(evidence);
    verdict.facts = traffic(evidence);
    if evidence.unanswered.count > 0 {
        verdict.facts.extend(unanswered(evidence));
        verdict.unseen.insert(0, unseen::owed(evidence));
    }
    if evidence.ends_of_requests.failed() > 0 {
        verdict.sentence = evidence.ends_of_requests.sentence();
        verdict.unseen.insert(0, unseen::failure(evidence));
    }
    if evidence.datagrams.is_some() {
        if evidence.connections == 0 {
            verdict.facts.clear();
        }
        verdict.facts.extend(datagram_facts(evidence));
        verdict.unseen.insert(0, unseen::packets());
    }
    if evidence.connections == 0 && evidence.datagrams.is_none() {
        verdict.unseen.extend(unseen::short_lived(evidence));
    }
    if evidence.connections == 0 && evidence.failed_attempts.unwrap_or(0) > 0 {
        verdict.facts.extend(failed_attempts(evidence));
        verdict.unseen.insert(0, unseen::refusal(evidence));
    }
}

fn no_traffic_sentence(evidence: &Evidence) -> String {
    if let Some(owed) = owed(evidence) {
        return format!("Nothing was answered: {owed}.");
    }
    let failed = evidence.failed_attempts.unwrap_or(0);
    match (evidence.connections, &evidence.datagrams) {
        (0, None) if failed == 1 => "No TCP connection of the target was seen, and an attempt to open one failed on \
             this host: that of the target may be refused."
            .into(),
        (0, None) if failed > 0 => format!(
            "No TCP connection of the target was seen, and {failed} attempts to open one failed on this host: those \
             of the target may be refused."
        ),
        (0, None) if evidence.source == Source::Stamps => {
            "The store has no stamped bytes of the target, and no other figures explain why it is slow.".into()
        }
        (0, None) if evidence.udp.count > 0 => format!(
            "No TCP connection of the target was seen, but {} packets of UDP{}, which do not show what they wait for.",
            evidence.udp.count,
            if evidence.udp.opening_quic > 0 { ", QUIC's among them" } else { "" }
        ),
        (0, None) => "No TCP connection of the target was seen.".into(),
        (0, Some(_)) => "The target uses UDP alone, and its sockets dropped nothing.".into(),
        (_, Some(_)) if evidence.unanswered.count == 0 => {
            "The TCP connections of the target were idle. It uses UDP too, and its sockets dropped nothing.".into()
        }
        _ if evidence.unanswered.count > 0 => {
            "Nothing was sent. Clients spoke last on some connections: they may be owed an answer, or not.".into()
        }
        _ => "The connections of the target were idle: nothing was sent, and nobody waited.".into(),
    }
}

/// Says that it cannot be told.
fn not_enough(verdict: &mut Verdict, evidence: &Evidence) {
    let is_unclear = evidence.is_unreadable || evidence.unexplained() >= MIN_SHARE;
    verdict.sentence = match (evidence.source, is_unclear) {
        (Source::Capture, true) => "This capture does not show whether these connections are slow, or why.",
        _ => "There is not enough evidence for a verdict.",
    }
    .into();
    verdict.facts = traffic(evidence);
    if evidence.is_unreadable {
        return;
    }
    verdict.unseen.insert(0, unseen::missing(evidence));
    if evidence.ends_of_requests.mostly_fail() && evidence.unexplained() < MIN_SHARE {
        verdict.sentence = evidence.ends_of_requests.sentence();
        verdict.unseen[0] = unseen::failure(evidence);
    }
}

/// What was too far apart, polls, looks at sockets of UDP or searches for connections, and how far: waits which people notice
/// may have passed between two of them, or there would be a cause if they were closer together and had found the same
/// waits. The sum of waits is right in the mean however far apart polls are; divided by the least number of answers that there
/// were, it is the most that an answer can have taken in the mean.
fn sparse(evidence: &Evidence) -> Option<(&'static str, f64)> {
    /// The shortest wait for a program that people notice.
    const NOTICED_NS: f64 = 100e6;
    if evidence.source != Source::Sockets {
        return None;
    }
    let polls = ("polls", evidence.poll_interval_ns());
    let mut close = Evidence { polls: u64::MAX, look_interval_ns: 0.0, search_interval_ns: 0.0, ..evidence.clone() };
    for (waits, answers) in [&mut close.service, &mut close.answer].into_iter().zip(evidence.answered_polls) {
        waits.count = waits.count.max(answers);
    }
    let of_causes = Cause::ALL.into_iter().filter(|cause| cause.assess(&close).holds).map(|cause| match cause {
        Cause::SlowNames => ("looks at sockets of UDP", evidence.look_interval_ns),
        Cause::SlowSetUp if evidence.search_interval_ns > polls.1 => {
            ("searches for connections", evidence.search_interval_ns)
        }
        Cause::SlowService | Cause::SlowAnswer | Cause::Nagle => ("polls", evidence.turn_resolution_ns()),
        _ => polls,
    });
    of_causes.chain(Some(polls).filter(|(_, ns)| ns * INTERVALS >= NOTICED_NS)).max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The sentence where polls were so far apart that they may have missed waits, or connections were not looked at.
fn not_all_seen(evidence: &Evidence, sparse: Option<(&str, f64)>) -> String {
    let omitted = evidence.omitted;
    let seen = match sparse {
        Some((what, apart_ns)) => format!(
            "No wait exceeds {:.0} ms on average, and shorter ones cannot be seen: {what} were too far apart",
            apart_ns * INTERVALS / 1e6
        ),
        None => "Nothing slows the connections down that were looked at: no wait is long enough to count".into(),
    };
    match omitted {
        0 => format!("{seen}."),
        _ => format!("{seen}, and {omitted} of {} connections were not looked at.", evidence.connections + omitted),
    }
}

/// Returns the causes that hold of the time that the first one leaves, the one that explains most first: what would be next
/// if that were mended.
fn of_the_rest(evidence: &Evidence, held: &[Cause], first: Option<Cause>) -> Vec<Ranked> {
    let Some(first) = first else {
        return Vec::new();
    };
    let mut rest = evidence.clone();
    first.parts().iter().for_each(|part| rest.times.remove(*part));
    let mut next: Vec<Ranked> = Cause::ALL
        .into_iter()
        .filter(|cause| !held.contains(cause) && !cause.is_explained_by(held) && !cause.is_overflow_of(first))
        .filter(|cause| cause.assess(&rest).holds)
        .map(|cause| Ranked { cause, share: cause.assess(evidence).share })
        .filter(|ranked| ranked.share >= MIN_NEXT)
        .collect();
    next.sort_by(|a, b| b.share.total_cmp(&a.share));
    next
}

/// Returns why there is no verdict, if the evidence does not suffice.
fn lacks(evidence: &Evidence) -> Option<Outcome> {
    let (active, idle) = (evidence.times.total(), evidence.idle_ns);
    let moved = evidence.sent_bytes + evidence.received_bytes;
    if moved == 0 && evidence.datagrams.is_some_and(|it| it.dropped > 0) {
        return (evidence.observed_ns < MIN_OBSERVED_NS).then_some(Outcome::NotEnough);
    }
    // Attempts that the server refused at once took no longer than a round trip.
    let is_opening = !evidence.unopened.is_empty() || evidence.failed_attempts.unwrap_or(0) == 0;
    if evidence.connections == 0
        && (evidence.names.count > 0 || (is_opening && Cause::SlowSetUp.assess(evidence).holds))
    {
        return None;
    }
    if evidence.connections == 0 || (moved == 0 && active <= (active + idle) * MIN_ACTIVE) {
        return Some(Outcome::NoTraffic);
    }
    let holds = |cause: &Cause| cause.assess(evidence).holds;
    if owed(evidence).is_some() && evidence.answered_polls == [0, 0] && !Cause::ALL.iter().any(holds) {
        return Some(Outcome::NoTraffic);
    }
    let is_short = match evidence.source {
        // Names and handshakes are counted by looks and searches.
        Source::Sockets => {
            let is_polled = evidence.times.share_of(&[Part::Names, Part::SetUp]) < MAX_UNPOLLED;
            evidence.observed_ns < MIN_OBSERVED_NS || (is_polled && evidence.polls < MIN_POLLS)
        }
        // It is what it is, and its packets have exact times.
        Source::Capture => evidence.polls < MIN_PACKETS,
        // As many bytes.
        Source::Stamps => evidence.polls < MIN_POLLS,
    };
    (is_short || evidence.unexplained() > MAX_UNEXPLAINED).then_some(Outcome::NotEnough)
}

/// Whether a capture has enough packets for a verdict on what they show.
fn has_enough_packets(evidence: &Evidence) -> bool {
    evidence.source == Source::Capture && evidence.polls >= MIN_PACKETS
}

/// The mean wait in the send buffer, if it is long.
fn long_send_wait_ns(evidence: &Evidence) -> Option<f64> {
    let wait_ns = evidence.send_buffer.mean_ns().map(|ns| ns as f64);
    wait_ns.filter(|_| reaches_by_polls(evidence, wait_ns, MIN_SEND_WAIT_NS))
}

/// Connections that may wait for an answer.
fn unanswered(evidence: &Evidence) -> [Fact; 2] {
    let fact = |what, value| Fact { what, value: Some(value), method: "tcp_info", speaks_for: true };
    [
        fact("connections on which the client spoke last", Value::Count(evidence.unanswered.count)),
        fact("longest time since", Value::Time(evidence.unanswered.longest_ns as f64)),
    ]
}

/// What clients have sent while dwell looked, and had no answer to, if that is long ago.
fn owed(evidence: &Evidence) -> Option<String> {
    const LONG_NS: u64 = 1_000_000_000;
    let Silences { count, longest_ns, .. } = evidence.owed;
    let longest_s = longest_ns as f64 / 1e9;
    (longest_ns >= LONG_NS).then(|| match count {
        1 => format!("on a connection the client spoke last, {longest_s:.1} s ago, and may be owed an answer"),
        _ => format!(
            "on {count} connections the client spoke last, up to {longest_s:.1} s ago, and may be owed an answer"
        ),
    })
}

/// The verdict where nothing answers the first packets of connections.
fn silence(unopened: &UnopenedConnections) -> String {
    let (server, waits) = (unopened.server, unopened.waits);
    let longest_s = waits.longest_ns as f64 / 1e9;
    match waits.count {
        1 => format!("A connection to {server} cannot be opened: nothing answered its SYN for {longest_s:.1} s."),
        count => format!(
            "Connections to {server} cannot be opened: nothing answered the SYNs of {count} of them, for up to {longest_s:.1} s."
        ),
    }
}

fn certainty(verdict: &Verdict, is_contradicted: bool) -> Certainty {
    let [first, rest @ ..] = verdict.ranked.as_slice() else {
        return Certainty::Possible;
    };
    let total: f64 = verdict.parts.iter().map(|(_, ns)| ns).sum();
    let unexplained = verdict.parts.iter().find(|(part, _)| *part == Part::Unexplained).map_or(0.0, |(_, ns)| *ns);
    let is_hidden = unexplained > first.share * total;
    let is_rivalled = rest.first().is_some_and(|second| second.share > first.share * 0.8);
    match first.share {
        _ if is_rivalled || is_contradicted || is_hidden => Certainty::Possible,
        share if share >= 2.0 * MIN_SHARE && verdict.unseen.is_empty() => Certainty::Sure,
        _ => Certainty::Likely,
    }
}

/// What was sent and received.
fn traffic(evidence: &Evidence) -> Vec<Fact> {
    let fact = |what, value| Fact { what, value: Some(value), method: "tcp_info", speaks_for: true };
    vec![
        fact("connections", Value::Count(evidence.connections)),
        fact("sent and acknowledged", Value::Bytes(evidence.sent_bytes)),
        fact("received in order", Value::Bytes(evidence.received_bytes)),
    ]
}

/// The figures that make a target healthy.
fn healthy_facts(evidence: &Evidence) -> Vec<Fact> {
    let time = |what, ns: Option<f64>, method| Fact { what, value: ns.map(Value::Time), method, speaks_for: true };
    let share =
        |what, share: Option<f64>| Fact { what, value: share.map(Value::Share), method: "tcp_info", speaks_for: true };
    let out_of_order = evidence.out_of_order().filter(|share| *share > 0.0);
    let mut facts = traffic(evidence);
    facts.extend([
        time("round trip of transfers", evidence.transfers.mean_ns(), "tcp_info rtt"),
        time("shortest round trip of transfers", evidence.transfers.base_ns(), "tcp_info min_rtt"),
        time("round trip of messages", evidence.messages.mean_ns(), "tcp_info rtt"),
        share("segments sent again", evidence.loss()),
        share("segments received out of order: lost on the way, or overtaken", out_of_order),
        share("peer's window was the limit", Some(evidence.times.share(Part::ReceiverWindow))),
        share("send buffer was the limit", Some(evidence.times.share(Part::SendBuffer))),
        share("congestion window was full while data waited to leave", evidence.unsent.full()),
        time("mean time to answer a request here", evidence.service.mean_ns(), "polls"),
        time("mean wait for an answer", evidence.answer.mean_ns(), "polls"),
        time("mean wait to be read", evidence.receive_buffer.mean_ns().map(|ns| ns as f64), "byte counts"),
        time("mean wait in the send buffer", evidence.send_buffer.mean_ns().map(|ns| ns as f64), "byte counts"),
    ]);
    facts.extend((evidence.names.count > 0).then(|| names::waits(evidence)).into_iter().flatten());
    facts.extend((evidence.set_ups.count > 0).then(|| set_up::waits(evidence)).into_iter().flatten());
    facts.retain(|fact| fact.value.is_some());
    facts
}
