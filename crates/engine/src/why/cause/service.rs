//! A request has arrived and was read, and the local application takes long to write its answer.

use super::{super::Process, *};

const MIN_SERVICE_NS: f64 = 5e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-service",
    sentence: "The service on this host takes long to answer: requests waited for it",
    parts: &[Part::Service],
    assess,
    remedies: application_remedies,
};

/// Whether it may take its time on purpose, as for long polls and for consumers that wait for messages: answers take long,
/// and the process neither computes nor waits for a processor or a disk.
fn is_idle(evidence: &Evidence) -> bool {
    const LONG_NS: f64 = 50e6;
    const LITTLE: f64 = 0.05;
    let is_idle = |it: Process| it.busiest_thread < LITTLE && it.waiting_thread < LITTLE && it.disk < LITTLE;
    reaches(evidence.service.mean_ns(), LONG_NS) && evidence.process.is_some_and(is_idle)
}

fn assess(evidence: &Evidence) -> Assessment {
    let served = evidence.times.share(Part::Service);
    let mean = evidence.service.mean_ns();
    let mut facts = vec![
        share("requests were read and not answered", Some(served), "tcp_info byte counts, polls"),
        time("mean time to answer", mean, "polls"),
        time("longest", Some(evidence.service.longest_ns as f64), "polls"),
        fact("answers", Some(Value::Count(evidence.service.count)), "polls"),
    ];
    facts.extend(process_facts(evidence).into_iter().map(|fact| unless(is_idle(evidence), fact)));
    Assessment { share: served, holds: served >= MIN_SHARE && reaches_by_polls(evidence, mean, MIN_SERVICE_NS), facts }
}
