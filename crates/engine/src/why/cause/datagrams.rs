//! Datagrams arrive faster than the program reads them, and the kernel drops what its socket has no room for.

use super::*;

pub(super) const RULE: Rule = Rule {
    name: "datagram-drops",
    sentence: "The program reads datagrams too late, and its socket dropped some: datagrams waited to be read",
    parts: &[],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let mut facts = datagram_facts(evidence);
    facts.extend(process_facts(evidence));
    let dropped = evidence.datagrams.is_some_and(|it| it.dropped > 0);
    Assessment { share: evidence.datagrams.map_or(0.0, |it| it.waiting), holds: dropped, facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let mut remedies = application_remedies(evidence);
    remedies.push(remedy(
        "sudo sysctl -w net.core.rmem_max=8388608".to_owned(),
        "lets the program ask for a larger receive buffer (SO_RCVBUF), which outlasts longer bursts",
    ));
    remedies
}
