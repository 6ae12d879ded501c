//! Name servers answer late.

use super::*;

const MIN_WAIT_NS: f64 = 20e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-names",
    sentence: "Name servers answer late: names were being looked up",
    parts: &[Part::Names],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.sums.times.share(Part::Names);
    let mean = evidence.names.mean_ns();
    let mut facts = vec![
        share("names were being looked up", Some(waited), "sock_diag, looks"),
        time("mean wait for a name server", mean, "looks"),
        time("longest", Some(evidence.names.longest_ns as f64), "looks"),
        fact("questions", Some(Value::Count(evidence.names.count)), "looks"),
    ];
    if evidence.open_names > 0 {
        // A program that exchanges data meanwhile may only keep its socket for later questions.
        let is_busy = evidence.source == Source::Sockets && evidence.sums.sent_bytes + evidence.sums.received_bytes > 0;
        let open = fact("of them without an answer at the end", Some(Value::Count(evidence.open_names)), "looks");
        facts.push(unless(is_busy, open));
    }
    facts.extend(looks_apart(evidence));
    let is_long = reaches_between(evidence.look_interval_ns, mean, MIN_WAIT_NS);
    Assessment { share: waited, holds: waited >= MIN_SHARE && is_long, facts }
}

/// The wait for name servers, and how close it was looked at, where nothing is slow.
pub fn waits(evidence: &Evidence) -> impl Iterator<Item = Fact> {
    let mean = time("mean wait for a name server", evidence.names.mean_ns(), "looks");
    std::iter::once(mean).chain(looks_apart(evidence))
}

/// The time between two looks.
fn looks_apart(evidence: &Evidence) -> Option<Fact> {
    interval("time between two looks at sockets of UDP", evidence.look_interval_ns, "sock_diag")
}

fn remedies(_: &Evidence) -> Vec<Remedy> {
    vec![
        remedy(
            "cat /etc/resolv.conf; getent ahosts NAME".to_owned(),
            "shows which servers are asked, and repeats a look-up",
        ),
        remedy("dig @SERVER NAME".to_owned(), "asks one of them alone: take those out that answer late or not at all"),
        remedy(
            "sudo systemctl enable --now systemd-resolved".to_owned(),
            "a cache on this host answers repeated questions at once",
        ),
    ]
}
