//! A request has arrived and was read, and the local application takes long to write its answer.

use super::*;

const MIN_SERVICE_NS: f64 = 5e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-service",
    sentence: "The service on this host takes long to answer: requests waited for it",
    parts: &[Part::Service],
    assess,
    remedies,
};

/// How long requests waited to be read, in the mean over all; `None` if none did.
fn unread(evidence: &Evidence) -> Option<f64> {
    (evidence.sums.unread.count > 0)
        .then(|| evidence.sums.unread.sum_ns as f64 / evidence.sums.service.count.max(1) as f64)
}

/// The fact that most requests may have come in pieces, the last of which was late, if they are as long as an acknowledgement is
/// delayed, for which Nagle's algorithm waits.
fn in_pieces(evidence: &Evidence) -> Option<Fact> {
    /// Linux delays one for 40 ms or more. Its tick is 4 ms, or less.
    const DELAYED_NS: f64 = 35e6;
    let what = "answers that may have waited for the rest of a request which its client had held back";
    let is_most = evidence.sums.doubtful > 0 && evidence.sums.doubtful * 2 >= evidence.sums.service.count;
    (is_most && reaches(evidence.sums.service.mean_ns(), DELAYED_NS)).then(|| {
        unless(true, fact(what, Some(Value::Count(evidence.sums.doubtful)), "tcp_info segs_out, data_segs_in"))
    })
}

/// Whether the service may take its time on purpose: although its clients pause between their requests, if it is idle, as those that
/// only wait, as for messages, ask again at once; and whatever they do, where its process is not known.
pub fn may_take_its_time(evidence: &Evidence) -> bool {
    /// The share of pauses in the time of clients that wait for long.
    const PAUSES: f64 = 0.1;
    let waited_ns = evidence.sums.times.get(Part::Service);
    // No capture has processes.
    if evidence.source == Source::Capture {
        return reaches(evidence.sums.service.mean_ns(), LONG_NS);
    }
    may_be_meant(evidence, evidence.sums.service.mean_ns(), LONG_NS)
        && evidence.paused_ns >= (evidence.paused_ns + waited_ns) * PAUSES
}

fn assess(evidence: &Evidence) -> Assessment {
    let served = evidence.sums.times.share(Part::Service);
    let mean = evidence.sums.service.mean_ns();
    let mut facts = vec![
        share("requests were read and not answered", Some(served), "tcp_info byte counts, polls"),
        time("mean time to answer", mean, "polls"),
        time("longest", Some(evidence.sums.service.longest_ns as f64), "polls"),
        fact("answers", Some(Value::Count(evidence.sums.service.count)), "polls"),
    ];
    let turns = Turns::served(evidence);
    facts.extend(turns.over_all(evidence));
    facts.extend(
        unread(evidence).map(|ns| time("of the mean, before they were read", Some(ns), "sock_diag rqueue, polls")),
    );
    let is_meant = may_be_meant(evidence, mean, LONG_NS) && !may_take_its_time(evidence);
    facts.extend(process_facts(evidence).into_iter().map(|fact| unless(is_meant, fact)));
    facts.extend(both_ways(evidence, &evidence.sums.service));
    facts.extend(in_pieces(evidence));
    facts.extend(resets::facts(evidence, Role::Server));
    facts.extend(set_up::missed_handshakes(evidence));
    facts.extend(evidence.brief_upstream().map(|asked| {
        let what = "connections to others that were found; more were over before a search";
        unless(true, fact(what, Some(Value::Count(asked.connections)), "sock_diag"))
    }));
    let is_long = reaches_by_turns(evidence, mean, MIN_SERVICE_NS)
        || reaches_by_segments(&evidence.sums.service, evidence.answer_segments, MIN_SERVICE_NS);
    let is_short = turns.are_mostly_unseen() && turns.are_shorter(evidence, MIN_SERVICE_NS);
    Assessment { share: served, holds: turns.have_their_share(evidence) && is_long && !is_short, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    /// From this share of the time on requests wait for their turn, whatever the service does meanwhile.
    const MOST: f64 = 0.5;
    let mut remedies = application_remedies(evidence);
    remedies.splice(
        0..0,
        evidence.brief_upstream().map(|asked| {
            let command = at_host(Some(asked.key.peer), &format!("dwell why :{}", asked.key.port));
            remedy(command, "shows whether the service is slow that this one asks on connections of its own")
        }),
    );
    let waits = unread(evidence).zip(evidence.sums.service.mean_ns());
    if waits.is_some_and(|(unread_ns, mean_ns)| unread_ns >= mean_ns * MOST) && !is_stopped(evidence) {
        let port = port_number(evidence);
        let several = remedy(
            format!("ss -tn 'sport = :{port}'"),
            "shows requests that wait to be read (Recv-Q): let the service serve more of them at the same time, by more \
             workers or threads",
        );
        remedies.insert(0, several);
    }
    remedies
}
