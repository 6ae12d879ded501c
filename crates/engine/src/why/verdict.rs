//! The decision: from evidence to ranked causes.

mod facts;
mod no_verdict;

use self::{
    facts::{healthy_facts, owed, silence, unanswered},
    no_verdict::{no_traffic, not_all_seen, not_enough, sparse},
};
use super::{
    Cause, Common, Evidence, Part, Role, Silences, Source, Target, Unseen, Worst,
    cause::{
        Assessment, MIN_SEND_WAIT_NS, MIN_SHARE, at_once, is_stopped, peer, reaches_by_polls, resets, service, set_up,
        stalled_peer,
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
        (Some(Outcome::NotEnough), Some((cause, _))) if has_enough(evidence, *cause) => Outcome::Slow(*cause),
        (Some(outcome), _) => outcome,
        (None, Some((cause, _))) => Outcome::Slow(*cause),
        // What may be a cause is not called healthy, and neither is what fails.
        (None, None)
            if evidence.unexplained() >= MIN_SHARE
                || evidence.sums.ends_of_requests.mostly_fail()
                || has_stood(evidence) =>
        {
            Outcome::NotEnough
        }
        (None, None) => Outcome::Healthy,
    };
    let mut verdict = Verdict {
        outcome,
        certainty: None,
        sentence: String::new(),
        ranked: if evidence.is_unreadable { Vec::new() } else { ranked },
        parts: Part::ALL.map(|part| (part, evidence.sums.times.get(part))).to_vec(),
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
    verdict.facts.extend(evidence.sums.ends_of_requests.facts());
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
        verdict.unseen.splice(0..0, unseen::others_queue(&evidence.sums.messages));
    }
    // Loopback has no queue on a path.
    let is_near = evidence.about(cause.parts()).target.peer.is_some_and(|peer| peer.is_loopback());
    let is_arrival_hidden = cause == Cause::SlowAnswer && peer::is_arrival_hidden(evidence);
    let is_contradicted = is_contradicted || is_near && is_arrival_hidden && evidence.sums.answer.count == 0;
    let is_arrival_hidden = is_arrival_hidden && !is_near;
    if is_arrival_hidden {
        verdict.unseen.insert(0, unseen::arrival());
    }
    match cause {
        Cause::SlowAnswer if peer::may_take_its_time(evidence) => verdict.unseen.insert(0, unseen::purpose(true)),
        Cause::SlowService if evidence.brief_upstream().is_some() => {
            verdict.unseen.splice(0..0, evidence.brief_upstream().map(unseen::brief_upstream));
        }
        Cause::SlowService if service::may_take_its_time(evidence) => verdict.unseen.insert(0, unseen::purpose(false)),
        _ => {}
    }
    let waits = match cause {
        Cause::SlowAnswer => Some(Role::Client),
        Cause::SlowService => Some(Role::Server),
        _ => None,
    };
    let is_lossy = cause == Cause::SlowAnswer && peer::may_be_lost(evidence);
    let misses_handshakes = waits.is_some() && set_up::misses_handshakes(evidence);
    let reset = waits.and_then(|role| resets::instead_of_answers(evidence, role));
    let overlaps = waits.is_some() && at_once::may_be(evidence);
    let open = [
        is_lossy.then(|| unseen::lost_answers(evidence)),
        misses_handshakes.then(|| unseen::handshakes(evidence)),
        reset.map(|count| unseen::resets(evidence, count)),
        overlaps.then(unseen::at_once),
    ];
    verdict.unseen.splice(0..0, open.into_iter().flatten());
    verdict.certainty = Some(certainty(verdict, is_contradicted));
    verdict.sentence = match (evidence.source, cause, evidence.dead_server()) {
        (Source::Stamps, Cause::Distance, _) => {
            format!("The hosts are far apart: bytes were under way {:.0} % of the time.", best.share * 100.0)
        }
        (_, Cause::SlowSetUp, Some(unopened)) => silence(unopened),
        (_, Cause::StalledPeer, _) if stalled_peer::is_stuck(evidence) => format!(
            "Data cannot leave this host: it waited {:.0} % of the time with nothing in flight, and the peer had room for it.",
            best.share * 100.0
        ),
        (_, Cause::SlowReader | Cause::SlowService | Cause::SlowApplication, _) if is_stopped(evidence) => format!(
            "The local program was stopped for {:.0} % of the time, as by a signal or a debugger: connections waited for it {:.0} % of \
             the time.",
            evidence.process.map_or(0.0, |it| it.stopped) * 100.0,
            best.share * 100.0
        ),
        _ if is_lossy => format!(
            "The peer takes long to answer, or packets are lost on the path: answers were due {:.0} % of the time.",
            best.share * 100.0
        ),
        (_, Cause::SlowAnswer, _) if reset.is_some() => format!(
            "The peer takes long to answer, or resets connections instead: answers were due {:.0} % of the time.",
            best.share * 100.0
        ),
        (_, Cause::SlowService, _) if reset.is_some() => format!(
            "The service on this host takes long to answer, or resets connections instead: requests waited for it {:.0} % \
             of the time.",
            best.share * 100.0
        ),
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
    if misses_handshakes {
        verdict.remedies.splice(0..0, set_up::keep_open(evidence));
    }
    for other in &verdict.ranked[1..] {
        let best = other.cause.remedies(&evidence.about(other.cause.parts())).into_iter().next();
        verdict.remedies.extend(best.filter(|best| verdict.remedies.iter().all(|it| it.command != best.command)));
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
    let spent_ns = evidence.sums.times.total();
    let idle_ns = evidence.sums.idle_ns - evidence.sums.left_open_ns;
    let may_be_meant = match cause {
        Cause::Distance | Cause::SlowApplication => true,
        // One that is stopped reads nothing, however little there is.
        Cause::SlowReader => !is_stopped(evidence),
        _ => false,
    };
    may_be_meant && spent_ns < (spent_ns + idle_ns) * RARE
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
    if at_once::may_be(evidence) {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence =
            "No wait is long enough to count, but several requests were under way on a connection at the same time: some \
             may have waited longer."
                .into();
        verdict.unseen.insert(0, unseen::at_once());
    }
    if let Some(share) = late_share(evidence) {
        let Silences { count, longest_ns, .. } = evidence.sums.late;
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!(
            "Answers come soon in the mean, but {count} of them were waited for long, up to {:.2} s: {:.0} % of the time.",
            longest_ns as f64 / 1e9,
            share * 100.0
        );
    }
    if let Some(share) = spoke_on_share(evidence) {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!(
            "No wait for an answer is long enough to count, but the service went on to speak without being asked after pauses \
             that were {:.0} % of the time.",
            share * 100.0
        );
        verdict.unseen.insert(0, unseen::before_it_spoke_on(evidence));
    }
    if let Some(share) = unread_share(evidence) {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = format!(
            "No wait to be read is long, but bytes waited to be read {:.0} % of the time, in which the peer may have had \
             no room to send more.",
            share * 100.0
        );
        verdict.unseen.insert(0, unseen::room(&evidence.about(&[Part::Reader])));
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
    if evidence.sums.unanswered.count > 0 {
        verdict.facts.extend(unanswered(evidence));
    }
    // A capture may end while a request is under way.
    if evidence.sums.ends_of_requests.failed() > evidence.sums.ends_of_requests.pending {
        verdict.certainty = Some(Certainty::Possible);
        verdict.sentence = evidence.sums.ends_of_requests.sentence();
        verdict.unseen.insert(0, unseen::failure(evidence));
    }
    let repaired = evidence.sums.times.share(Part::Timeout) + evidence.sums.times.share(Part::Loss);
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
    if set_up::misses_handshakes(evidence) {
        verdict.certainty = verdict.certainty.min(Some(Certainty::Likely));
        verdict.unseen.insert(0, unseen::handshakes(evidence));
    }
    if evidence.sums.times.share(Part::PeerPause) >= MIN_SHARE {
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

/// The share of the time in which somebody waited that went into answers which took long, if that is much, also of the look: many
/// quick ones make the mean short, and nobody notices these.
fn late_share(evidence: &Evidence) -> Option<f64> {
    const MUCH: f64 = 0.05;
    let late_ns = evidence.sums.late.sum_ns as f64;
    let share = late_ns / evidence.sums.times.total().max(1.0);
    (share >= MIN_SHARE && late_ns >= evidence.sums.polled_ns * MUCH).then_some(share.min(1.0))
}

/// The share of the time before a server on this host went on to speak, if that is much: clients may have waited for the rest of an
/// answer whose beginning left at once.
fn spoke_on_share(evidence: &Evidence) -> Option<f64> {
    let share = evidence.sums.spoke_on.sum_ns as f64 / evidence.sums.polled_ns.max(1.0);
    (share >= MIN_SHARE).then_some(share.min(1.0))
}

/// The share of the time in which bytes waited to be read, if that is much, also of the look.
fn unread_share(evidence: &Evidence) -> Option<f64> {
    const MUCH: f64 = 0.1;
    let share = evidence.sums.times.share(Part::Reader);
    let is_much = evidence.sums.times.get(Part::Reader) >= evidence.observed_ns as f64 * MUCH;
    (evidence.source == Source::Sockets && share >= MIN_SHARE && is_much).then_some(share)
}

/// Returns the causes that hold of the time that the first one leaves, the one that explains most first: what would be next
/// if that were mended.
fn of_the_rest(evidence: &Evidence, held: &[Cause], first: Option<Cause>) -> Vec<Ranked> {
    let Some(first) = first else {
        return Vec::new();
    };
    let mut rest = evidence.clone();
    first.parts().iter().for_each(|part| rest.sums.times.remove(*part));
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
    let (active, idle) = (evidence.sums.times.total(), evidence.sums.idle_ns);
    let moved = evidence.sums.sent_bytes + evidence.sums.received_bytes;
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
    (is_short(evidence) || evidence.unexplained() > MAX_UNEXPLAINED).then_some(Outcome::NotEnough)
}

/// Whether data waited to leave for most of the time in which somebody waited, and not a byte has moved, as polls of sockets saw it.
fn has_stood(evidence: &Evidence) -> bool {
    const MOST: f64 = 0.5;
    let under_way = [Part::Distance, Part::SlowStart, Part::Transfer, Part::RemoteQueue];
    let has_moved = evidence.sums.sent_bytes + evidence.sums.received_bytes > 0;
    evidence.source == Source::Sockets && !has_moved && evidence.sums.times.share_of(&under_way) >= MOST
}

/// Whether the look was too short for a verdict.
fn is_short(evidence: &Evidence) -> bool {
    match evidence.source {
        // Names and handshakes are counted by looks and searches.
        Source::Sockets => {
            let is_polled = evidence.sums.times.share_of(&[Part::Names, Part::SetUp]) < MAX_UNPOLLED;
            evidence.observed_ns < MIN_OBSERVED_NS || (is_polled && evidence.sums.polls < MIN_POLLS)
        }
        // It is what it is, and its packets have exact times.
        Source::Capture => {
            (evidence.sums.polls < MIN_PACKETS && evidence.unanswered_set_ups().is_none()) || evidence.observed_ns == 0
        }
        // As many bytes.
        Source::Stamps => evidence.sums.polls < MIN_POLLS,
    }
}

/// Whether there is enough for a verdict on what is seen, although more is hidden: the packets of a capture show what they show, and
/// waits of requests are judged by those that polls found.
fn has_enough(evidence: &Evidence, cause: Cause) -> bool {
    match evidence.source {
        Source::Capture => evidence.sums.polls >= MIN_PACKETS,
        Source::Sockets => matches!(cause, Cause::SlowService | Cause::SlowAnswer) && !is_short(evidence),
        Source::Stamps => false,
    }
}

/// The mean wait in the send buffer, if it is long.
fn long_send_wait_ns(evidence: &Evidence) -> Option<f64> {
    let wait_ns = evidence.send_buffer.mean_ns().map(|ns| ns as f64);
    wait_ns.filter(|_| reaches_by_polls(evidence, wait_ns, MIN_SEND_WAIT_NS))
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
