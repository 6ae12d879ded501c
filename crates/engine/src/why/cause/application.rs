//! The local application writes in pieces, with pauses in which nothing is under way: what T-RAT calls
//! application-limited.

use super::*;

/// Shorter pauses are the ordinary work between two writes.
const MIN_PAUSE_NS: f64 = 1e6;
/// From this pause on, brief messages may be sent at a pace that is meant: 200 per second.
const BRIEF_NS: f64 = 5e6;
/// Segments with fewer bytes in the mean, half of what most paths take, had no more to carry.
const SMALL_BYTES: u64 = 730;
/// Fewer may be chance.
const MIN_PAUSES: u64 = 3;

pub(super) const RULE: Rule = Rule {
    name: "slow-application",
    sentence: "The local application is the limit: it had written nothing to send",
    parts: &[Part::Application],
    assess,
    remedies: application_remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let paused = evidence.sums.times.share(Part::Application);
    let mean = evidence.sums.pause.mean_ns();
    let mut facts = vec![
        share("application paused with nothing under way", Some(paused), "tcp_info busy_time, polls"),
        time("mean pause between two writes", mean, "polls"),
        fact("pauses", Some(Value::Count(evidence.sums.pause.count)), "polls"),
    ];
    // Messages of a segment or two are no transfer, so that shorter pauses may be a pace too. Longer pauses between them are not counted.
    let Sums { segments_sent, sent_bytes, .. } = evidence.sums;
    let is_brief = segments_sent <= 2 * evidence.sums.pause.count || sent_bytes < segments_sent * SMALL_BYTES;
    let is_meant = may_be_meant(evidence, mean, if is_brief { BRIEF_NS } else { LONG_NS });
    facts.extend(process_facts(evidence).into_iter().map(|fact| unless(is_meant, fact)));
    // No packet shows what a program does that pushes messages, and when it has something to say.
    let may_push = evidence.source == Source::Capture && is_brief && reaches(mean, BRIEF_NS);
    let segments = Some(Value::Count(segments_sent));
    let what = "segments: messages so short may be sent whenever there is one";
    facts.extend(may_push.then(|| unless(true, fact(what, segments, "packets"))));
    facts.extend(unasked(evidence));
    let is_long = reaches_by_polls(evidence, mean, MIN_PAUSE_NS)
        || reaches_by_segments(&evidence.sums.pause, segments_sent, MIN_PAUSE_NS);
    let holds = paused >= MIN_SHARE && is_long && evidence.sums.pause.count >= least_count(evidence, MIN_PAUSES);
    Assessment { share: paused, holds, facts }
}
