//! The local program waits for a disk, and the connection for the program.

use super::{super::Part, *};

/// The share of looks at which a thread waited for a disk.
const MIN_DISK: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    name: "disk",
    sentence: "The local program waits for a disk, and the connections for the program: they waited",
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let parts = [Part::Reader, Part::Service, Part::Application];
    let waited: f64 = parts.iter().map(|part| evidence.times.share(*part)).sum();
    let disk = evidence.process.map(|process| process.disk);
    let mut facts = vec![share("the program neither read, answered nor wrote", Some(waited), "sock_diag, polls")];
    facts.extend(process_facts(evidence));
    let is_slow = [Cause::SlowReader, Cause::SlowService, Cause::SlowApplication];
    let is_slow = is_slow.iter().any(|cause| cause.assess(evidence).holds);
    Assessment { share: waited, holds: is_slow && reaches(disk, MIN_DISK), facts }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy("iostat -x 1 5".to_owned(), "shows which disk is busy, and how long its requests take"),
        remedy(
            format!("sudo strace -f -c -w -p {}", pid(evidence)),
            "shows in which calls the program waits: fsync and O_SYNC wait for the disk itself (Ctrl-C ends it)",
        ),
    ]
}
