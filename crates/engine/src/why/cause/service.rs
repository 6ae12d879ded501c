//! A request has arrived and was read, and the local application takes long to write its answer.

use super::{super::Part, *};

const MIN_SERVICE_NS: f64 = 5e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-service",
    sentence: "The service on this host takes long to answer: requests waited for it",
    assess,
    remedies: application_remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let served = evidence.times.share(Part::Service);
    let mean = evidence.service.mean_ns();
    let mut facts = vec![
        share("requests were read and not answered", Some(served), "tcp_info byte counts, polls"),
        time("mean time to answer", mean, "polls"),
        time("longest", Some(evidence.service.longest_ns as f64), "polls"),
        fact("answers", Some(Value::Count(evidence.service.count)), "polls"),
    ];
    facts.extend(process_facts(evidence));
    Assessment { share: served, holds: served >= MIN_SHARE && reaches(mean, MIN_SERVICE_NS), facts }
}
