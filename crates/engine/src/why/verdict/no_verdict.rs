//! What is said where there is no verdict, or not for sure.

use super::{
    super::{
        Cause, Evidence, Source,
        cause::{INTERVALS, MIN_SHARE, datagram_facts, failed_attempts},
        unseen,
    },
    Verdict,
    facts::{owed, traffic, unanswered},
};

/// Says that there was nothing to look at.
pub(super) fn no_traffic(verdict: &mut Verdict, evidence: &Evidence) {
    verdict.sentence = no_traffic_sentence(evidence);
    verdict.facts = traffic(evidence);
    if evidence.sums.unanswered.count > 0 {
        verdict.facts.extend(unanswered(evidence));
        verdict.unseen.insert(0, unseen::owed(evidence));
    }
    if evidence.sums.ends_of_requests.failed() > 0 {
        verdict.sentence = evidence.sums.ends_of_requests.sentence();
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
    if evidence.connections > 0 && evidence.omitted > 0 {
        let (seen, omitted) = (evidence.connections, evidence.omitted);
        return format!("Nothing was sent on the {seen} connections that were looked at; {omitted} others were not.");
    }
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
        (_, Some(_)) if evidence.sums.unanswered.count == 0 => {
            "The TCP connections of the target were idle. It uses UDP too, and its sockets dropped nothing.".into()
        }
        _ if evidence.sums.unanswered.count > 0 => {
            "Nothing was sent. Clients spoke last on some connections: they may be owed an answer, or not.".into()
        }
        _ => "The connections of the target were idle: nothing was sent, and nobody waited.".into(),
    }
}

/// Says that it cannot be told.
pub(super) fn not_enough(verdict: &mut Verdict, evidence: &Evidence) {
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
    if evidence.sums.ends_of_requests.mostly_fail() && evidence.unexplained() < MIN_SHARE {
        verdict.sentence = evidence.sums.ends_of_requests.sentence();
        verdict.unseen[0] = unseen::failure(evidence);
    }
}

/// What was too far apart, polls, looks at sockets of UDP or searches for connections, and how far: waits which people notice
/// may have passed between two of them, or there would be a cause if they were closer together and had found the same
/// waits. The sum of waits is right in the mean however far apart polls are; divided by the least number of answers that there
/// were, it is the most that an answer can have taken in the mean.
pub(super) fn sparse(evidence: &Evidence) -> Option<(&'static str, f64)> {
    /// The shortest wait for a program that people notice.
    const NOTICED_NS: f64 = 100e6;
    if evidence.source != Source::Sockets {
        return None;
    }
    let polls = ("polls", evidence.poll_interval_ns());
    let mut close = Evidence { look_interval_ns: 0.0, search_interval_ns: 0.0, ..evidence.clone() };
    close.sums.polls = u64::MAX;
    for (waits, answers) in [&mut close.sums.service, &mut close.sums.answer].into_iter().zip(evidence.answered_polls) {
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
pub(super) fn not_all_seen(evidence: &Evidence, sparse: Option<(&str, f64)>) -> String {
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
